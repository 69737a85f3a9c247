"""The checks *replay* and *device*, and what devices make of *runtime* and *accuracy* (E4; simulated devices, A9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.pipeline.results.result import CheckResult, outcome, unmet
from etdev.program import Program, write
from etdev.program import model as m
from etdev.runtime.allocator import Registry
from etdev.runtime.host import HostAllocator
from etdev.runtime.simulated import Fault, SimulatedDevice
from etdev.verification.checks import device
from etdev.verification.checks.device import check_memory
from etdev.verification.checks.replay import effort
from support.files import chain
from support.on_devices import across, two_devices, two_devices_plan
from support.verification import Prepared, prepare

SIMULATED = "cuda:0=sim,cuda:1=sim"
_MODEL = """
    from torch import nn

    class Sines(nn.Module):
        def forward(self, x):
            return x.sin().sin().sin()
"""
_DATA = """
    import torch

    def samples():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(4, generator=generator),) for _ in range(5)]

    def sum_of_outputs(run):
        return sum(outputs[0].abs().sum().item() for outputs in run.map(samples()))
"""
_CONFIG = """
    version = 1
    [project]
    name = "sines"
    [model]
    entry = "model:Sines"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [4] }]
    samples = "data:samples"
    [targets.gpu]
"""
ACCURACY = 'targets.gpu.verify.accuracy={ fn = "data:sum_of_outputs", min = 1 }'


@pytest.fixture(scope="module")
def sines(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A model for :func:`two_devices`, built for the host."""
    return prepare(tmp_path_factory.mktemp("sines"), "gpu", _CONFIG, model=_MODEL, data=_DATA)


@pytest.fixture
def judge(sines: Prepared, tmp_path: Path) -> Callable[..., dict[str, CheckResult]]:
    """Every check's answer for a program that is said to be built from that model."""

    def judge(found: Program, *overrides: str, device_map: str | None = SIMULATED) -> dict[str, CheckResult]:
        file = tmp_path / "program.pte"
        write(found, file)
        return sines.judge(*overrides, device_map=device_map, path=file, linked=None)

    return judge


def changed(index: int, **changes: object) -> Program:
    """:func:`two_devices` with another value."""
    plan = two_devices_plan()
    values = list(plan.values)
    values[index] = replace(values[index], **changes)  # type: ignore[type-var]
    return across(replace(plan, values=tuple(values)))


def without(position: int) -> Program:
    """:func:`two_devices` with an instruction less."""
    plan = two_devices_plan()
    instructions = plan.chains[0].instructions
    kept = instructions[:position] + instructions[position + 1 :]
    return across(replace(plan, chains=(replace(plan.chains[0], instructions=kept),)))


def test_a_program_of_the_host_is_replayed_beside_the_stock_runtime(sines: Prepared) -> None:
    checks = sines.judge(ACCURACY)

    assert checks["runtime"].status == "passed"
    assert (checks["replay"].status, checks["replay"].summary) == ("passed", "5 samples, max abs error 0; equal")
    assert (checks["device"].status, checks["device"].summary) == ("not run", "the program has no memory on devices")
    assert "by the replay" not in checks["accuracy"].summary


def test_on_simulated_devices(judge: Callable[..., dict[str, CheckResult]]) -> None:
    checks = judge(two_devices(), ACCURACY)

    assert (checks["runtime"].status, checks["runtime"].summary) == (
        "not run",
        "the stock Python runtime has no devices, but the program uses cuda:0 and cuda:1",
    )
    assert checks["replay"].status == "passed"
    assert checks["replay"].summary == "5 samples, max abs error 0; equal; cuda:0 and cuda:1 simulated"
    assert (checks["device"].status, checks["device"].summary) == ("not run", "cuda:0 and cuda:1 are simulated")
    assert checks["placement"].status == "passed"
    assert checks["accuracy"].status == "passed"
    assert checks["accuracy"].summary.endswith(", computed by the replay")


