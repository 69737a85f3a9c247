"""The check *native*, and ``budget.ram``: programs in ExecuTorch's C++ runtime, good ones and broken ones (A9, E4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.pipeline.results.result import CheckResult
from etdev.program import Program, write
from etdev.program import model as m
from etdev.runtime.native import NativeRuntime
from etdev.runtime.native.toolchain import Missing
from program.hand import tensor
from support.files import chain, cos, method, program, sin
from support.native import native_host
from support.on_devices import two_devices
from support.verification import Prepared, prepare
from verification.test_replay import _CONFIG, _DATA, _MODEL, SIMULATED


@pytest.fixture(scope="module")
def sines(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A model that computes three sines, built for the host."""
    native_host()
    return prepare(tmp_path_factory.mktemp("sines"), "gpu", _CONFIG, model=_MODEL, data=_DATA)


@pytest.fixture
def judge(sines: Prepared, tmp_path: Path) -> Callable[..., dict[str, CheckResult]]:
    """Every check's answer for a program that is said to be built from that model."""

    def judge(found: Program, *overrides: str, device_map: str | None = None) -> dict[str, CheckResult]:
        file = tmp_path / "program.pte"
        write(found, file)
        return sines.judge(*overrides, device_map=device_map, path=file, linked=None)

    return judge


Judge = Callable[..., dict[str, CheckResult]]


@pytest.mark.integration
def test_a_host_program_is_equal_to_the_stock_runtime_bit_by_bit(judge: Judge) -> None:
    found = judge(chain(3))["native"]
    assert (found.status, found.problems) == ("passed", ())
    assert "equal to the stock runtime's, bit by bit" in found.summary
    (outside,) = found.memory_outside
    assert outside.method == "forward"
    assert 0 <= (outside.heap or 0) < 10_000  # the thread pool of the kernels
    assert outside.method_pool > 0


