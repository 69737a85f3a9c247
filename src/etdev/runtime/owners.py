"""Owners of memory, of which there is one each."""

from __future__ import annotations

from typing import NoReturn

from etdev.errors import UsageError


class MoveOnly:
    """Base of what owns memory. It is handed on, and never copied or pickled: two owners would free the memory twice,
    and the first to do so would leave the other with a dangling address."""

    __slots__ = ()

    def __copy__(self) -> NoReturn:
        raise self._refusal("copied")

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise self._refusal("copied")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise self._refusal("pickled")

    def _refusal(self, done: str) -> UsageError:
        return UsageError(
            f"a {type(self).__name__} owns memory, so it cannot be {done}",
            hint="hand on the object itself, or copy its content into memory of its own",
        )
