"""Check *replay*: run the program in the interpreter, in the planned buffers, with poison in unused bytes.

The outputs are compared as in the check *runtime*. If the stock runtime also runs the program, *runtime* takes all
samples and the replay takes only a few. Otherwise only the replay runs the program.
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
"""Maximum number of instructions that are replayed over all samples. At least one sample is always replayed.

The first figure applies if the stock runtime also runs the program, the second if it does not.
"""
_CALLS_BESIDE = 4
"""Maximum number of session calls that are replayed if the stock runtime also runs the program."""


class ReplayCheck(Check):
    """Does etdev's interpreter, with poison in unused bytes, compute what PyTorch computes?"""

    name = "replay"
    needs = (Need.PROGRAM, Need.SOUND, Need.TORCH)

    def run(self, subject: Subject) -> CheckResult:
        """Run as many samples as :func:`effort` allows, and compare the outputs with eager PyTorch's.

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
    """Return how many samples and how many calls in sessions to replay; ``alone`` if the stock runtime cannot run them.

    The config's limits are judged here only if ``alone``. Otherwise the check *runtime* judges them, over all samples.
    """
    longest = max((len(plan.instructions) for plan in program.execution_plan), default=0)
    most = max((STEPS_ALONE if alone else STEPS_BESIDE) // max(longest, 1), 1)
    if alone:
        return Effort(samples=most, session_calls=most)
    return Effort(samples=most, session_calls=_CALLS_BESIDE, extremes=False, limits=False)
