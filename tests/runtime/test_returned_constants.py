"""Constants in a data file that a method returns. ExecuTorch's loader for data files replaces their bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("executorch", reason="needs the extra `build`")

from etdev.program import Blob, flat_tensor, write
from etdev.program import model as m
from etdev.runtime.native import NativeRuntime
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.stock import StockRuntime
from program.hand import tensor
from support.files import method, program, sin
from support.native import native_host

X = torch.linspace(-2, 2, 4)
CONSTANT = torch.tensor([3.0, 5.0, 7.0, 9.0])
RUNTIMES: dict[str, Callable[[], NativeRuntime | StockRuntime | ReplayRuntime]] = {
    "stock": StockRuntime,
    "native": lambda: NativeRuntime(native_host()),
    "replay": ReplayRuntime,
}


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A program that returns ``sin(x)`` and a constant, and the file of the constant."""
    info = m.ExtraTensorInfo(fully_qualified_name="k", location=m.TensorDataLocation.EXTERNAL)
    values = [tensor(4, at=0), tensor(4, at=16), replace(tensor(4), extra_tensor_info=info)]
    file, data = tmp_path / "a.pte", tmp_path / "a.ptd"
    write(program(method(values, [sin(0, 1)], outputs=(1, 2))), file)
    layout = flat_tensor.TensorLayout(m.ScalarType.FLOAT, (4,), (0,))
    content = m.Segment(0, Blob(CONSTANT.numpy().tobytes()))
    flat_tensor.write(flat_tensor.FlatTensor((content,), (flat_tensor.NamedData("k", 0, layout),)), data)
    return file, data


@pytest.mark.parametrize("name", RUNTIMES)
def test_the_constant_is_returned(name: str, pair: tuple[Path, Path]) -> None:
    file, data = pair
    with RUNTIMES[name]() as runtime:
        runtime.load(file, data=(data,))
        for _ in range(2):
            torch.testing.assert_close(runtime.call("forward", (X,)), (X.sin(), CONSTANT))


def test_executorchs_loader_still_replaces_it(pair: tuple[Path, Path]) -> None:
    """If this fails, ExecuTorch has fixed it: data files may keep returned constants, and loading need not join."""
    from executorch.extension.pybindings import portable_lib

    module = portable_lib._load_for_executorch(*map(str, pair))
    sine, constant = module.run_method("forward", (X,))
    torch.testing.assert_close(sine, X.sin())
    assert not torch.equal(constant, CONSTANT)