@pytest.mark.integration
def test_one_call_of_a_steady_program_shows_its_outputs_and_its_memory(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etdev.verification.subject.measure_outside", lambda *_: pytest.fail("another process"))
    assert [outside.method for outside in judge(chain(3))["native"].memory_outside] == ["forward"]


@pytest.mark.integration
def test_a_device_program_runs_on_its_devices(judge: Judge) -> None:
    checks = judge(two_devices(), device_map=SIMULATED)
    assert checks["runtime"].status == "not run"
    assert (checks["native"].status, checks["native"].problems) == ("passed", ())
    assert checks["native"].summary.endswith("cuda:0 and cuda:1 simulated")
    assert judge(two_devices())["native"].summary == "no CUDA device"


@pytest.mark.integration
def test_a_wrong_program_is_broken(judge: Judge) -> None:
    """Its last sine is a cosine."""
    values = [tensor(4, at=16 * index) for index in range(4)]
    found = judge(program(method(values, [sin(0, 1), sin(1, 2), cos(2, 3)])))["native"]
    assert (found.status, found.gate) == ("failed", False)
    assert "has an error of" in found.problems[0]


@pytest.mark.integration
def test_a_copy_that_the_file_does_not_state_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.verification.checks.native.transfers", lambda plan: iter(()))
    found = judge(two_devices(), device_map=SIMULATED)["native"]
    assert found.status == "failed"
    assert (
        "a call copied 16 bytes to cuda:0 and 16 bytes back, but the file states 0 bytes and 0 bytes"
        in found.problems[0]
    )


@pytest.mark.integration
def test_a_write_outside_of_a_buffer_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    call = NativeRuntime.call

    def damaged(self: NativeRuntime, *arguments: object, **more: object) -> tuple[object, ...]:
        outputs = call(self, *arguments, **more)  # type: ignore[arg-type]
        assert self.called is not None
        self.called = replace(self.called, damages=("planned buffer 1 (64 bytes): out-of-bounds write at offset 64",))
        return outputs

    monkeypatch.setattr(NativeRuntime, "call", damaged)
    found = judge(chain(3))["native"]
    assert found.status == "failed"
    assert "planned buffer 1 (64 bytes): out-of-bounds write at offset 64" in found.problems[0]


@pytest.mark.integration
def test_a_buffer_that_the_runtime_does_not_allocate_is_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    call = NativeRuntime.call

    def without_buffers(self: NativeRuntime, method: str, *arguments: object, **more: object) -> tuple[object, ...]:
        outputs = call(self, method, *arguments, **more)  # type: ignore[arg-type]
        self.opened[method] = replace(self.opened[method], buffers=())
        return outputs

    monkeypatch.setattr(NativeRuntime, "call", without_buffers)
    found = judge(chain(3))["native"]
    assert found.status == "failed"
    assert "the runtime allocated 0 planned buffers, but the file states 1" in found.problems[0]


@pytest.mark.integration
def test_outputs_that_differ_from_the_stock_runtimes_are_found(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.verification.checks.native.same_bits", lambda *_: False)
    found = judge(chain(3))["native"]
    assert found.status == "failed"
    assert "output 0 is not bit-identical to that of the stock runtime" in found.problems[0]


@pytest.mark.integration
def test_a_crash_is_a_failure_that_names_the_instruction(judge: Judge) -> None:
    made = two_devices()
    plan = made.execution_plan[0]
    calls = list(plan.chains[0].instructions)
    calls[2] = m.KernelCall(2, (2, 3, 3))
    broken = replace(made, execution_plan=(replace(plan, chains=(m.Chain(tuple(calls)),)),))
    found = judge(broken, device_map=SIMULATED)["native"]
    assert found.status == "failed"
    assert "at instruction 2 (aten::sin.out): the host accessed cuda:0's memory" in found.problems[0]


@pytest.mark.integration
def test_without_a_compiler_the_reason_and_the_remedy_are_named(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    missing = Missing("no C++ compiler was found", "apt install g++")
    monkeypatch.setattr("etdev.runtime.native.executable.find_toolchain", lambda: missing)
    checks = judge(chain(3), "targets.gpu.budget.ram=1KiB")
    assert (checks["native"].status, checks["native"].summary) == ("not run", "no C++ compiler was found")
    assert checks["native"].hint == "apt install g++"
    assert checks["budget"].status == "not run"
    assert "budget.ram: no C++ compiler was found; apt install g++" in checks["budget"].summary
    assert "; known: at least " in checks["budget"].summary
    assert "objects of the runtime" in checks["budget"].summary


@pytest.mark.integration
def test_parts_that_are_known_without_a_run_can_exceed_the_limit(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as planned memory, on a machine that cannot measure the rest."""
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    missing = Missing("no C++ compiler was found", "apt install g++")
    monkeypatch.setattr("etdev.runtime.native.executable.find_toolchain", lambda: missing)
    found = judge(chain(3), "targets.gpu.budget.ram=63")["budget"]
    assert (found.status, found.gate) == ("failed", True)
    assert re.match(r"ram: at least [\d,]+ bytes, [\d,]+ more than budget.ram \(63\); ", found.problems[0])
    assert "planned memory 64 bytes" in found.problems[0]


@pytest.mark.integration
def test_budget_ram_is_the_plan_and_what_is_measured_outside_of_it(judge: Judge) -> None:
    (outside,) = judge(chain(3))["native"].memory_outside
    needed = 64 + outside.method_pool + outside.temporary_pool + (outside.heap or 0)
    assert judge(chain(3), f"targets.gpu.budget.ram={needed}")["budget"].status == "passed"
    found = judge(chain(3), f"targets.gpu.budget.ram={needed - 1}")["budget"]
    assert (found.status, found.gate) == ("failed", True)
    assert f"ram: {needed:,} bytes, 1 more than budget.ram ({needed - 1:,}); " in found.problems[0]
    assert "method pools" in found.problems[0]
