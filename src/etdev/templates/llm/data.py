"""Prompts, and the texts with which transformers' `generate` continues them: the reference for every target."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from model import FOLDER

PROMPTS = ("This is the dog", "This is the man all", "This is the farmer sowing his corn,\nThat kept the cock")
STEPS = 16

Call = tuple[str, tuple[Tensor, Tensor]]
"""The method's name and the inputs of a call: tokens, and the position of the first token."""


@cache
def tokenizer() -> AutoTokenizer:
    return AutoTokenizer.from_pretrained(FOLDER)


def encode(text: str) -> Tensor:
    """Return the tokens of a text, with shape (1, number of tokens)."""
    tokens = tokenizer().encode(text)
    if not tokens:
        raise ValueError(f"the tokenizer in {FOLDER} has no tokens: save the model's tokenizer there (save_pretrained)")
    return torch.tensor([tokens])


@cache
def generated() -> list[tuple[Tensor, Tensor]]:
    """Return two tensors for each prompt: its tokens, and the tokens that transformers adds, at most STEPS.

    transformers chooses the most likely token each time.
    """
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    prompts = [encode(text) for text in PROMPTS]
    texts = [model.generate(prompt, do_sample=False, max_new_tokens=STEPS) for prompt in prompts]
    return [(prompt, text[:, prompt.shape[1] :]) for prompt, text in zip(prompts, texts, strict=True)]


def session(first: str, then: str, prompt: Tensor, following: Tensor) -> Iterator[Call]:
    """Yield the calls with which an app generates text: one for the prompt, then one for each token."""
    yield first, (prompt, torch.tensor([0]))
    for index, token in enumerate(following[:, :-1].unbind(1)):
        yield then, (token.unsqueeze(1), torch.tensor([prompt.shape[1] + index]))


def prompts() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples for `forward` and `read_prompt`."""
    for text in PROMPTS:
        yield encode(text), torch.tensor([0])


def first_tokens() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield samples for `next_token`: each prompt's first token, because a sample starts from initial state."""
    for tokens, start in prompts():
        yield tokens[:, :1], start


def sessions() -> Iterator[list[Call]]:
    """Yield sessions that generate a whole text with one method, as ExecuTorch's runners do."""
    for prompt, following in generated():
        yield list(session("forward", "forward", prompt, following))


def split_sessions() -> Iterator[list[Call]]:
    """Yield sessions that generate a whole text with two methods: `read_prompt` and `next_token`."""
    for prompt, following in generated():
        yield list(session("read_prompt", "next_token", prompt, following))


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of generated tokens for which the built program agrees with transformers."""
    right = [
        run(*inputs)[0].argmax() == wanted
        for prompt, following in generated()
        for (_, inputs), wanted in zip(session("forward", "forward", prompt, following), following[0], strict=True)
    ]
    return torch.stack(right).float().mean().item()
