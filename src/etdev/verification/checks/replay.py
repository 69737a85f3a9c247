"""Check *replay*: runs the program in the interpreter, in the planned buffers, with poison in unused bytes.

The outputs are compared like in the check *runtime*. If the stock runtime also runs the program, *runtime* uses all
samples and the replay uses only a few. Otherwise only the replay runs the program.
"""

from __future__ import annotations

from dataclasses import replace

from etdev.errors import MissingRequirementError
from etdev.execution.availability import named, simulated
from etdev.execution.runtimes import open_replay, replay_obstacle
from etdev.pipeline.results.result import CheckResult
from etdev.program import Program
from etdev.program.devices import named_devices
from etdev.verification.answers import not_run
from etdev.verification.check import Check, Need
from etdev.verification.checks.runtime import compare_with_model
from etdev.verification.standalone_replay import replay_alone
from etdev.verification.subject import Effort, Subject

STEPS_BESIDE, STEPS_ALONE = 2_000, 100_000
"""Maximum number of instructions to replay, over all samples; at least one sample is always replayed.

The first number applies if the stock runtime also runs the program, the second if it does not.
"""
_CALLS_BESIDE = 4
"""Maximum number of session calls to replay if the stock runtime also runs the program."""


class ReplayCheck(Check):
    """Does etdev's interpreter, with poison in unused bytes, compute the same as PyTorch?"""

    name = "replay"
    needs = (Need.PROGRAM, Need.SOUND, Need.TORCH)

    def run(self, subject: Subject) -> CheckResult:
        """Run as many samples as :func:`effort` allows, and compare the outputs with those of eager PyTorch.

        A file without a config runs on random inputs.
        """
        program, device_map, built = subject.program, subject.device_map, subject.origin
        if built is None:
            return replay_alone(program, device_map)
        obstacle = replay_obstacle(program, device_map)
        if obstacle is not None:
            return not_run(self.name, obstacle.reason, hint=obstacle.remedy)
        built = replace(built, effort=effort(program, alone=subject.stock_obstacle is not None))
        mapped = simulated(named_devices(program), device_map)
        note = f"; {named(mapped)} simulated" if mapped else ""
        try:
            with open_replay(device_map, built.inplace) as replay:
                return compare_with_model(self.name, built, replay, note)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, lacking=True)


def effort(program: Program, *, alone: bool) -> Effort:
    """Return the numbers of samples and session calls to replay, and the limits to check.

    ``alone`` is True if the stock runtime cannot run the program. Only then does the replay check the config's limits.
    Otherwise the check *runtime* does this, over all samples.
    """
    longest = max((len(plan.instructions) for plan in program.execution_plan), default=0)
    most = max((STEPS_ALONE if alone else STEPS_BESIDE) // max(longest, 1), 1)
    if alone:
        return Effort(samples=most, session_calls=most)
    return Effort(samples=most, session_calls=_CALLS_BESIDE, extremes=False, limits=False)
