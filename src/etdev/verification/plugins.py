"""Checks that other packages register in the entry-point group ``etdev.checks``."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import cast

from etdev.config.check_names import distribution_of, plugin_points
from etdev.errors import EtdevError, MissingRequirementError, VerifyError
from etdev.pipeline.results.result import CheckResult
from etdev.verification.check import Check
from etdev.verification.subject import Subject

_MEMBERS = ("name", "needs", "applies", "run")


def load_plugins() -> tuple[Check, ...]:
    """Return the checks of other packages, by name.

    Raises :class:`~etdev.errors.MissingRequirementError` for one that cannot be imported or is not a check.
    """
    return tuple(_Plugin(_load(point), distribution_of(point)) for point in plugin_points())


def _load(point: EntryPoint) -> Check:
    package = distribution_of(point)
    try:
        loaded = point.load()
        check = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise MissingRequirementError(
            f"the check {point.name!r} of {package!r} cannot be imported: {type(error).__name__}: {error}",
            hint=f"update or remove the package {package!r}",
        ) from error
    lacking = [name for name in _MEMBERS if not hasattr(check, name)]
    if lacking or check.name != point.name:
        reason = f"it lacks {', '.join(lacking)}" if lacking else f"its name is {check.name!r}"
        raise MissingRequirementError(
            f"{point.value!r}, which {package!r} registers as the check {point.name!r}, is not that check: {reason}",
            hint="a check has the members of etdev.verification.Check, and the name of its entry point",
        )
    return cast("Check", check)


class _Plugin(Check):
    """A check of another package. Its exceptions become errors that name the package."""

    def __init__(self, check: Check, package: str) -> None:
        self._check, self._package = check, package
        self.name, self.needs = check.name, check.needs

    def applies(self, subject: Subject) -> str | None:
        try:
            return self._check.applies(subject)
        except Exception as error:
            raise self._failed(error) from error

    def run(self, subject: Subject) -> CheckResult:
        try:
            found = self._check.run(subject)
            if not isinstance(found, CheckResult) or found.name != self.name:
                raise TypeError(f"`run` returned {found!r}, not a result of this check")
        except Exception as error:
            raise self._failed(error) from error
        return found

    def _failed(self, error: Exception) -> EtdevError:
        if isinstance(error, EtdevError):
            return error
        message = f"the check {self.name!r} of {self._package!r} failed: {type(error).__name__}: {error}"
        return VerifyError(message, hint=f"update or remove the package {self._package!r}")
