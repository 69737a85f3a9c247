"""Flaws of a program, each with the path to the faulty field. Each level of nested tables adds its part of the path."""

from __future__ import annotations

from etdev.errors import ProgramError


class FlawError(Exception):
    """A flaw inside a program, with the path to the faulty field.

    Each function that raises the flaw again adds its own part of the path.
    """

    def __init__(self, message: str, *parts: str) -> None:
        """Create a flaw.

        ``parts`` are the last parts of the flaw's path, the innermost part last. Each part is the name of a field, or
        ``[INDEX]`` for an item of a vector.
        """
        super().__init__(message)
        self.message = message
        self._parts = list(reversed(parts))

    def within(self, *parts: str) -> FlawError:
        """Add outer parts to the path. Return this flaw."""
        self._parts.extend(reversed(parts))
        return self

    @property
    def path(self) -> str:
        """Return the path, such as ``execution_plan[0].values[17].tensor.sizes``."""
        return "".join(part if part[0] == "[" else f".{part}" for part in reversed(self._parts)).removeprefix(".")

    def as_error(self, where: str | None, hint: str | None = None) -> ProgramError:
        """Return the error that callers of this package receive for this flaw."""
        return ProgramError(self.message, path=self.path, where=where, hint=hint)
