"""Stage *verify*: the checks. Each answers ``passed``, ``failed`` or ``not run: REASON``.

A check that did not run is never reported as passed. The names here are for checks of other packages, which register
an object or a class with the members of :class:`Check` in the entry-point group ``etdev.checks``.
"""

from __future__ import annotations

from etdev.pipeline.results.result import CheckResult
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject

__all__ = ["BuiltTarget", "Check", "CheckResult", "Need", "Subject", "failed", "not_run", "passed"]
