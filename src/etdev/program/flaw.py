"""What is wrong with a program, and where; the path is put together on the way out of the nested tables."""

from __future__ import annotations

from etdev.errors import ProgramError


class FlawError(Exception):
    """A flaw found somewhere inside a program. Whoever passes it on says what it was looking at."""

    def __init__(self, message: str, *parts: str) -> None:
        """``parts`` are the innermost names, outer ones first: a field, or ``[INDEX]`` for an item of the vector."""
        super().__init__(message)
        self.message = message
        self._parts = list(reversed(parts))

    def within(self, *parts: str) -> FlawError:
        """The same flaw, seen from further outside."""
        self._parts.extend(reversed(parts))
        return self

    @property
    def path(self) -> str:
        """``execution_plan[0].values[17].tensor.sizes``."""
        return "".join(part if part[0] == "[" else f".{part}" for part in reversed(self._parts)).removeprefix(".")

    def as_error(self, where: str | None, hint: str | None = None) -> ProgramError:
        """What the caller of this package sees."""
        return ProgramError(self.message, path=self.path, where=where, hint=hint)
