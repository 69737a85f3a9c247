"""Stage *verify*: the checks of a built file. Each check has the answer ``passed``, ``failed`` or ``not run: REASON``.

A check that did not run is never reported as passed. Other packages can add checks through the entry-point group
``etdev.checks``. An entry point refers to an object or a class with the members of :class:`Check`. This module exports
all types and functions that the code of a check needs.
"""

from __future__ import annotations

from etdev.pipeline.results.result import CheckResult
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject

__all__ = ["BuiltTarget", "Check", "CheckResult", "Need", "Subject", "failed", "not_run", "passed"]
