"""Issues that checks find in a config's values, before the positions of the values in files are known."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.config.describe.notation import Example
from etdev.config.keys import KeyPath


@dataclass(frozen=True, slots=True)
class Issue:
    """A problem with a value, before the position of the value in a file is known."""

    key: KeyPath
    message: str
    rule: str
    hint: str | Example | None = None


UNKNOWN_KEY = "unknown-key"
MISSING_KEY = "missing-key"
WRONG_TYPE = "wrong-type"
WRONG_VALUE = "wrong-value"
WRONG_NAME = "wrong-name"
"""Rule for an invalid name that the user chose, such as the name of a method or a target."""
DUPLICATE = "duplicate"
REFERENCE = "reference"
"""Rule for a reference to something that does not exist, such as a method that the config does not declare."""
UNKNOWN_NAME = "unknown-name"
"""Rule for an undefined name in a profile or an override, such as a target that no config file defines."""
MISSING_FILE = "missing-file"
"""Rule for a reference to a file or module that does not exist yet."""
UNRUNNABLE_CHECK = "unrunnable-check"
"""Rule for a required check that cannot run for its target."""
UNMEASURED_LIMIT = "not-judged"
"""Rule for a limit that a build on this machine does not check. Findings of verification have the same rule."""
NOT_QUANTIZED = "not-quantized"
"""Rule for a backend that takes only quantized ops, in a target without quantization."""
EMPTY_INPUT = "empty-input"
"""Rule for an input whose shape has a size of 0."""
CONFLICT = "conflict"
"""Rule for two keys that cannot be used together, and for a key that requires another key."""

NOT_IN_PROFILE = "not-in-profile"
"""Rule for a key that is not allowed in a profile."""

AT_KEY = frozenset({UNKNOWN_KEY, WRONG_NAME, UNKNOWN_NAME, NOT_IN_PROFILE})
"""Rules whose issues are reported at the position of the key. Other issues are reported at the position of the value.
"""
