"""Base class for single owners of memory."""

from __future__ import annotations

from typing import NoReturn

from etdev.errors import UsageError


class MoveOnly:
    """Base of classes that own memory. Instances can be passed on, but never copied or pickled.

    With two owners, the memory would be freed twice, and the second owner would have a dangling address.
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
            hint="pass the object itself, or copy its content into memory of its own",
        )
