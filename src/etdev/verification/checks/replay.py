"""Check *replay*: runs the program in the interpreter, in the planned buffers, with poison in unused bytes.

The outputs are compared as in the check *runtime*. The check *runtime* uses all samples. If the
stock runtime can run the program, the replay uses only a few samples.
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
from etdev.verification.tosa.own_ops import own_ops_executors

STEPS_BESIDE, STEPS_ALONE = 1_000, 100_000
"""Maximum number of instructions to replay, over all samples. At least one sample is always replayed.

``STEPS_BESIDE`` applies if the stock runtime also runs the program. ``STEPS_ALONE`` applies if only the replay runs the
program.
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
        own = own_ops_executors(program, built.records)
        obstacle = replay_obstacle(program, device_map, own)
        if obstacle is not None:
            return not_run(self.name, obstacle.reason, hint=obstacle.remedy)
        built = replace(built, effort=effort(program, alone=subject.stock_obstacle is not None))
        mapped = simulated(named_devices(program), device_map)
        note = f"; {named(mapped)} simulated" if mapped else ""
        note += f"; {', '.join(own)} replaced by the kernels of its ops" if own else ""
        try:
            with open_replay(device_map, built.inplace, others=own) as replay:
                return compare_with_model(self.name, built, replay, note)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint, lacking=True)


def effort(program: Program, *, alone: bool) -> Effort:
    """Return the extent of the replay: the number of samples and of session calls, and the limits to check.

    ``alone`` is True if the stock runtime cannot run the program. Otherwise, the replay does not check the config's
    limits, because the check *runtime* checks them over all samples.
    """
    longest = max((len(plan.instructions) for plan in program.execution_plan), default=0)
    most = max((STEPS_ALONE if alone else STEPS_BESIDE) // max(longest, 1), 1)
    if alone:
        return Effort(samples=most, session_calls=most)
    return Effort(samples=most, session_calls=_CALLS_BESIDE, extremes=False, limits=False)
