"""Planners by name: the built-in planners, and the planners that other packages register."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from etdev import plugins
from etdev.errors import LinkError
from etdev.planner import Planner
from etdev.planner.banks import BankPlanner
from etdev.plugins import PLANNERS

_P = TypeVar("_P")
_R = TypeVar("_R")


def planner_names() -> tuple[str, ...]:
    """Return the names of all planners, built-in planners first. This function imports no planner."""
    return plugins.names(PLANNERS)


def get_planner(name: str) -> str | Planner:
    """Return the planner with this name, for :attr:`~etdev.linker.LinkOptions.planner`.

    Raises :class:`~etdev.errors.LinkError` for an unexpected error in another package's planner. Raises the same errors
    as :func:`etdev.plugins.load`.
    """
    if name in PLANNERS.built_in:
        plugins.check_name(PLANNERS, name)
        return name
    function: Planner = plugins.load(PLANNERS, name)
    return guarded(function, lambda: plugins.translated(PLANNERS, name, LinkError))


def guarded(planner: Planner, context: Callable[[], AbstractContextManager[None]]) -> Planner:
    """Wrap a planner so that each of its calls runs inside a context, for example one that translates errors."""
    if isinstance(planner, BankPlanner):
        return BankPlanner(_inside(planner.function, context))
    return _inside(planner, context)


def _inside(function: Callable[[_P], _R], context: Callable[[], AbstractContextManager[None]]) -> Callable[[_P], _R]:
    @functools.wraps(function)
    def call(problem: _P) -> _R:
        with context():
            return function(problem)

    return call
