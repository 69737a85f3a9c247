"""Base class of objects that own memory."""

from __future__ import annotations

from typing import NoReturn

from etdev.errors import UsageError


class MoveOnly:
    """Base class of objects that own memory. These objects cannot be copied or pickled.

    A copy would be a second owner: it would free the memory again, or retain the address of freed memory.
    """

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
            hint="pass the object itself, or allocate new memory and copy the content",
        )
