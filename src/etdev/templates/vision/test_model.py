"""Run these tests with `pytest`. They run the files in ExecuTorch's own runtime; only changed targets are built."""

import pytest
import torch
from executorch.runtime import Program, Runtime

import etdev
from data import images


@pytest.fixture(scope="module", params=["cpu", "cpu-int8"])
def program(request: pytest.FixtureRequest) -> Program:
    built = etdev.build("etdev.toml", targets=[request.param])
    assert built.ok
    return Runtime.get().load_program(built.path(request.param))


def test_it_knows_its_labels_and_the_size_of_its_images(program: Program) -> None:
    (labels,) = program.load_method("labels").execute([])
    (size,) = program.load_method("image_size").execute([])
    pixels, digits = images(held_out=True)
    assert len(labels.split(",")) == len(digits.unique())
    assert pixels.shape[1:] == (size, size, 1)


def test_it_names_images(program: Program) -> None:
    pixels, digits = images(held_out=True)
    (logits,) = program.load_method("forward").execute([pixels[:16]])
    assert (logits.argmax(dim=1) == digits[:16]).sum() >= 15


def test_a_pixel_that_is_off_changes_nothing(program: Program) -> None:
    pixels, _ = images(held_out=True)
    changed = pixels[:1].clone()
    changed[0, 0, 0] ^= 1
    forward = program.load_method("forward")
    before, after = (forward.execute([image])[0].clone() for image in (pixels[:1], changed))
    assert torch.equal(before.argmax(), after.argmax())
