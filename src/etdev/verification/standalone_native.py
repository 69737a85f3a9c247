"""Native run of a file that has no config, for the check *device*.

ExecuTorch's C++ runtime allocates the program's memory on the devices and copies data to it. Each call runs on random
inputs. The outputs must equal those of etdev's interpreter on simulated devices, within the default tolerances.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etdev.errors import MissingRequirementError, UsageError
from etdev.execution.native import open_native
from etdev.execution.random_inputs import random_inputs
from etdev.execution.runtimes import open_replay, replay_obstacle
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.runtime.device_map import SIMULATED, DeviceMap
from etdev.runtime.interpreter.settings import Bounds
from etdev.runtime.stock import ProgramFailureError
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.checks.native import WitnessedRuntime
from etdev.verification.compare import Difference

_CALLS = 2
"""Number of calls of each method; the second call continues from the state of the first call."""
_BOUNDS = Bounds(steps=200_000, memory=1 << 31)
"""Limits on instructions and memory of the interpreter when an untrusted file runs."""

_Inputs = dict[str, list[tuple[Any, ...]]]
"""Maps a method to a list with the inputs of each call."""


def native_alone(path: Path, data: Sequence[Path], program: Program, device_map: DeviceMap) -> CheckResult:
    """Run a program in the native runtime, and return the result of the check *native*.

    The program runs on the devices of ``device_map``. ``path`` and ``data`` are the files of ``program``.
    """
    on_simulated = dict.fromkeys(named_devices(program), SIMULATED)
    obstacle = replay_obstacle(program, on_simulated)
    if obstacle is not None:
        return not_run("native", f"the expected outputs are not known: {obstacle.reason}", hint=obstacle.remedy)
    try:
        inputs: _Inputs = {
            plan.name: [random_inputs(plan, seed) for seed in range(_CALLS)] for plan in program.execution_plan
        }
        with open_native(program, device_map) as native, open_replay(on_simulated, bounds=_BOUNDS) as replay:
            witnessed = WitnessedRuntime(program, native, None)
            witnessed.load(path, data=data)
            replay.load(program)
            problems = [
                problem
                for name, calls in inputs.items()
                for number, given in enumerate(calls)
                for problem in _differences(
                    f"call {number} of method {name!r}",
                    witnessed.call(name, given, fresh=not number),
                    replay.call(name, given, fresh=not number),
                )
            ]
    except UsageError as error:
        return not_run("native", error.message)
    except MissingRequirementError as error:
        return not_run("native", error.message, hint=error.hint)
    except ProgramFailureError as error:
        return failed("native", (f"the program failed on random inputs: {error}",))
    if problems:
        return failed("native", tuple(problems))
    count = sum(map(len, inputs.values()))
    return passed("native", f"{count} calls on random inputs, outputs equal to the interpreter's within tolerance")


def _differences(call: str, found: Sequence[Any], expected: Sequence[Any]) -> list[str]:
    problems = []
    for position, (value, wanted) in enumerate(zip(found, expected, strict=True)):
        difference = Difference(str(getattr(wanted, "dtype", "")).removeprefix("torch."))
        difference.add(value, wanted, call)
        problems += [f"output {position}: {problem}" for problem in difference.problems]
        if difference.whole and difference.agreement.differing:
            problems.append(f"output {position}: {difference.agreement} ({call})")
        if difference.excess > 0:
            problems.append(f"output {position} has an error of {difference.max_abs_error:.3g} ({call})")
    return problems
