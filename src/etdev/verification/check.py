"""The contract of a check."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from etdev.pipeline.results.result import CheckResult
from etdev.verification.subject import Subject


class Need(Enum):
    """A part of a subject that a check cannot do without."""

    CONFIG = "the config that the file was built from is needed"
    """The target with its config and models: :attr:`Subject.built`."""
    PROGRAM = "the check `bytes` failed"
    """The content of the file: :attr:`Subject.program`."""
    SOUND = "a check before it failed, so nothing is run"
    """A program that may be run: a target's own, or one whose memory plan no check has refused."""
    TORCH = "torch is not installed"
    """The package torch. A build always has it."""


class Check(Protocol):
    """A question about a built file. A subclass inherits the defaults."""

    name: str
    """Name in results, in ``require`` and in the entry point. It never changes."""
    needs: Sequence[Need] = ()
    """Parts of the subject that the check uses. If one is missing, the check does not run."""

    def applies(self, subject: Subject) -> str | None:
        """Return the reason why there is nothing to check; None if the check applies."""
        return None

    def run(self, subject: Subject) -> CheckResult:
        """Answer the check. Called if no need is missing and the check applies."""
