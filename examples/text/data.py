"""Short messages in eight languages, and the functions that etdev calls.

`messages.tsv` has one message in a line, in each of the languages. The lines are sorted by the English text. Of each 40
lines, the last 8 are held out: similar messages are neighbours, so few are on both sides.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

FOLDER = Path(__file__).parent
BLOCK, HELD_OUT = 40, 8
LENGTH = 48
"""Tokens of the longest text; ``methods.forward.dims.tokens.max`` of etdev.toml."""

Labelled = list[tuple[str, int]]
"""Texts, and the number of the language of each."""


@cache
def messages() -> tuple[list[str], Labelled, Labelled]:
    """Return the languages, the messages to train on, and the held-out ones."""
    first, *lines = (FOLDER / "messages.tsv").read_text(encoding="utf-8").splitlines()
    train: Labelled = []
    held_out: Labelled = []
    for number, line in enumerate(lines):
        side = held_out if number % BLOCK >= BLOCK - HELD_OUT else train
        side += [(text, label) for label, text in enumerate(line.split("\t"))]
    return first.split("\t"), train, held_out


@cache
def tokenizer() -> Tokenizer:
    """Return the tokenizer of the transformers directory."""
    return Tokenizer.from_file(str(FOLDER / "model" / "tokenizer.json"))


def encode(text: str) -> tuple[Tensor, Tensor]:
    """Return the tokens of a text and their mask, both (1, n) int64 with n up to 48."""
    tokens = torch.tensor([tokenizer().encode(text).ids[:LENGTH]])
    return tokens, torch.ones_like(tokens)


def test_samples() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield every 17th held-out message, so that all languages occur."""
    for text, _ in messages()[2][::17]:
        yield encode(text)


def accuracy(run: Callable[..., list[Tensor]]) -> float:
    """Return the fraction of held-out messages whose language ``run(tokens, mask) -> [logits]`` finds."""
    held_out = messages()[2]
    return sum(int(run(*encode(text))[0].argmax()) == label for text, label in held_out) / len(held_out)
