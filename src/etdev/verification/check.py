"""Interface of a check."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from etdev.pipeline.results.result import CheckResult
from etdev.verification.subject import Subject


class Need(Enum):
    """A precondition of a check. Its value is the reason that etdev reports if the precondition is not met."""

    CONFIG = "this check needs the config that the file was built from"
    """The check needs the target with its config and models: :attr:`Subject.built`."""
    PROGRAM = "the check `bytes` failed"
    """The check needs the content of the file: :attr:`Subject.program`."""
    SOUND = "an earlier check failed, so the program is not run"
    """The check executes the program, so it must not run if an earlier check found the program unsafe."""
    TORCH = "torch is not installed"
    """The check needs the package torch, which is always available in a build."""


class Check(Protocol):
    """A check of a built file. Subclasses inherit the defaults of ``needs`` and :meth:`applies`."""

    name: str
    """Name of the check in results, in the config's ``require`` and in the entry point. The name must never change."""
    needs: Sequence[Need] = ()
    """Preconditions of the check; if one of them is not met, the check does not run."""

    def applies(self, subject: Subject) -> str | None:
        """Return the reason why there is nothing to check for this file; None if the check can run."""
        return None

    def run(self, subject: Subject) -> CheckResult:
        """Run the check, and return its result. Called only if all needs are met and :meth:`applies` returns None."""
