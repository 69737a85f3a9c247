"""Damage and poison in the native runtime: on devices, in programs of delegates, and behind jumps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.runtime.native import NativeRuntime
from etdev.runtime.native.devices import simulated_devices
from etdev.runtime.native.unused import MethodUnused, unused_bytes
from program.hand import tensor
from support.files import branches, chain, method, program, sin
from support.native import native_host, saved
from support.on_devices import delegate, file_of, two_devices

X = torch.linspace(-2, 2, 4)
CANARY = b"\xc5" * 16


def reading_too_early() -> Program:
    """``x`` plus the content of bytes that the sine of ``x`` is written to afterwards."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), m.Int(1)]
    return program(method(values, [m.KernelCall(0, (0, 1, 3, 2, 2)), sin(0, 1)], outputs=(2,)))


def delegated(nested: Program, target: bytes | None = None) -> Program:
    """A program that runs the nested one in a delegate: float32 [4] -> float32 [4]."""
    plan = method([tensor(4, at=0), tensor(4, at=16)], [m.DelegateCall(0, (0, 1))], delegates=(delegate(target),))
    return program(replace(plan, operators=()), segments=(m.Segment(0, Blob()), m.Segment(128, Blob(file_of(nested)))))


@pytest.mark.parametrize("target", [None, b"cuda:0"])
def test_unused_bytes_of_a_delegates_program_hold_poison(tmp_path: Path, target: bytes | None) -> None:
    """Fresh memory holds zeros, so the wrong program seems to be right without poison."""
    file = saved(delegated(reading_too_early(), target), tmp_path)
    for watch in (False, True):
        with NativeRuntime(native_host(), devices=simulated_devices(1), watch=watch) as native:
            native.load(file)
            # Poison spares what the analysis takes for state, so the bytes to poison are given here.
            native._unused = {"forward": MethodUnused(nested=({-1: [(1, 16, 32)]},))} if watch else {}
            for _ in range(2):
                (found,) = native.call("forward", (X,), fresh=True)
                assert isinstance(found, torch.Tensor)
                assert bool(found.isnan().all()) is watch


def test_a_delegates_program_is_analyzed(tmp_path: Path) -> None:
    made = delegated(chain(3))
    assert unused_bytes(made, {}, shared=False)["forward"].nested == (
        unused_bytes(chain(3), {}, shared=False)["forward"].own,
    )
    with NativeRuntime(native_host()) as native:
        native.load(saved(made, tmp_path))
        assert native._unused["forward"].nested[0]
        for _ in range(2):
            torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))


def test_poison_spares_the_state_of_a_delegates_program(tmp_path: Path) -> None:
    """``state = state + x``."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), m.Int(1), m.Bool(False)]
    copy = m.Operator("aten::copy_", "")
    plan = method(values, [m.KernelCall(0, (1, 0, 3, 2, 2)), m.KernelCall(3, (1, 2, 4, 1))], outputs=(2,))
    counting = program(replace(plan, operators=(*plan.operators, copy)))
    with NativeRuntime(native_host()) as native:
        native.load(saved(delegated(counting), tmp_path))
        for number in range(1, 4):
            torch.testing.assert_close(native.call("forward", (X,)), (X * number,))


def test_bytes_that_go_out_of_use_at_a_jump_are_poisoned_at_the_next_call(tmp_path: Path) -> None:
    """ExecuTorch reports no jump, so these bytes kept their content."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), tensor(4, at=48), m.Int(1), m.Bool(True)]
    calls = [sin(0, 1), sin(1, 2), m.JumpFalseCall(5, 3), m.KernelCall(0, (2, 0, 4, 3, 3))]
    made = program(method(values, calls, outputs=(3,)))
    unused = unused_bytes(made, {}, shared=False)["forward"].own
    assert (1, 16, 32) in unused[3]
    assert 2 not in unused
    with NativeRuntime(native_host()) as native:
        native.load(saved(made, tmp_path))
        torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin() + X,))


def test_all_poison_is_at_calls_that_are_reported() -> None:
    made = branches()
    instructions = made.execution_plan[0].instructions
    unused = unused_bytes(made, {}, shared=False)["forward"].own
    positions = [position for position in unused if position >= 0]
    assert positions
    assert all(isinstance(instructions[position], m.KernelCall) for position in positions)


def damaged(native: NativeRuntime, *, devices: bool, behind: bool = False) -> int:
    """Write a byte before or behind each guarded buffer, as a delegate could. Return the number of buffers."""
    process = Path(f"/proc/{native.process_id}")
    lines = (process / "maps").read_text(encoding="utf-8").splitlines()
    maps = [(*(int(part, 16) for part in line.split()[0].split("-")), line) for line in lines]
    count = 0
    try:
        with (process / "mem").open("r+b", buffering=0) as memory:
            for before, (start, stop, line), after in zip(maps, maps[1:], maps[2:], strict=False):
                if "---p" not in before[2] or "---p" not in after[2] or ("etdev-device" in line) is not devices:
                    continue
                memory.seek(start)
                if " rw-" in line and memory.read(len(CANARY)) == CANARY:
                    memory.seek(stop - 1 if behind else start)
                    memory.write(b"\0")
                    count += 1
    except PermissionError:
        pytest.skip("this system does not let a process write to its child's memory")
    return count


def test_damage_on_devices_is_seen(tmp_path: Path) -> None:
    with NativeRuntime(native_host(), devices=simulated_devices(2)) as native:
        native.load(saved(two_devices(), tmp_path))
        native.call("forward", (X,))
        assert native.called is not None
        assert native.called.damages == ()
        count = damaged(native, devices=True)
        assert count == 2
        torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin().sin(),))
        assert sorted(native.called.damages) == [
            f"cuda:{index}'s memory (32 bytes): out-of-bounds write before its start" for index in range(2)
        ]


@pytest.mark.parametrize(
    ("target", "name"), [(None, "planned buffer 1 of a delegate (16 bytes)"), (b"cuda:0", "cuda:0's memory (16 bytes)")]
)
def test_damage_around_the_memory_of_a_delegates_program_is_seen(
    tmp_path: Path, target: bytes | None, name: str
) -> None:
    nested = program(method([tensor(4), tensor(4, at=0), tensor(4)], [sin(0, 1), sin(1, 2)]))
    with NativeRuntime(native_host(), devices=simulated_devices(1)) as native:
        native.load(saved(delegated(nested, target), tmp_path))
        native.call("forward", (X,))
        assert damaged(native, devices=target is not None)
        torch.testing.assert_close(native.call("forward", (X,)), (X.sin().sin(),))
        assert native.called is not None
        assert f"{name}: out-of-bounds write before its start" in native.called.damages


def test_the_offset_of_a_write_behind_a_buffer_is_named(tmp_path: Path) -> None:
    """A buffer of 12 bytes is followed by 4 bytes up to its alignment. The last one is overwritten."""
    made = program(method([tensor(3), tensor(3, at=0), tensor(3)], [sin(0, 1), sin(1, 2)]))
    with NativeRuntime(native_host()) as native:
        native.load(saved(made, tmp_path))
        native.call("forward", (X[:3],))
        assert damaged(native, devices=False, behind=True)
        native.call("forward", (X[:3],))
        assert native.called is not None
        assert "planned buffer 1 (12 bytes): out-of-bounds write at offset 15" in native.called.damages
