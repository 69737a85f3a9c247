"""Prompts, and sessions: what the program is asked while the model is checked against it."""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from model import make

PROMPTS = ("The quick brown fox", "To be, or not to be", "It was the best of times")
STEPS = 16

Call = tuple[str, tuple[Tensor, ...]]
"""A method and its inputs."""


def encode(text: str) -> Tensor:
    """(1, n) int64 ASCII codes."""
    return torch.tensor([list(text.encode("ascii"))])


def prompts() -> Iterator[tuple[Tensor]]:
    """Samples of `prefill`."""
    for text in PROMPTS:
        yield (encode(text),)


def first_tokens() -> Iterator[tuple[Tensor, Tensor]]:
    """Samples of `decode`: a text that begins with this token."""
    for text in PROMPTS:
        yield encode(text[0]), torch.tensor([0])


@cache
def sessions() -> list[list[Call]]:
    """For each prompt: prefill it, then decode 16 tokens, each the one that the model finds likeliest."""
    return [session(text) for text in PROMPTS]


@torch.no_grad()
def session(text: str) -> list[Call]:
    """The calls of one prompt."""
    model = make().eval()
    tokens = encode(text)
    calls: list[Call] = [("prefill", (tokens,))]
    logits = model.prefill(tokens)
    for position in range(tokens.shape[1], tokens.shape[1] + STEPS):
        call = logits.argmax(dim=1, keepdim=True), torch.tensor([position])
        calls.append(("decode", call))
        logits = model.decode(*call)
    return calls
