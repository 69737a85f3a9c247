"""Variants of a config. Each variant is the merge of the files, one profile and the overrides.

Every variant is validated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from etdev.config.describe.grammar import grammar_of
from etdev.config.issues import MISSING_KEY, UNKNOWN_NAME
from etdev.config.keys import KeyPath
from etdev.config.layers import NOT_IN_PROFILES, Layer, Mark, overlay
from etdev.config.messages import translate
from etdev.config.models import Config
from etdev.config.names import check_profile_names, without_new
from etdev.config.overrides import from_command_line, from_environment, override_layers
from etdev.config.parsing.extends import FileSet
from etdev.config.problems import problem_of
from etdev.config.raw import Check, Raw
from etdev.errors import Problem


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers of one variant, the merge of these layers, and the problems that the merge found."""

    layers: list[Layer]
    merged: Layer
    problems: list[Problem]
    """Problems found while merging: undefined names in the profile, and overrides that cannot be applied."""
    unknown: frozenset[KeyPath] = frozenset()
    """Paths of entries that no file defines, such as a target. Keys that such an entry lacks are not reported."""


class Variants:
    """All variants of a config: the chosen variant, and one variant for each other profile.

    Only the chosen variant includes the table ``profiles``, so that this table is validated once. The total work is
    then linear in the number of profiles.
    """

    def __init__(self, read: FileSet, environ: Mapping[str, str], texts: Sequence[str]) -> None:
        self._read = read
        self._environ = environ
        self._texts = texts
        self._folder = read.files[0].parent
        self._without = _without_profiles(read.merged)
        self._profiles = _profiles(read.merged)
        self._profile_data = {name: layer.data for name, layer in self._profiles.items()}

    @property
    def names(self) -> list[str]:
        """Names of the profiles, in the order of the file."""
        return list(self._profiles)

    def chosen(self, profile: str | None) -> Stack:
        """Return the variant for the command: the files, then the profile (None for no profile), then the overrides."""
        found = self._stack(self._read.merged, profile)
        # The config includes its profiles. Names that the chosen profile added are no longer new in them.
        return replace(found, merged=without_new(found.merged)) if profile is not None else found

    def other(self, profile: str) -> Stack:
        """Return the variant for ``profile``, which is not the profile that the user chose.

        The overrides are meant for the chosen profile. So an override may contain a name, such as a target, that this
        variant does not define.
        """
        found = self._stack(self._without, profile)
        problems = [problem for problem in found.problems if problem.rule != UNKNOWN_NAME or problem.line is not None]
        return replace(found, problems=problems)

    def _stack(self, below: Layer, profile: str | None) -> Stack:
        own = self._profiles.get(profile) if profile is not None else None
        layers, problems, unknown = [*self._read.layers], list[Problem](), set[KeyPath]()
        merged = below
        if own is not None:
            names = check_profile_names(Raw(own.data), Raw(below.data))
            problems += [problem_of(issue, own.marks) for issue in names.issues]
            unknown = {issue.key for issue in names.issues if issue.rule == UNKNOWN_NAME}
            marks = {path: mark for path, mark in own.marks.items() if path not in names.spent}
            layers.append(Layer(names.data, marks))
            merged = overlay(merged, layers[-1])
        root = grammar_of(Config)
        from_variables, malformed = from_environment(self._environ, self._folder, root, merged.data)
        from_texts, more = from_command_line(self._texts, self._folder)
        overrides = [*from_variables, *from_texts]
        above, refused, misspelled = override_layers(overrides, merged.data, root, self._profile_data)
        for layer in above:
            merged = overlay(merged, layer)
        problems += [*malformed, *more, *refused]
        return Stack([*layers, *above], merged, problems, frozenset(unknown | misspelled))


def validate(variant: Stack, checks: Iterable[Check]) -> tuple[Config | None, list[Problem]]:
    """Validate a variant; return the config, and all problems that the models and checks find.

    The config is None if the models reject the data.
    """
    data, marks = variant.merged.data, variant.merged.marks
    config, issues = None, []
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        issues = translate(error, grammar_of(Config), data)
    for check in checks:
        issues.extend(check(Raw(data)))
    told = [issue for issue in issues if issue.rule != MISSING_KEY or issue.key[:2] not in variant.unknown]
    return config, [problem_of(issue, marks) for issue in told]


def in_profile(problem: Problem, profile: str) -> Problem:
    """Return the problem with the profile's name added to the message.

    Return the problem unchanged if its key already shows the profile.
    """
    if problem.key.startswith("profiles."):
        return problem
    return replace(problem, message=f"{problem.message} (with the profile `{profile}`)")


def identity(problem: Problem) -> tuple[object, ...]:
    """Return a tuple that identifies a problem. A problem that occurs in two variants has the same tuple in both."""
    return problem.key, problem.rule, problem.source, problem.line, problem.column


def _without_profiles(merged: Layer) -> Layer:
    data = {key: value for key, value in merged.data.items() if key != "profiles"}
    return Layer(data, {path: mark for path, mark in merged.marks.items() if path[:1] != ("profiles",)})


def _profiles(merged: Layer) -> dict[str, Layer]:
    """Return a layer for each ``[profiles.NAME]`` in the merged files; omit values that are not tables."""
    tables = merged.data.get("profiles")
    tables = tables if isinstance(tables, Mapping) else {}
    marks: defaultdict[str | int, dict[KeyPath, Mark]] = defaultdict(dict)
    for path, mark in merged.marks.items():
        if path[:1] == ("profiles",) and len(path) > 2 and path[2] not in NOT_IN_PROFILES:
            marks[path[1]][path[2:]] = replace(mark, origin=replace(mark.origin, layer="profile"))
    return {name: Layer(_allowed(data), marks[name]) for name, data in tables.items() if isinstance(data, Mapping)}


def _allowed(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in NOT_IN_PROFILES}
