"""Builds with backends of devices: what a partitioner's device becomes, which checks such a program gets (B1, B7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import etdev
from etdev.errors import MissingRequirementError
from etdev.pipeline.project import Project
from etdev.pipeline.results.result import CheckResult, TargetResult
from etdev.pipeline.stages.link.nested import device_memory, nested_program, reference_delegates
from etdev.program import read
from etdev.program.devices import delegate_device, named_devices
from etdev.program.footprint import planned_memory
from support.projects import LINEAR, LINEAR_CONFIG
from support.stages import Failure, check_failure, lower

pytestmark = pytest.mark.integration

pytest.importorskip("executorch", reason="needs the extra `build`")

TWO = """
    [[targets.gpu.partitioners]]
    backend = "reference"
    device = "cuda:0"
    options.ops = ["relu"]
    [[targets.gpu.partitioners]]
    backend = "reference"
    compile_specs.target_device = "CUDA:1"
"""

ONE = """
    [[targets.gpu.partitioners]]
    backend = "reference"
    device = "cuda:0"
"""


def _build(made: Project, *overrides: str) -> TargetResult:
    return etdev.build(made.loaded.path, overrides=overrides)["gpu"]


def _checks(result: TargetResult) -> dict[str, str]:
    return {check.name: check.status for check in result.checks}


def test_each_delegate_of_the_file_names_its_device(project: Callable[..., Project]) -> None:
    """B1: in its one spelling, in the object program and in the linked one."""
    made = project(LINEAR_CONFIG + TWO, model=LINEAR)
    _build(made)
    for name in ("tiny.object.pte", "tiny.pte"):
        program = read(made.out / "gpu" / name)
        specs = {spec.value for _, _, delegate in reference_delegates(program) for spec in delegate.compile_specs}
        assert specs == {b"cuda:0", b"cuda:1"}
        assert [str(device) for device in named_devices(program)] == ["cuda:0", "cuda:1"]


@pytest.mark.nightly
def test_the_report_counts_what_nested_programs_plan(project: Callable[..., Project]) -> None:
    made = project(LINEAR_CONFIG + TWO, model=LINEAR)
    result = _build(made)
    program = read(made.out / "gpu" / "tiny.pte")
    found = {
        str(delegate_device(delegate)): sum(planned_memory(nested_program(program, plan, index)).values())
        for plan, index, delegate in reference_delegates(program)
    }
    assert result.nested_memory == found
    assert result.status == "built"
    (note,) = [note for note in result.notes if "'reference'" in note]
    assert "only `etdev run` and the checks `replay` and `native` run them" in note


@pytest.mark.nightly
def test_the_budget_of_a_device_counts_what_nested_programs_plan(project: Callable[..., Project]) -> None:
    made = project(LINEAR_CONFIG + ONE, model=LINEAR)

    def limited(limit: int) -> tuple[TargetResult, CheckResult]:
        result = _build(made, f'targets.gpu.budget.memory={{ "cuda:0" = {limit} }}')
        return result, next(check for check in result.checks if check.name == "budget")

    result, budget = limited(1 << 20)
    planned, nested = device_memory(read(made.out / "gpu" / "tiny.pte"))["cuda:0"]
    assert nested == result.nested_memory["cuda:0"] > 0
    assert budget.status == "passed"
    assert " in delegates" in budget.summary
    _, budget = limited(planned + nested - 1)
    assert budget.status == "failed"
    assert f"{planned + nested:,} bytes, 1 more than budget.memory.cuda:0" in budget.summary


def test_a_backend_that_no_runtime_has_is_no_broken_artifact(project: Callable[..., Project]) -> None:
    """Checks that need a runtime are not run, the others hold; also where the config lists the runtime's backends."""
    made = project(LINEAR_CONFIG + TWO, model=LINEAR)
    for overrides in ((), ('targets.gpu.runtime.backends=["XnnpackBackend"]',)):
        result = _build(made, *overrides)
        checks = _checks(result)
        assert (checks["bytes"], checks["plan"], checks["kernels"], checks["runtime"]) == (
            "passed",
            "passed",
            "not run",
            "not run",
        )
        assert result.status == "built"


