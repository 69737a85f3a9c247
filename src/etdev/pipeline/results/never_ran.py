"""Warnings about targets that passed verification although no check ran their programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from etdev.pipeline.results.reasons import NOT_VERIFIED

if TYPE_CHECKING:
    from etdev.pipeline.results.result import TargetResult

RUNNING = ("runtime", "replay", "native", "device")
"""Names of the checks that run the program."""


@dataclass(frozen=True, slots=True)
class NeverRan:
    """A warning that no check ran a target's program."""

    message: str
    hint: str


def never_ran(target: TargetResult) -> NeverRan | None:
    """Return a warning if no check ran a target's program; None if no warning is needed.

    No warning is needed in three cases: a check ran the program; a required check did not run, which is an error
    already; or ``--no-verify`` turned checks off.
    """
    checks = {check.name: check for check in target.checks if check.name in RUNNING}
    if (
        target.status == "rejected"
        or not {"runtime", "replay"} <= checks.keys()
        or any(check.status != "not run" or check in target.unmet for check in checks.values())
        or checks["replay"].summary == NOT_VERIFIED
    ):
        return None
    replay = checks["replay"]
    devices = next((check.devices for check in target.checks if check.name == "bytes"), None) or ()
    reasons = dict.fromkeys([replay.summary] if devices else [checks["runtime"].summary, replay.summary])
    hint = _on_other_devices(target, devices) if replay.hint is not None else _in_another_runtime(target)
    return NeverRan(f"no check ran the program: {'; '.join(reasons)}", hint)


def _on_other_devices(target: TargetResult, devices: tuple[str, ...]) -> str:
    simulated = ",".join(f"{device}=sim" for device in devices)
    command = f"etdev verify {target.name}"
    return (
        f"run `{command} --device-map {simulated}` to run it on simulated devices, or `{command}` on a machine "
        f"that has {' and '.join(devices)}"
    )


def _in_another_runtime(target: TargetResult) -> str:
    """Return advice with a command that runs the target in ExecuTorch's ``executor_runner``.

    ``executor_runner`` accepts only one data file. For several data files, the advice first puts the files into the
    program.
    """
    program = PurePath(target.artifact)
    names = [str(program.with_name(item.name)) for item in target.data]
    delegates = {name for method in target.methods for name in method.delegate_calls}
    needs = f" built with {', '.join(sorted(delegates))}" if delegates else ""
    if len(names) < 2:
        data = f" --data_path {names[0]}" if names else ""
        return f"ExecuTorch's own runtime{needs} can run it: `executor_runner --model_path {program}{data}`"
    joined = program.with_name(f"{program.stem}-joined.pte")
    files = " ".join(f"--data {name}" for name in names)
    return (
        f"ExecuTorch's own runtime{needs} can run it: `etdev relink {program} {files} -o {joined}`, then "
        f"`executor_runner --model_path {joined}`"
    )
