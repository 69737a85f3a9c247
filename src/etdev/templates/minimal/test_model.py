"""Tests that run the file in ExecuTorch's own runtime, as an app does.

Start the tests with `pytest`. They build only targets that have changed.
"""

from executorch.runtime import Runtime

import etdev
from data import flowers


def test_the_file_names_flowers() -> None:
    built = etdev.build("etdev.toml", targets=["cpu"])
    assert built.ok
    program = Runtime.get().load_program(built.path("cpu"))
    measurements, kinds = flowers(held_out=True)
    (logits,) = program.load_method("forward").execute([measurements])
    assert (logits.argmax(dim=1) == kinds).sum() >= 27
