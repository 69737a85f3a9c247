"""Checks that run a program: in the stock runtime, in the replay, and on its devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etdev.config.models import CheckName
from etdev.errors import EtdevError, ExitCode
from etdev.execution.runtimes import Runtime, open_replay, replay_obstacle, stock_obstacle
from etdev.pipeline.project.runtime_contents import Requirements
from etdev.pipeline.results.result import NO_METRIC, CheckResult
from etdev.program import Program
from etdev.runtime.device_map import DeviceMap
from etdev.runtime.stock import ProgramFailureError, StockRuntime
from etdev.verification.checks.accuracy import check_accuracy
from etdev.verification.checks.device import check_device
from etdev.verification.checks.latency import check_latency
from etdev.verification.checks.replay import check_replay
from etdev.verification.checks.runtime import check_runtime
from etdev.verification.jobs import jobs_for
from etdev.verification.subject import Subject

if TYPE_CHECKING:
    from etdev.pipeline.stages.link import LinkedProgram
    from etdev.runtime.interpreter.kernels import InPlaceTable


def run_program(
    subject: Subject,
    program: Program,
    required: Requirements,
    stock: StockRuntime,
    device_map: DeviceMap,
    linked: LinkedProgram | None,
    inplace: InPlaceTable,
) -> dict[CheckName, CheckResult]:
    """Run the checks *runtime*, *replay*, *device*, *accuracy* and *latency*.

    ``inplace`` is the table of kernels that the program was linked with. The metric runs in the stock runtime. If that
    cannot run the program, the metric runs in the replay, provided that the check *replay* passed.
    """
    obstacle = stock_obstacle(program, required, stock)
    if obstacle is None:
        runtime = _load(subject, stock, "runtime") or check_runtime(subject, stock)
    else:
        runtime = _not_run("runtime", obstacle)
    accuracy = _accuracy(subject, program, stock, runtime) if obstacle is None else _not_run("accuracy", obstacle)
    latency = check_latency(subject, stock, runtime, obstacle)
    answers: dict[CheckName, CheckResult] = {"runtime": runtime, "accuracy": accuracy, "latency": latency}
    answers |= _replayed(subject, program, device_map, inplace, alone=obstacle is not None)
    answers["device"] = _located(
        subject,
        check_device(
            program,
            device_map,
            answers["replay"],
            alignment=subject.project.config.targets[subject.target].memory.alignment,
            inputs=None if linked is None else linked.delegate_inputs,
        ),
    )
    return answers


def _replayed(
    subject: Subject, program: Program, device_map: DeviceMap, inplace: InPlaceTable, *, alone: bool
) -> dict[CheckName, CheckResult]:
    """Run the check *replay*, and *accuracy* if only the replay can run the program and it passed."""
    obstacle = replay_obstacle(program, device_map)
    if obstacle is not None:
        return {"replay": obstacle.result}
    try:
        with open_replay(device_map, inplace) as replay:
            check = _load(subject, replay, "replay")
            check = check or check_replay(subject, program, replay, device_map, alone=alone)
            answers: dict[CheckName, CheckResult] = {"replay": check}
            if alone and check.status == "passed":
                answers["accuracy"] = _accuracy(subject, program, replay, check)
            return answers
    except EtdevError as error:
        if error.exit_code is not ExitCode.ENVIRONMENT:
            raise
        return {"replay": CheckResult(name="replay", status="not run", summary=error.message, lacking=True)}


def _load(subject: Subject, runtime: Runtime, check: CheckName) -> CheckResult | None:
    """Load the file; return a failed check if that fails or if its methods are not those of the config."""
    declared = sorted({*subject.reference.signatures, *subject.reference.constants})
    try:
        found = sorted(subject.load(runtime))
    except ProgramFailureError as error:
        problem = f"the {check} refuses the file: {error}"
    else:
        if found == declared:
            return None
        problem = f"the file has the methods {', '.join(found)}, the config declares {', '.join(declared)}"
    return CheckResult(
        name=check,
        status="failed",
        summary=problem,
        problems=(problem,),
        where=subject.project.where("targets", subject.target),
        hint=f"build it again: `etdev build {subject.target}`",
    )


def _accuracy(subject: Subject, program: Program, runtime: Runtime, before: CheckResult) -> CheckResult:
    """Run the metric in a runtime; ``before`` is the result of the check that compared the program there."""
    gate = subject.settings.accuracy
    if gate is None:
        return _not_run("accuracy", NO_METRIC)
    if before.status == "failed" and not before.gate:
        return _not_run("accuracy", f"the check `{before.name}` failed")
    project = subject.project
    subject.load(runtime, shared=project.config.model.share_state)
    alone = before.name == "replay"
    with jobs_for(subject, program, alone=alone) as jobs:
        check = check_accuracy(
            project, subject.user, subject.target, gate, subject.reference, runtime, jobs, subject.count
        )
    how = f"{', by the replay' if alone else ''}{jobs.effect}"
    return check.model_copy(update={"summary": f"{check.summary}{how}"})


def _located(subject: Subject, check: CheckResult) -> CheckResult:
    """Return the check *device*, with a location and help if it failed."""
    if check.status != "failed":
        return check
    where = subject.project.where("targets", subject.target, "partitioners")
    hint = (
        check.hint or "look whether others use the device (`nvidia-smi`), and whether another device behaves the same"
    )
    return check.model_copy(update={"where": where, "hint": hint})


def _not_run(check: CheckName, reason: str) -> CheckResult:
    return CheckResult(name=check, status="not run", summary=reason)
