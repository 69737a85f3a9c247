"""One config file is several configs: one for each profile. Each is stacked from its layers and validated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from etdev.config.extends import FileSet
from etdev.config.grammar import grammar_of
from etdev.config.issues import Check
from etdev.config.layers import Layer, overlay, profile_layer
from etdev.config.messages import translate
from etdev.config.models import Config
from etdev.config.overrides import from_command_line, from_environment, override_layers
from etdev.config.problems import problem_of
from etdev.errors import Problem


@dataclass(frozen=True, slots=True)
class Stack:
    """The layers of one variant, and what they merge to."""

    layers: list[Layer]
    merged: Layer
    problems: list[Problem]
    """Of the overrides: names that match no key, values that cannot be set."""


def profile_names(read: FileSet) -> list[str]:
    """Names of the profiles, in the order of the file."""
    profiles = read.merged.data.get("profiles")
    return (
        [name for name, data in profiles.items() if isinstance(data, Mapping)] if isinstance(profiles, Mapping) else []
    )


def stack(read: FileSet, profile: str | None, environ: Mapping[str, str], texts: Sequence[str]) -> Stack:
    """Lay the profile, the environment and ``--set`` over the files."""
    base = read.files[0].parent
    root = grammar_of(Config)
    own = [profile_layer(read.merged, profile)] if profile is not None else []
    merged = overlay(read.merged, own[0]) if own else read.merged
    from_variables, malformed = from_environment(environ, base, root, merged.data)
    from_texts, more = from_command_line(texts, base)
    above, refused = override_layers([*from_variables, *from_texts], merged.data, root)
    for layer in above:
        merged = overlay(merged, layer)
    return Stack([*read.layers, *own, *above], merged, [*malformed, *more, *refused])


def validate(variant: Stack, checks: Iterable[Check]) -> tuple[Config | None, list[Problem]]:
    """The config, if the models accept it, and every problem that models and checks find."""
    data, marks = variant.merged.data, variant.merged.marks
    config, issues = None, []
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        issues = translate(error, grammar_of(Config), data)
    for check in checks:
        issues.extend(check(data))
    return config, [problem_of(issue, marks) for issue in issues]


def in_profile(problems: Iterable[Problem], profile: str, *, beyond: Iterable[Problem]) -> list[Problem]:
    """The problems that only a profile brings, saying so where that is not plain from their key."""
    known = {_identity(problem) for problem in beyond}
    fresh = [problem for problem in problems if _identity(problem) not in known]
    return [
        problem
        if problem.key.startswith("profiles.")
        else replace(problem, message=f"{problem.message} (with the profile `{profile}`)")
        for problem in fresh
    ]


def _identity(problem: Problem) -> tuple[object, ...]:
    return problem.key, problem.rule, problem.source, problem.line, problem.column
