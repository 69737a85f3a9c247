"""Explanation of why a target is built again: its differences from the builds in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from etdev.pipeline.cache.cache import Cache
from etdev.pipeline.cache.comparison import changes
from etdev.pipeline.cache.entries import Difference, Entry, Facts, Level, differences
from etdev.pipeline.cache.facts import linked_facts, object_facts
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.results.result import Part


class Explanation(Part):
    """Comparison of one level of a target (its object program or its finished file) with the cache."""

    target: str
    level: Level
    state: Literal["found", "differs", "unknown"]
    """``found`` if a build can be reused, ``differs`` if none can, ``unknown`` if the cache has no build of the target.
    """
    differences: tuple[str, ...] = ()
    """Differences from the most similar build in the cache, one sentence each."""


def explain(project: Project, target: str, options: BuildOptions, cache: Cache) -> tuple[Explanation, ...]:
    """Compare a target's object program and its finished file with the builds in the cache."""
    return (
        _explain(project, target, "object", object_facts(project, target), cache),
        _explain(project, target, "linked", linked_facts(project, target, options, cache.digests), cache),
    )


def _explain(project: Project, target: str, level: Level, facts: Facts, cache: Cache) -> Explanation:
    found: list[list[Difference]] = []
    for entry in cache.store.entries(project.name, target, level):
        found.append(list(_differences(entry, facts, project, target, cache)))
        if not found[-1]:
            return Explanation(target=target, level=level, state="found")
    if not found:
        return Explanation(target=target, level=level, state="unknown")
    nearest = min(found, key=len)  # If several entries have equally few differences, take the most recently used one.
    return Explanation(target=target, level=level, state="differs", differences=tuple(item.message for item in nearest))


def _differences(entry: Entry, facts: Facts, project: Project, target: str, cache: Cache) -> Iterator[Difference]:
    yield from differences(entry.facts, facts, target)
    yield from changes(entry.reads, project, cache.digests)
    for name, output in entry.outputs.items():
        if not cache.store.holds(output):
            yield Difference("output", name, f"{name} is no longer in the cache")
