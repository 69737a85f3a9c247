"""Findings of checks about a config's values, before positions are known."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.config.describe.notation import Example
from etdev.config.keys import KeyPath


@dataclass(frozen=True, slots=True)
class Issue:
    """Finding of a check about a value, before its position is known."""

    key: KeyPath
    message: str
    rule: str
    hint: str | Example | None = None


UNKNOWN_KEY = "unknown-key"
MISSING_KEY = "missing-key"
WRONG_TYPE = "wrong-type"
WRONG_VALUE = "wrong-value"
WRONG_NAME = "wrong-name"
"""Invalid name of the user's own (of a method, a target, …)."""
DUPLICATE = "duplicate"
REFERENCE = "reference"
"""Value that refers to something that does not exist."""
UNKNOWN_NAME = "unknown-name"
"""Name of a target, method, … that a profile or an override uses but no file defines."""
MISSING_FILE = "missing-file"
"""Value that names a file or a module that does not exist, or not yet."""
UNRUNNABLE_CHECK = "unrunnable-check"
"""A required check that cannot run for its target."""
CONFLICT = "conflict"
"""Two keys that exclude each other, or a key that needs another one."""

NOT_IN_PROFILE = "not-in-profile"
"""A key that a profile cannot hold."""

AT_KEY = frozenset({UNKNOWN_KEY, WRONG_NAME, UNKNOWN_NAME, NOT_IN_PROFILE})
"""Rules whose findings have the position of the key, not of its value."""
