"""Calls of a program on workers: inputs that stay there, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etdev.execution.workers import OnWorkers, WorkerOptions
from etdev.program import Program, read, write
from etdev.program import model as m
from etdev.runtime.device_map import parse_device_map
from etdev.runtime.orchestrator import Orchestrator
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.pool import ProgramPool, ProgramSource
from program.hand import tensor
from support.files import SIN, method, program
from support.on_devices import D2H, H2D, on

X = torch.tensor([0.5, -1.0, 2.0, 3.0])


def changing() -> Program:
    """``y = sin(x); x = y``, of an input that the caller has on ``cuda:0``."""
    calls = [m.KernelCall(1, (0, 1, 1)), m.KernelCall(2, (1, 2, 2)), m.KernelCall(0, (2, 0, 0))]
    values = [on("cuda:0", 4), tensor(4, at=0), tensor(4, at=16)]
    return program(method(values, calls, operators=(H2D, D2H, SIN), inputs=(0,), outputs=(2,)))


def test_an_input_that_the_program_changes_is_given_anew_to_each_call(tmp_path: Path) -> None:
    """Kept on the worker, the second call would find what the first one left there."""
    write(changing(), tmp_path / "a.pte")
    made = read(tmp_path / "a.pte")
    options = WorkerOptions(1, "thread")
    device_map = parse_device_map("cuda:0=sim")
    found: list[object] = []
    on_workers = OnWorkers(tmp_path / "a.pte", made, made.execution_plan[0], "replay", device_map, options, fresh=False)
    on_workers.run([(X,)], 3, lambda _, outputs: found.append(outputs[0]))
    torch.testing.assert_close(found, [X.sin()] * 3)


def test_a_program_does_not_change_an_input_that_was_kept(tmp_path: Path) -> None:
    write(changing(), tmp_path / "a.pte")
    declared = read(tmp_path / "a.pte").execution_plan[0].values[0]
    assert isinstance(declared, m.Tensor)
    spec = WorkerSpec("cuda:0", device_map="cuda:0=sim")
    with Orchestrator([spec]) as o, ProgramPool(o, ProgramSource(tmp_path / "a.pte", "replay")) as pool:
        pool.keep("forward", 0, X, declared)
        with pytest.raises(Exception, match="writes to a read-only argument"):
            list(pool.map("forward", [(None,)]))
