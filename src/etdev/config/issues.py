"""What checks find wrong with a config's values, before positions are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from etdev.config.keys import KeyPath
from etdev.config.notation import Example


@dataclass(frozen=True, slots=True)
class Issue:
    """What a check found wrong with a value, before its position is known."""

    key: KeyPath
    message: str
    rule: str
    hint: str | Example | None = None


Check = Callable[[Mapping[str, Any]], Iterable[Issue]]
"""Looks at the merged raw data (which may be wrong anywhere: a check passes over what it cannot use)."""

UNKNOWN_KEY = "unknown-key"
MISSING_KEY = "missing-key"
WRONG_TYPE = "wrong-type"
WRONG_VALUE = "wrong-value"
WRONG_NAME = "wrong-name"
"""A name of the user's own (of a method, a target, …) that is not spelled as names are."""
DUPLICATE = "duplicate"
REFERENCE = "reference"
"""A value that names something which is not there."""
UNKNOWN_NAME = "unknown-name"
"""A profile or an override uses a name of a target, method, … that no file defines."""
MISSING_FILE = "missing-file"
"""A value that names a file or a module that is not there, or not yet."""
UNRUNNABLE_CHECK = "unrunnable-check"
"""A required check that cannot run for its target."""
CONFLICT = "conflict"
"""Two keys that exclude each other, or one that another needs."""

NOT_IN_PROFILE = "not-in-profile"
"""A key that a profile cannot hold."""

AT_KEY = frozenset({UNKNOWN_KEY, WRONG_NAME, UNKNOWN_NAME, NOT_IN_PROFILE})
"""Rules whose position is that of the key, not of its value."""
