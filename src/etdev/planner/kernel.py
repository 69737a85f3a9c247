"""Functions that run as plain Python, or compiled by numba (the extra ``fast``). The results are the same.

A function marked with :func:`kernel` uses only integers and flat tables of integers, and calls only other kernels. So
Python and numba compute the same results. Importing numba and loading compiled code takes about a second, so only
longer searches use numba.
"""

from __future__ import annotations

import types
from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from typing import Any, TypeVar

Table = MutableSequence[int]
"""A table of integers: a list, or a numpy array of signed 64-bit numbers."""

LARGEST = 2**61
"""Upper bound on values in tables. Sums of a few numbers below this bound fit into 64 bits."""

_F = TypeVar("_F", bound=Callable[..., Any])
_kernels: list[types.FunctionType] = []


def kernel(function: _F) -> _F:
    """Mark a function as a kernel, which numba can compile. A module must define a kernel before its callers."""
    assert isinstance(function, types.FunctionType)
    _kernels.append(function)
    return function


class Runner:
    """Runner of kernels in Python. It also makes the tables for kernels."""

    def table(self, values: Sequence[int]) -> Table:
        """Return a new table with these values."""
        return list(values)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a kernel and return its result."""
        return function(*arguments)


class _CompiledRunner(Runner):
    def __init__(self, numba: Any, array: Callable[..., Any]) -> None:
        self._numba = numba
        self._array = array
        self._functions = _compile(numba, cached=True)

    def table(self, values: Sequence[int]) -> Table:
        array: Table = self._array(values, dtype="int64")
        return array

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return self._functions[function.__name__](*arguments)
        except OSError:  # The cache cannot be read or written; this error occurs before the function runs.
            self._functions = _compile(self._numba, cached=False)
            return self._functions[function.__name__](*arguments)


PLAIN = Runner()
"""Runner that runs kernels as plain Python."""


@cache
def compiled_runner() -> Runner | None:
    """Return the runner of compiled kernels, or None if numba cannot be imported.

    Numba caches compiled code next to this file or in the user's folder, if one of the two is writable.
    """
    try:
        import numba
        import numpy
    except ImportError:
        return None
    return _CompiledRunner(numba, numpy.array)


def _compile(numba: Any, *, cached: bool) -> dict[str, Callable[..., Any]]:
    functions: dict[str, Callable[..., Any]] = {}
    for function in _kernels:
        # A compiled kernel must call compiled kernels, but the globals of its module have the plain ones.
        copy = types.FunctionType(function.__code__, {**function.__globals__, **functions}, function.__name__)
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        try:
            functions[function.__name__] = numba.njit(copy, cache=cached)
        except RuntimeError:  # "cannot cache function: no locator available": no folder is writable.
            functions[function.__name__] = numba.njit(copy)
    return functions
