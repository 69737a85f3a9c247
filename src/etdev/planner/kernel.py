"""Functions that run as they stand, or compiled by numba (the extra ``fast``), with the same results.

A function that is marked with :func:`kernel` uses integers and flat tables of integers only, and calls nothing but
other kernels, so that it means the same to Python and to numba. To import numba and to read compiled code takes about a
second, so it is done only where there is work for longer than that.
"""

from __future__ import annotations

import types
from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from typing import Any, TypeVar

Table = MutableSequence[int]
"""Integers: a list, or an array of numpy with signed numbers of 64 bits."""

LARGEST = 2**61
"""Sums of a few numbers below it fit into 64 bits."""

_F = TypeVar("_F", bound=Callable[..., Any])
_kernels: list[types.FunctionType] = []


def kernel(function: _F) -> _F:
    """Mark a function as one that can be compiled. The kernels that it calls stand above it in its module."""
    assert isinstance(function, types.FunctionType)
    _kernels.append(function)
    return function


class Runner:
    """Calls kernels in Python, and makes the tables for them."""

    def table(self, values: Sequence[int]) -> Table:
        """A table of its own with these values."""
        return list(values)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the kernel returns."""
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
        except OSError:  # The cache cannot be read or written, which shows before the function runs.
            self._functions = _compile(self._numba, cached=False)
            return self._functions[function.__name__](*arguments)


PLAIN = Runner()
"""Runs kernels as they stand."""


@cache
def compiled_runner() -> Runner | None:
    """Runs kernels compiled; None if numba cannot be imported.

    Compiled code is kept in a cache of numba's, beside this file or in the user's folder, if either can be written to.
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
        # The kernels that it calls have to be compiled ones too, and the module has the plain ones.
        copy = types.FunctionType(function.__code__, {**function.__globals__, **functions}, function.__name__)
        copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
        try:
            functions[function.__name__] = numba.njit(copy, cache=cached)
        except RuntimeError:  # "cannot cache function: no locator available": no folder can be written to.
            functions[function.__name__] = numba.njit(copy)
    return functions