def test_the_file_is_proved_again_after_the_build(project: Callable[..., Project]) -> None:
    """``etdev verify TARGET`` compares with the object program, whose nested programs are not linked."""
    made = project(LINEAR_CONFIG + TWO, model=LINEAR)
    _build(made, 'targets.gpu.memory.planner="naive"')
    (plan,) = [check for check in etdev.verify(made.loaded.path)["gpu"].checks if check.name == "plan"]
    assert plan.status == "passed"
    assert "not compared" not in plan.summary


@pytest.mark.nightly
def test_the_same_bytes_each_time(project: Callable[..., Project]) -> None:
    made = project(LINEAR_CONFIG + TWO, model=LINEAR)
    assert _build(made).sha256 == _build(made, "targets.gpu.budget.file='1MiB'").sha256


KEPT = """
    import torch

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.full((32,), 2.0), persistent=False)
            self.register_buffer("count", torch.ones(32), persistent=False)

        def forward(self, x):
            self.count.add_(1)
            return x * self.table + self.count
"""


@pytest.mark.nightly
def test_what_one_target_gives_to_delegates_is_there_for_the_next(project: Callable[..., Project]) -> None:
    """Both lower one export, of which ExecuTorch would take the buffers away."""
    made = project(LINEAR_CONFIG + TWO + TWO.replace("targets.gpu", "targets.again"), model=KEPT)
    result = etdev.build(made.loaded.path, device_map="cuda:0=sim,cuda:1=sim")
    assert [target.status for target in result.targets] == ["built", "built"]
    assert result["gpu"].sha256 == result["again"].sha256


@pytest.mark.nightly
def test_what_all_targets_need_of_a_device_map_is_said_once(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etdev.execution.availability.cuda_is_visible", lambda: False)
    made = project(LINEAR_CONFIG + TWO + ONE.replace("targets.gpu", "targets.one"), model=LINEAR)
    simulates = "use `--device-map cuda:0=sim,cuda:1=sim` to simulate cuda:0 and cuda:1"

    assert etdev.build(made.loaded.path).notes == (simulates,)
    assert etdev.verify(made.loaded.path, device_map="cuda:1=sim,cuda:5=sim").notes == (
        simulates,
        "no program uses cuda:5 of the device map; used devices: cuda:0 and cuda:1",
    )
    assert etdev.verify(made.loaded.path, device_map="cuda:0=sim,cuda:1=sim").notes == ()
    assert etdev.build(made.loaded.path, verify=False).notes == ()


@pytest.mark.nightly
def test_vulkan_lowers_anywhere(project: Callable[..., Project]) -> None:
    step = '    [targets.gpu]\n    partitioners = [{ backend = "vulkan", options = { storage = "buffer" } }]\n'
    made = project(LINEAR_CONFIG + step, model=LINEAR)
    result = _build(made, "targets.gpu.budget.file='1MiB'")
    checks = _checks(result)
    assert result.methods[0].delegate_calls == {"VulkanBackend": 1}
    assert (checks["plan"], checks["budget"], checks["kernels"], checks["runtime"]) == (
        "passed",
        "passed",
        "not run",
        "not run",
    )
    (reason,) = [check.summary for check in result.checks if check.name == "runtime"]
    assert reason == "the wheel's runtime has no backend VulkanBackend"
    assert _checks(_build(made, 'targets.gpu.runtime.backends=["VulkanBackend"]'))["kernels"] == "passed"
    assert named_devices(read(made.out / "gpu" / "tiny.pte")) == ()


def test_cuda_says_what_it_lacks(project: Callable[..., Project]) -> None:
    try:
        import triton  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("triton is installed")
    made = project(LINEAR_CONFIG + '    [targets.cpu]\n    partitioners = [{ backend = "cuda" }]\n', model=LINEAR)
    check_failure(
        lambda: lower(made),
        Failure(
            MissingRequirementError,
            "etdev.toml:9:29 (targets.cpu.partitioners[0].backend)",
            "the backend 'cuda' cannot be used here: the package 'triton' is not installed, without which "
            "ExecuTorch's CUDA backend cannot be imported",
            'on Linux with a CUDA device and the CUDA toolkit: pip install "etdev[build]" triton',
        ),
    )
