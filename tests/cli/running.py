"""Programs to run, and how: what the tests of ``etdev run`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from etdev.cli import app
from etdev.execution import run as run_module
from etdev.program import model as m
from etdev.program import write
from program.hand import tensor
from support.files import ADD, chain, method, program
from support.on_devices import across, delegate, on, two_devices

SIMULATED = ("--device-map", "cuda:0=sim,cuda:1=sim")
Run = Callable[..., tuple[int, str, str]]


def scaled(*, bound: bool = False) -> object:
    """``x + n * y`` of a tensor ``x``, a tensor ``y`` and a number ``n``; with ``bound``, of at most four elements."""
    dynamism = m.TensorShapeDynamism.DYNAMIC_BOUND if bound else m.TensorShapeDynamism.STATIC
    values = [tensor(4, at=16 * index, shape_dynamism=dynamism) for index in range(3)] + [m.Int(1)]
    calls = [m.KernelCall(0, (0, 1, 3, 2, 2))]
    return program(method(values, calls, inputs=(0, 1, 3), outputs=(2,), operators=(ADD,)))


def counter() -> object:
    """Adds its input to state, and answers that."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), m.Int(1), m.Bool(False)]
    calls = [m.KernelCall(0, (1, 0, 3, 2, 2)), m.KernelCall(1, (1, 2, 4, 1))]
    return program(method(values, calls, outputs=(2,), operators=(ADD, m.Operator("aten::copy_"))))


def resident() -> object:
    """Takes and gives a tensor on a device, which the caller owns."""
    plan = method(
        [on("cuda:0", 4), on("cuda:0", 4)], [m.DelegateCall(0, (0, 1))], delegates=(delegate(b"cuda:0"),), operators=()
    )
    return across(plan)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line next to the files, without the stock runtime: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_module, "_stock_obstacle", lambda *_: "it is not here")
    for name, made in {
        "chain": chain(1),
        "scaled": scaled(),
        "bound": scaled(bound=True),
        "counter": counter(),
        "two": two_devices(),
        "resident": resident(),
    }.items():
        write(made, f"{name}.pte")  # type: ignore[arg-type]
    np.save("x.npy", np.arange(4, dtype=np.float32))
    np.save("y.npy", np.full(4, 10, dtype=np.float32))

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(["run", *arguments])
        return code, *capfd.readouterr()

    return run
