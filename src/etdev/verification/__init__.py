"""Stage *verify*: the checks of a built file. Each check has the answer ``passed``, ``failed`` or ``not run: REASON``.

A check that did not run is never reported as passed. Other packages can add checks: in the entry-point group
``etdev.checks``, they register an object or a class with the members of :class:`Check`. The names that a check needs
can be imported from this module.
"""

from __future__ import annotations

from etdev.pipeline.results.result import CheckResult
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject

__all__ = ["BuiltTarget", "Check", "CheckResult", "Need", "Subject", "failed", "not_run", "passed"]
