"""All checks of a file, and the order in which they run."""

from __future__ import annotations

from etdev.config.check_names import check_names
from etdev.execution.runtimes import torch_obstacle
from etdev.pipeline.project import Project
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.reasons import NOT_VERIFIED
from etdev.pipeline.results.result import CheckResult
from etdev.verification.answers import not_run
from etdev.verification.check import Check, Need
from etdev.verification.checks.accuracy import AccuracyCheck
from etdev.verification.checks.budget import BudgetCheck
from etdev.verification.checks.bytes import BytesCheck
from etdev.verification.checks.device import DeviceCheck
from etdev.verification.checks.growth import GrowthCheck
from etdev.verification.checks.kernels import KernelsCheck
from etdev.verification.checks.latency import LatencyCheck
from etdev.verification.checks.native import NativeCheck
from etdev.verification.checks.placement import PlacementCheck
from etdev.verification.checks.plan import PlanCheck
from etdev.verification.checks.replay import ReplayCheck
from etdev.verification.checks.runtime import RuntimeCheck
from etdev.verification.checks.tosa import TosaCheck
from etdev.verification.plugins import load_plugins
from etdev.verification.subject import Subject

BUILT_IN: tuple[Check, ...] = (
    BytesCheck(),
    PlanCheck(),
    PlacementCheck(),
    KernelsCheck(),
    BudgetCheck(),
    GrowthCheck(),
    RuntimeCheck(),
    ReplayCheck(),
    TosaCheck(),
    NativeCheck(),
    DeviceCheck(),
    AccuracyCheck(),
    LatencyCheck(),
)
"""Checks of etdev, in the order in which they run and are reported."""


def verify(subject: Subject) -> tuple[CheckResult, ...]:
    """Run all checks on a file: first the checks of etdev, then the checks of other packages.

    Raises :class:`~etdev.errors.VerifyError` if the user's samples, metric or eager model fail. Also raises it if a
    check of another package raises an error.
    """
    for check in (*BUILT_IN, *load_plugins()):
        subject.results[check.name] = _answer(check, subject)
    return tuple(subject.results.values())


def unverified() -> tuple[CheckResult, ...]:
    """Return the result ``not run`` for each check, for a file that is not verified."""
    return tuple(not_run(name, NOT_VERIFIED) for name in check_names())


def _answer(check: Check, subject: Subject) -> CheckResult:
    """Return the result of a check; it is ``not run`` if a need is not met or the check does not apply."""
    missing = filter(None, (_missing(need, subject) for need in check.needs))
    reason = next(missing, None) or check.applies(subject)
    return check.run(subject) if reason is None else not_run(check.name, reason)


def _missing(need: Need, subject: Subject) -> str | None:
    """Return the reason why a need is not met; None if the need is met."""
    match need:
        case Need.CONFIG:
            lacks = subject.origin is None
        case Need.PROGRAM:
            lacks = subject.found is None
        case Need.SOUND:
            lacks = subject.origin is None and subject.broken("bytes", "plan", "placement")
        case Need.TORCH:
            return torch_obstacle()
    return need.value if lacks else None


def prepare(project: Project, user: UserCode, target: str) -> None:
    """Load the checks, samples, sessions and metric that verification will use, to report missing ones early.

    Raises :class:`~etdev.errors.MismatchError` for a function that does not exist, with the location of its config key.
    Raises :class:`~etdev.errors.MissingRequirementError` for a check of another package that cannot be loaded.
    """
    load_plugins()
    wanted: dict[tuple[str, ...], str] = {
        ("methods", name, "samples"): method.samples
        for name, method in project.config.methods.items()
        if method.samples is not None
    }
    settings = project.config.targets[target].verify
    if settings.accuracy is not None:
        wanted["targets", target, "verify", "accuracy", "fn"] = settings.accuracy.fn
    if settings.sessions is not None:
        wanted["targets", target, "verify", "sessions"] = settings.sessions
    for key, entry in wanted.items():
        user.get(entry, project.base(*key), project.where(*key))