def test_without_devices_nothing_is_claimed(
    judge: Callable[..., dict[str, CheckResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etdev.execution.availability.cuda_is_visible", lambda: False)
    checks = judge(two_devices(), ACCURACY, device_map=None)

    assert {checks[check].status for check in ("runtime", "replay", "device", "accuracy")} == {"not run"}
    assert checks["replay"].summary == checks["device"].summary == "no CUDA device"
    assert checks["replay"].hint == "use `--device-map cuda:0=sim,cuda:1=sim` to simulate cuda:0 and cuda:1"
    assert outcome(tuple(checks.values())) == "built"
    assert [check.name for check in unmet(tuple(checks.values()), ("replay", "device"))] == ["replay", "device"]


@pytest.mark.parametrize(
    ("device_map", "has"), [("cuda:1=sim", "cuda:1"), ("cuda:1=sim,cuda:5=sim", "cuda:1 and cuda:5")]
)
def test_a_map_that_leaves_a_device_out_is_named_with_it(
    judge: Callable[..., dict[str, CheckResult]], device_map: str, has: str
) -> None:
    checks = judge(two_devices(), device_map=device_map)

    assert {checks[check].status for check in ("replay", "device")} == {"not run"}
    assert checks["replay"].summary == f"the program uses cuda:0, but the device map has entries only for {has}"
    assert checks["device"].summary == checks["replay"].summary


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (without(2), "has an error of"),
        (without(0), "has an error of"),
        (changed(1, allocation_info=None), "value 1"),
    ],
    ids=["a copy back is missing", "a copy to a device is missing", "no memory"],
)
def test_a_program_that_is_wrong_fails(judge: Callable[..., dict[str, CheckResult]], found: Program, said: str) -> None:
    check = judge(found)["replay"]

    assert (check.status, check.gate) == ("failed", False)
    assert said in check.summary
    assert check.where
    assert check.hint


def test_a_delegate_that_nothing_here_executes(judge: Callable[..., dict[str, CheckResult]]) -> None:
    plan = two_devices_plan()
    other = across(replace(plan, delegates=tuple(replace(item, id="CudaBackend") for item in plan.delegates)))
    checks = judge(other, ACCURACY)

    reason = "the replay has no executor for delegates of CudaBackend"
    assert (checks["replay"].status, checks["replay"].summary) == ("not run", reason)
    assert checks["accuracy"].status == "not run"


def test_an_operator_that_the_replay_lacks(judge: Callable[..., dict[str, CheckResult]]) -> None:
    plan = two_devices_plan()
    operators = (*plan.operators[:2], m.Operator("my::sin", "out"), *plan.operators[3:])
    checks = judge(across(replace(plan, operators=operators)))

    assert (checks["replay"].status, checks["replay"].summary) == (
        "not run",
        "the replay has no kernel for my::sin.out",
    )


@pytest.mark.parametrize(
    ("length", "beside", "alone"),
    [(1, 1000, 100_000), (3000, 1, 33), pytest.param(200_000, 1, 1, marks=pytest.mark.nightly)],
)
def test_how_many_samples_are_replayed(length: int, beside: int, alone: int) -> None:
    found = chain(length)

    assert (effort(found, alone=False).samples, effort(found, alone=True).samples) == (beside, alone)


def test_what_is_left_out_is_said(sines: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.verification.checks.replay.STEPS_BESIDE", 6)

    assert sines.judge()["replay"].summary == "the first 2 samples, max abs error 0; equal"


def registry(simulated: SimulatedDevice) -> Registry:
    found = Registry(HostAllocator())
    found.register(simulated)
    return found


REPLAYED = CheckResult(name="replay", status="passed", summary="5 samples")
RAN = CheckResult(name="native", status="passed", summary="4 samples")
LACKING = CheckResult(name="native", status="not run", summary="no compiler")


def test_the_device_check_on_a_registry() -> None:
    check = check_memory(two_devices(), registry(SimulatedDevice(count=2)), REPLAYED, RAN, alignment=16)

    assert check.status == "passed"
    assert check.summary == (
        "cuda:0 32 B in device (simulated), cuda:1 32 B in device (simulated); 4 extents written and read "
        "back, all freed; replay on the device: 5 samples; ExecuTorch's C++ runtime on the device: 4 samples"
    )
    assert [item.size for item in check.allocations] == [32, 32]
    assert [item.device for item in check.device_memory] == ["cuda:0", "cuda:1"]


def test_a_device_that_loses_bytes_makes_a_broken_artifact() -> None:
    simulated = SimulatedDevice(count=2, faults=[Fault("copy_device_to_host", lasting=True)])
    check = check_memory(two_devices(), registry(simulated), REPLAYED, RAN, alignment=16)

    assert (check.status, check.gate) == ("failed", False)
    assert check.problems


def test_what_failed_in_the_replay_failed_on_the_device() -> None:
    replay = CheckResult(name="replay", status="failed", summary="x is off", problems=("x is off",), hint="look")
    check = check_memory(two_devices(), registry(SimulatedDevice(count=2)), replay, RAN, alignment=16)

    assert (check.status, check.problems) == ("failed", ("the replay on the device failed: x is off",))


def test_what_failed_in_the_native_runtime_failed_on_the_device() -> None:
    native = CheckResult(name="native", status="failed", summary="x is off", problems=("x is off",), hint="look")
    check = check_memory(two_devices(), registry(SimulatedDevice(count=2)), REPLAYED, native, alignment=16)

    assert (check.status, check.problems) == ("failed", ("ExecuTorch's C++ runtime on the device failed: x is off",))


def test_what_did_not_run_at_all_is_not_passed() -> None:
    replay = CheckResult(name="replay", status="not run", summary="no kernel")
    check = check_memory(two_devices(), registry(SimulatedDevice(count=2)), replay, LACKING, alignment=16)

    assert check.status == "not run"
    assert check.summary == (
        "the memory test passed, but the program was not replayed on the device: no kernel; ExecuTorch's C++ runtime "
        "on the device did not run it either: no compiler"
    )


@pytest.mark.parametrize(
    ("native", "said"), [(RAN, "device: 4 samples"), (LACKING, "device: 5 samples; not run: Exec")]
)
def test_one_run_on_the_device_is_enough(native: CheckResult, said: str) -> None:
    replay = REPLAYED if native is LACKING else CheckResult(name="replay", status="not run", summary="no kernel")
    check = check_memory(two_devices(), registry(SimulatedDevice(count=2)), replay, native, alignment=16)

    assert check.status == "passed"
    assert said in check.summary


def test_too_little_memory_is_not_the_programs_fault(
    judge: Callable[..., dict[str, CheckResult]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifact stays, and the command ends with exit code 3 although nobody required the check."""
    simulated = SimulatedDevice(count=2, capacity=100)
    monkeypatch.setattr(device, "device_obstacle", lambda *_: None)
    monkeypatch.setattr(device, "registry_for", lambda _: registry(simulated))
    checks = judge(two_devices())

    assert (checks["device"].status, checks["device"].lacking) == ("not run", True)
    assert "100" in checks["device"].summary
    assert outcome(tuple(checks.values())) == "built"
    assert [check.name for check in unmet(tuple(checks.values()), ())] == ["device"]


@pytest.mark.parametrize(("limit", "status"), [(64, "passed"), (63, "failed")])
def test_copies_have_a_budget(judge: Callable[..., dict[str, CheckResult]], limit: int, status: str) -> None:
    check = judge(two_devices(), f"targets.gpu.budget.copies={limit}")["budget"]

    assert (check.status, check.gate) == (status, status == "failed")
    if status == "failed":
        (problem,) = check.problems
        assert problem == (
            "copies in a call of 'forward': 64 bytes, 1 more than budget.copies (63); float32 [4] back from cuda:0 "
            "16 bytes, float32 [4] back from cuda:1 16 bytes, float32 [4] to cuda:0 16 bytes and 1 more"
        )
        assert str(check.where).endswith("(targets.gpu.budget.copies)")
        assert check.hint == (
            "leave inputs and outputs on their device (io), let a delegate also take the ops between two "
            "delegates, or raise budget.copies"
        )


def test_a_devices_memory_has_a_budget_whose_figures_are_said_once(
    judge: Callable[..., dict[str, CheckResult]],
) -> None:
    """What a device has is a limit of the config's own, so that the artifact stays."""
    checks = judge(two_devices(), 'targets.gpu.budget.memory={ "cuda:1" = 31 }')

    assert [(checks[check].status, checks[check].gate) for check in ("placement", "budget")] == [("failed", True)] * 2
    assert checks["placement"].summary == (
        "the planned memory on cuda:1 exceeds its budget: the check `budget` states by how much"
    )
    assert (checks["placement"].where, checks["placement"].hint) == (None, None)
    assert checks["budget"].hint == (
        "move a part of the model to another device, make the largest inputs smaller (their shapes), "
        "or raise budget.memory"
    )
    assert outcome(tuple(checks.values())) == "gate failed"
