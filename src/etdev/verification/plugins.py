"""Checks that other packages register in the entry-point group ``etdev.checks``."""

from __future__ import annotations

from typing import cast

from etdev import plugins
from etdev.errors import MissingRequirementError, VerifyError
from etdev.pipeline.results.result import CheckResult
from etdev.plugins import CHECKS
from etdev.verification.check import Check
from etdev.verification.subject import Subject

_MEMBERS = ("name", "needs", "applies", "run")


def load_plugins() -> tuple[Check, ...]:
    """Return the checks of other packages, sorted by name.

    Raises :class:`~etdev.errors.MissingRequirementError` if a check cannot be imported or is not a valid check.
    """
    return tuple(_Plugin(_load(name)) for name in plugins.registered(CHECKS))


def _load(name: str) -> Check:
    loaded = plugins.load(CHECKS, name, _MEMBERS)
    with plugins.translated(CHECKS, name, MissingRequirementError):
        check = loaded() if isinstance(loaded, type) else loaded
    if check.name != name:
        raise MissingRequirementError(
            f"the entry point {name!r} in {plugins.package_of(CHECKS, name)!r} provides a check with another name: "
            f"{check.name!r}",
            hint=CHECKS.contract,
        )
    return cast("Check", check)


class _Plugin(Check):
    """Wrapper of another package's check. The message of an unexpected error names the package."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self.name, self.needs = check.name, check.needs

    def applies(self, subject: Subject) -> str | None:
        with plugins.translated(CHECKS, self.name, VerifyError):
            return self._check.applies(subject)

    def run(self, subject: Subject) -> CheckResult:
        with plugins.translated(CHECKS, self.name, VerifyError):
            found = self._check.run(subject)
            if not isinstance(found, CheckResult) or found.name != self.name:
                raise TypeError(f"`run` returned {found!r} instead of a result of this check")
        return found
