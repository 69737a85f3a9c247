"""Interface of a check."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from etdev.pipeline.results.result import CheckResult
from etdev.verification.subject import Subject


class Need(Enum):
    """A precondition of a check. The value says why the check did not run if the precondition is not met."""

    CONFIG = "the config that the file was built from is needed"
    """The check needs the target with its config and models: :attr:`Subject.built`."""
    PROGRAM = "the check `bytes` failed"
    """The check needs the content of the file: :attr:`Subject.program`."""
    SOUND = "a check before it failed, so nothing is run"
    """The check runs the program, so earlier checks must not have found it unsafe to run."""
    TORCH = "torch is not installed"
    """The check needs the package torch. A build always has it."""


class Check(Protocol):
    """A question about a built file. A subclass inherits the defaults."""

    name: str
    """Name in results, in the config's ``require`` and of the entry point. It never changes."""
    needs: Sequence[Need] = ()
    """Preconditions of the check. If one is not met, the check does not run."""

    def applies(self, subject: Subject) -> str | None:
        """Return the reason why there is nothing to check; None if the check applies."""
        return None

    def run(self, subject: Subject) -> CheckResult:
        """Answer the check. Called only if its needs are met and it applies."""
