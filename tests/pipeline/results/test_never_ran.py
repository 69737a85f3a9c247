"""Programs that verification accepted although nothing ran them: a warning with the command that runs them."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest

from etdev.cli.rendering.build_result import render_result
from etdev.cli.rendering.detail import Detail
from etdev.cli.reports.findings import of_result
from etdev.config.check_names import BUILT_IN
from etdev.errors import ExitCode
from etdev.pipeline.results.never_ran import never_ran
from etdev.pipeline.results.reasons import NOT_VERIFIED
from etdev.pipeline.results.result import BuildResult, CheckResult, DataFile, Failure, MethodResult, TargetResult

DEVICES = ("cuda:0", "cuda:1")
IGNORED = "the stock Python runtime has no devices, but the program uses cuda:0 and cuda:1"
ABSENT = CheckResult(name="replay", status="not run", summary="no CUDA device", hint="`--device-map` simulates")
FOREIGN = CheckResult(name="replay", status="not run", summary="CudaBackend cannot be replayed")
PASSED = CheckResult(name="replay", status="passed", summary="fine")


def target(
    replay: CheckResult,
    *data: str,
    devices: tuple[str, ...] = DEVICES,
    answers: Mapping[str, CheckResult] | None = None,
    required: tuple[str, ...] = (),
) -> TargetResult:
    found = {check: CheckResult(name=check, status="not run", summary=IGNORED) for check in BUILT_IN}
    found["bytes"] = CheckResult(name="bytes", status="passed", summary="", devices=devices)
    found |= {"replay": replay, **(answers or {})}
    method = MethodResult(
        name="forward",
        inputs=(),
        stateful=False,
        delegate_calls={"CudaBackend": 1},
        delegated_ops=1,
        undelegated=(),
        operators=(),
    )
    return TargetResult(
        name="gpu",
        status="built",
        artifact="build/gpu/p.pte",
        size=1,
        sha256="0",
        quantize=None,
        checks=tuple(found.values()),
        required=required,
        methods=(method,),
        data=tuple(DataFile(name=name, size=1, sha256="0", of_delegates=True) for name in data),
    )


def test_on_devices_that_are_not_here() -> None:
    found = never_ran(target(ABSENT))
    assert found is not None
    assert found.message == "no check ran the program: no CUDA device"
    assert found.hint == (
        "run `etdev verify gpu --device-map cuda:0=sim,cuda:1=sim` to run it on simulated devices, or `etdev "
        "verify gpu` on a machine that has cuda:0 and cuda:1"
    )


@pytest.mark.parametrize(
    ("data", "commands"),
    [
        ((), "`executor_runner --model_path build/gpu/p.pte`"),
        (("a.ptd",), "`executor_runner --model_path build/gpu/p.pte --data_path build/gpu/a.ptd`"),
        (
            ("a.ptd", "w.ptd"),
            (
                "`etdev relink build/gpu/p.pte --data build/gpu/a.ptd --data build/gpu/w.ptd "
                "-o build/gpu/p-joined.pte`, then `executor_runner --model_path build/gpu/p-joined.pte`"
            ),
        ),
    ],
)
def test_with_delegates_that_nothing_here_runs(data: tuple[str, ...], commands: str) -> None:
    found = never_ran(target(FOREIGN, *data))
    assert found is not None
    assert found.message == "no check ran the program: CudaBackend cannot be replayed"
    assert found.hint == f"ExecuTorch's own runtime built with CudaBackend can run it: {commands}"


def test_on_the_host_both_runtimes_have_a_reason() -> None:
    stock = CheckResult(name="runtime", status="not run", summary="no backend")
    found = never_ran(target(FOREIGN, devices=(), answers={"runtime": stock}))
    assert found is not None
    assert found.message == "no check ran the program: no backend; CudaBackend cannot be replayed"


@pytest.mark.parametrize(
    "other",
    [
        target(PASSED),
        target(FOREIGN, answers={"runtime": PASSED.model_copy(update={"name": "runtime"})}),
        target(FOREIGN, required=("replay",)),
        target(FOREIGN, required=("device",)),
        target(FOREIGN.model_copy(update={"summary": NOT_VERIFIED})),
        target(FOREIGN).model_copy(update={"status": "rejected"}),
        target(FOREIGN).model_copy(update={"checks": ()}),
    ],
    ids=["replayed", "run", "required", "required on the device", "not verified", "rejected", "of another version"],
)
def test_nothing_to_warn_of(other: TargetResult) -> None:
    assert never_ran(other) is None


def test_where_it_is_said() -> None:
    """The exit code stays."""
    result = BuildResult(project="p", config="etdev.toml", versions={}, targets=(target(ABSENT),))
    assert result.exit_code == ExitCode.DONE
    for detail in Detail.LINE, Detail.SHORT, Detail.FULL:
        lines = render_result(result, detail, io.StringIO()).splitlines()
        at = lines.index("  warning    no check ran the program: no CUDA device")
        assert lines[at + 1].lstrip().startswith("help: run `etdev verify gpu --device-map ")
        assert lines[-1] == "p: 1 target, 1 built but not run"
    (finding,) = of_result(result)
    assert (finding.rule, finding.level) == ("never-ran", "warning")
    assert finding.message == "target 'gpu': no check ran the program: no CUDA device"
    assert finding.hint is not None


def test_sizes_that_were_not_tried() -> None:
    """Several checks make the same calls, but one warning is enough."""
    untried = Failure(message="the largest sizes were not tried", where="etdev.toml:4:1: dims", hint="narrow them")
    replay, native = (
        CheckResult(name=name, status="passed", summary="fine", warnings=(untried,)) for name in ("replay", "native")
    )
    result = BuildResult(
        project="p", config="etdev.toml", versions={}, targets=(target(replay, answers={"native": native}),)
    )
    assert result.exit_code == ExitCode.DONE
    for detail in Detail.LINE, Detail.SHORT, Detail.FULL:
        lines = render_result(result, detail, io.StringIO()).splitlines()
        at = lines.index("  warning    the largest sizes were not tried")
        assert [line.strip() for line in lines[at + 1 : at + 3]] == ["at etdev.toml:4:1: dims", "help: narrow them"]
        assert lines[-1] == "p: 1 target, 1 good in the replay with 1 warning"
    (finding,) = of_result(result)
    assert (finding.rule, finding.level, finding.hint) == ("not-tried", "warning", "narrow them")
    assert finding.message == "target 'gpu': the largest sizes were not tried"
