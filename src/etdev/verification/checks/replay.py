"""Check *replay*: run the program in the interpreter, in the planned buffers with poison in dead bytes.

The comparison is that of the check *runtime*. If the stock runtime also runs the program, *runtime* takes all samples
and the replay takes only a few. Otherwise only the replay runs the program.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etdev.execution.availability import named, simulated
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.runtime.device_map import DeviceMap
from etdev.verification.checks.runtime import check_runtime
from etdev.verification.subject import Effort, Subject

if TYPE_CHECKING:
    from etdev.runtime.replay import ReplayRuntime

STEPS_BESIDE, STEPS_ALONE = 2_000, 100_000
"""Most instructions of a method replayed over all samples, at least one sample.

The first figure applies if the stock runtime also runs the program, the second if it does not.
"""
_CALLS_BESIDE = 4
"""Most calls in sessions replayed if the stock runtime also runs the program."""


def check_replay(
    subject: Subject, program: Program, runtime: ReplayRuntime, device_map: DeviceMap, *, alone: bool
) -> CheckResult:
    """Run as many samples as :func:`effort` allows, and compare the outputs with eager PyTorch's.

    ``alone`` is true if nothing else runs the program.
    """
    check = check_runtime(replace(subject, effort=effort(program, alone=alone)), runtime, check="replay")
    mapped = simulated(named_devices(program), device_map)
    if check.status == "passed" and mapped:
        return check.model_copy(update={"summary": f"{check.summary}; {named(mapped)} simulated"})
    return check


def effort(program: Program, *, alone: bool) -> Effort:
    """Return how many samples and calls in sessions to replay.

    The config's limits are judged once, where all of them run.
    """
    longest = max((_length(plan) for plan in program.execution_plan), default=0)
    most = max((STEPS_ALONE if alone else STEPS_BESIDE) // max(longest, 1), 1)
    if alone:
        return Effort(samples=most, session_calls=most)
    return Effort(samples=most, session_calls=_CALLS_BESIDE, extremes=False, limits=False)


def _length(plan: m.ExecutionPlan) -> int:
    return sum(len(chain.instructions) for chain in plan.chains)
