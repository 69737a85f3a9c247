"""Check *replay* for a file without a config: the outputs must not depend on unused bytes.

The program runs twice on the same random inputs: once with poison in all unused bytes, once without. The outputs differ
if the program reads bytes that it never wrote, or a value that was overwritten.
"""

from __future__ import annotations

from typing import Any

from etdev.errors import MissingRequirementError, UsageError
from etdev.execution.availability import named, simulated
from etdev.execution.random_inputs import random_inputs
from etdev.execution.runtimes import open_replay, replay_obstacle
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program.analysis.quantized_ends import quantized_ends
from etdev.program.devices import named_devices
from etdev.runtime.device_map import DeviceMap
from etdev.runtime.interpreter.settings import Bounds
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.compare import same_bits

_HINT = "relink the file with `etdev relink`, or run it on real inputs with `etdev run`"
_SEEDS = (1, 2)
"""Seeds of the inputs of each method's two calls; the second call continues from the state of the first call."""
_BOUNDS = Bounds(steps=200_000, memory=1 << 31)
"""Limits on instructions and memory when an untrusted file runs."""

Answers = dict[str, list[tuple[Any, ...]]]
"""Maps a method to a list with the outputs of each call."""


def replay_alone(program: Program, device_map: DeviceMap) -> CheckResult:
    """Run the check *replay* on a program without a config."""
    obstacle = replay_obstacle(program, device_map)
    if obstacle is not None:
        return not_run("replay", obstacle.reason, hint=obstacle.remedy)
    try:
        ends = quantized_ends(program)
        inputs = {
            plan.name: [random_inputs(plan, seed, ends.get(plan.name, ())) for seed in _SEEDS]
            for plan in program.execution_plan
        }
        poisoned, plain = (_answers(program, device_map, inputs, poison=poison) for poison in (True, False))
    except UsageError as error:
        return not_run("replay", error.message)
    except ProgramFailureError as error:
        problem = f"the replay failed on random inputs: {error}"
        return failed("replay", (problem,), hint=_HINT)
    except MissingRequirementError as error:
        return not_run("replay", error.message, hint=error.hint)
    problems = tuple(_differences(program, poisoned, plain))
    if problems:
        return failed("replay", problems, hint=_HINT)
    return passed("replay", _summary(program, poisoned, device_map))


def _answers(
    program: Program, device_map: DeviceMap, inputs: dict[str, list[tuple[Any, ...]]], *, poison: bool
) -> Answers:
    with open_replay(device_map, poison=poison, bounds=_BOUNDS) as runtime:
        runtime.load(program)
        return {
            plan.name: [
                runtime.call(plan.name, given, fresh=not number) for number, given in enumerate(inputs[plan.name])
            ]
            for plan in program.execution_plan
        }


def _differences(program: Program, one: Answers, other: Answers) -> list[str]:
    return [
        f"output {position} of method {plan.name!r} depends on unused bytes (call {number})"
        for plan in program.execution_plan
        for number, (first, second) in enumerate(zip(one[plan.name], other[plan.name], strict=True))
        for position, (found, again) in enumerate(zip(first, second, strict=True))
        if not same_bits(found, again)
    ]


def _summary(program: Program, answers: Answers, device_map: DeviceMap) -> str:
    outputs = [output for calls in answers.values() for call in calls for output in call]
    methods = len(program.execution_plan)
    parts = [f"{methods} method{'s' * (methods != 1)} on random inputs, same outputs with and without poison"]
    strange = sum(_has_nan(output) for output in outputs)
    if strange:
        parts.append(f"NaN in {strange} of {len(outputs)} outputs")
    mapped = simulated(named_devices(program), device_map)
    if mapped:
        parts.append(f"{named(mapped)} simulated")
    return "; ".join([*parts, "weak: the expected outputs are unknown"])


def _has_nan(output: Any) -> bool:
    return bool(hasattr(output, "isnan") and output.is_floating_point() and output.isnan().any())
