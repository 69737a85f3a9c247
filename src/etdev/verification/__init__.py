"""Stage *verify*: the checks. Each answers ``passed``, ``failed`` or ``not run: REASON``.

A check that did not run is never reported as passed. Other packages can add checks: in the entry-point group
``etdev.checks``, they register an object or a class with the members of :class:`Check`. They import what a check needs
from this module.
"""

from __future__ import annotations

from etdev.pipeline.results.result import CheckResult
from etdev.verification.answers import failed, not_run, passed
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject

__all__ = ["BuiltTarget", "Check", "CheckResult", "Need", "Subject", "failed", "not_run", "passed"]
