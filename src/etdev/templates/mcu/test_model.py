"""Run these tests with `pytest`. They run the file in ExecuTorch's own runtime; only changed targets are built."""

from collections.abc import Callable

import pytest
import torch
from executorch.runtime import Program, Runtime
from torch import Tensor

import etdev
from data import images, strips


@pytest.fixture
def program() -> Program:
    built = etdev.build("etdev.toml", targets=["host"])
    assert built.ok
    return Runtime.get().load_program(built.path("host"))


@pytest.fixture
def read_image(program: Program) -> Callable[[Tensor], Tensor]:
    """Return a function from an image (1, 8, 8) to int8 logits (10,). The function quantizes as an app does."""
    (scale,) = program.load_method("forward_input0_scale").execute([])
    (zero_point,) = program.load_method("forward_input0_zp").execute([])
    forward = program.load_method("forward")

    def read(image: Tensor) -> Tensor:
        for (rows,) in strips(image):
            (logits,) = forward.execute([torch.clamp(torch.round(rows / scale) + zero_point, -128, 127).to(torch.int8)])
        return logits[0].clone()

    return read


def test_it_names_images(read_image: Callable[[Tensor], Tensor]) -> None:
    pixels, digits = images(held_out=True)
    found = [read_image(image) for image in pixels[:16]]
    assert {logits.dtype for logits in found} == {torch.int8}
    assert sum(logits.argmax() == digit for logits, digit in zip(found, digits, strict=False)) >= 15


def test_only_the_last_eight_rows_count(read_image: Callable[[Tensor], Tensor]) -> None:
    first, second = images(held_out=True)[0][:2]
    alone = read_image(second)
    read_image(first)
    assert torch.equal(read_image(second), alone)
