"""Planners by name: the built-in planners, and the planners that other packages register."""

from __future__ import annotations

from collections.abc import Sequence

from etdev import plugins
from etdev.errors import LinkError
from etdev.planner import Planner, Problem
from etdev.plugins import PLANNERS


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

    def run(problem: Problem) -> Sequence[int]:
        with plugins.translated(PLANNERS, name, LinkError):
            return function(problem)

    return run
