"""Prompts, and the samples and sessions for verification."""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from model import make

PROMPTS = ("The quick brown fox", "To be, or not to be", "It was the best of times")
STEPS = 16

Call = tuple[str, tuple[Tensor, ...]]
"""Name of a method, and its inputs."""


def encode(text: str) -> Tensor:
    """Return a text as (1, n) int64 ASCII codes."""
    return torch.tensor([list(text.encode("ascii"))])


def prompts() -> Iterator[tuple[Tensor]]:
    """Yield samples for `prefill`."""
    for text in PROMPTS:
        yield (encode(text),)


def first_tokens() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples for `decode`: the first token of a text."""
    for text in PROMPTS:
        yield encode(text[0]), torch.tensor([0])


@cache
def sessions() -> list[list[Call]]:
    """Yield a session for each prompt: `prefill`, then `decode` of the 16 most likely tokens, one by one."""
    return [session(text) for text in PROMPTS]


@torch.no_grad()
def session(text: str) -> list[Call]:
    """Return the calls for one prompt."""
    model = make().eval()
    tokens = encode(text)
    calls: list[Call] = [("prefill", (tokens,))]
    logits = model.prefill(tokens)
    for position in range(tokens.shape[1], tokens.shape[1] + STEPS):
        call = logits.argmax(dim=1, keepdim=True), torch.tensor([position])
        calls.append(("decode", call))
        logits = model.decode(*call)
    return calls
