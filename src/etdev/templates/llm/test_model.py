"""Tests that run the built files in ExecuTorch's LLM runner, as an app does.

Start the tests with `pytest`. They build only targets that have changed.
"""

import pytest

import etdev
from data import PROMPTS, STEPS, generated, tokenizer
from generate import generate


@pytest.mark.parametrize("index", range(len(PROMPTS)))
def test_the_runner_generates_what_transformers_generates(index: int) -> None:
    file = etdev.build("etdev.toml", targets=["float"]).path("float")
    _, following = generated()[index]
    wanted = "".join(tokenizer().decode([token]) for token in following[0].tolist())
    assert generate(file, PROMPTS[index], STEPS) == wanted


def test_in_4_bits_it_goes_on_likewise() -> None:
    file = etdev.build("etdev.toml", targets=["int4"]).path("int4")
    _, following = generated()[0]
    assert generate(file, PROMPTS[0], 1) == tokenizer().decode(following[0, :1])
