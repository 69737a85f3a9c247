"""Check *replay*: run the program in the interpreter, in the planned buffers with poison in dead bytes.

The comparison is that of the check *runtime*. If the stock runtime also runs the program, *runtime* takes all samples
and the replay takes only a few. Otherwise only the replay runs the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.pipeline.result import CheckResult
from etdev.pipeline.verify.devices import absent, named, remedy, simulated
from etdev.pipeline.verify.runtime import check_runtime
from etdev.pipeline.verify.subject import Effort, Subject
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.program.inplace import DEFAULT
from etdev.runtime.device_map import DeviceMap

if TYPE_CHECKING:
    from etdev.runtime.interpreter.kernels import InPlaceTable
    from etdev.runtime.interpreter.settings import Bounds
    from etdev.runtime.replay import ReplayRuntime

STEPS_BESIDE, STEPS_ALONE = 2_000, 100_000
"""Most instructions of a method replayed over all samples, at least one sample.

The first figure applies if the stock runtime also runs the program, the second if it does not.
"""
_CALLS_BESIDE = 4
"""Most calls in sessions replayed if the stock runtime also runs the program."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A reason why a program cannot be replayed here, and the remedy."""

    reason: str
    remedy: str | None = None

    @property
    def result(self) -> CheckResult:
        """Result of the check: ``not run``, with the reason and the remedy."""
        return CheckResult(name="replay", status="not run", summary=self.reason, hint=self.remedy)


def replay_obstacle(program: Program, device_map: DeviceMap) -> Obstacle | None:
    """Return why the program cannot be replayed here; None if it can."""
    problem = torch_obstacle()
    if problem is not None:
        return Obstacle(problem)
    from etdev.runtime.replay import missing_executors, missing_kernels

    delegates = missing_executors(program)  # Checked first: without executors, no device would help.
    if delegates:
        return Obstacle(f"{', '.join(delegates)} cannot be replayed: nothing here executes its blobs")
    devices = named_devices(program)
    reason = absent(devices, device_map)
    if reason is not None:
        return Obstacle(reason, remedy(devices))
    operators = missing_kernels(program)
    return Obstacle(f"the replay has no kernel for {', '.join(operators)}") if operators else None


def torch_obstacle() -> str | None:
    """Return why torch is not available; None if it is."""
    package = find_packages("torch", remedy=BUILD_EXTRA)
    if not package.available:
        return f"{package.reason}; `{package.remedy}` brings it"
    try:
        import torch  # noqa: F401
    except ImportError as error:
        return f"the package 'torch' cannot be imported: {error}"
    return None


def open_replay(
    device_map: DeviceMap, inplace: InPlaceTable = DEFAULT, *, poison: bool = True, bounds: Bounds | None = None
) -> ReplayRuntime:
    """Return the interpreter.

    ``inplace`` is the table of kernels that the program was linked with, in addition to etdev's own.
    """
    from etdev.runtime.replay import ReplayRuntime

    return ReplayRuntime(device_map, inplace={**DEFAULT, **inplace}, poison=poison, bounds=bounds)


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
