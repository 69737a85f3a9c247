"""Repeated calls of a program that writes over its input. Each call gets the input that was given."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("executorch", reason="needs the extra `build`")

from etdev.program import Program
from etdev.runtime.native import NativeRuntime
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.stock import StockRuntime
from program.hand import tensor
from support.files import method, program, sin
from support.native import native_host, saved

X = torch.linspace(-2, 2, 4)


def overwriting_its_input() -> Program:
    """``x = sin(x)`` in the caller's memory, then ``sin(x)``."""
    return program(method([tensor(4), tensor(4, at=0)], [sin(0, 0), sin(0, 1)]))


@pytest.mark.parametrize("watch", [True, False])
def test_in_the_native_runtime(tmp_path: Path, watch: bool) -> None:
    with NativeRuntime(native_host(), watch=watch) as runtime:
        runtime.load(saved(overwriting_its_input(), tmp_path))
        torch.testing.assert_close(runtime.call("forward", (X,), repeat=3), (X.sin().sin(),))


def test_in_the_stock_runtime(tmp_path: Path) -> None:
    with StockRuntime() as runtime:
        runtime.load(saved(overwriting_its_input(), tmp_path))
        torch.testing.assert_close(runtime.call("forward", (X,), repeat=3), (X.sin().sin(),))
        assert runtime.seconds > 0


def test_in_the_interpreter(tmp_path: Path) -> None:
    given = X.clone()
    with ReplayRuntime() as runtime:
        runtime.load(saved(overwriting_its_input(), tmp_path))
        for _ in range(2):
            torch.testing.assert_close(runtime.call("forward", (given,)), (X.sin().sin(),))
    assert torch.equal(given, X)
