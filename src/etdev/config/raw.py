"""Access to the raw data of a config. Raw data is not validated, so any value may have a wrong type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etdev.config.describe.notation import Example
from etdev.config.issues import Issue
from etdev.config.keys import KeyPath, format_key, nearest
from etdev.config.layers import lookup


@dataclass(frozen=True, slots=True)
class Raw:
    """A value of the merged raw data, with its key; the value may have the wrong type or be absent.

    Checks ignore values of the wrong type, because the models report them.
    """

    value: Any
    """Raw value; None if the key is absent."""
    path: KeyPath = ()

    def __getitem__(self, part: str | int) -> Raw:
        return Raw(lookup(self.value, (part,))[1], (*self.path, part))

    def __contains__(self, key: object) -> bool:
        return key in self.table

    def __str__(self) -> str:
        return format_key(self.path)

    @property
    def name(self) -> str:
        """Last part of the key."""
        return str(self.path[-1])

    @property
    def table(self) -> Mapping[str, Any]:
        """The value if it is a table, else an empty table."""
        return self.value if isinstance(self.value, Mapping) else {}

    @property
    def tables(self) -> Iterator[Raw]:
        """Entries of this table whose values are tables."""
        return (self[name] for name, value in self.table.items() if isinstance(value, Mapping))

    @property
    def elements(self) -> list[Raw]:
        """Elements of this list; empty for other values."""
        return [self[index] for index in range(len(self.value))] if isinstance(self.value, list) else []

    @property
    def children(self) -> list[Raw]:
        """Entries of this table, or elements of this list."""
        return [*map(self.__getitem__, self.table), *self.elements]

    def lacks(self, key: str) -> bool:
        """Return True if this table has neither the key nor a similar key.

        A similar key is probably a misspelling, which the models report.
        """
        return nearest(key, self.table) is None

    def is_settled(self, key: str) -> bool:
        """Return True if the key's value is a table, or if this table lacks the key.

        Return False for a value of another type. Also return False if this table has a similar key, which is probably a
        misspelling.
        """
        return isinstance(self.table[key], Mapping) if key in self else self.lacks(key)

    def range(self, least: str, most: str) -> tuple[object, object]:
        """Return the values of the keys ``least`` and ``most``, the bounds of a range.

        Return ``(None, None)`` if a bound is a boolean.
        """
        values = self.table.get(least), self.table.get(most)
        return (None, None) if any(isinstance(value, bool) for value in values) else values

    def issue(self, text: str, rule: str, hint: str | Example | None = None, *, at: str | None = None) -> Issue:
        """Return an issue about this value, or about the key ``at`` in this table.

        The message is this value's key followed by ``text``, such as ``is missing`` or ``: a reason``.
        """
        message = f"`{self}`{text}" if text.startswith(":") else f"`{self}` {text}"
        return Issue(self.path if at is None else (*self.path, at), message, rule, hint)


Check = Callable[[Raw], Iterable[Issue]]
"""A function that checks the merged raw data and returns the issues."""


def listed(what: str, names: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return the hint ``WHAT here: NAME, NAME``; return ``otherwise`` if there are no names."""
    return f"{what} here: {', '.join(names)}" if names else otherwise
