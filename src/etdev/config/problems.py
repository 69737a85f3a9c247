"""Conversion of issues to problems with positions in files, and sorting of problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from etdev.config.describe.notation import Example
from etdev.config.issues import AT_KEY, WRONG_TYPE, Issue
from etdev.config.keys import KeyPath, format_key
from etdev.config.layers import Mark, mark_of
from etdev.errors import Problem


def problem_of(issue: Issue, marks: Mapping[KeyPath, Mark]) -> Problem:
    """Return the issue as a problem at the position of its value or key.

    If the key is missing, use the position of the innermost table that exists.
    """
    mark = mark_of(marks, issue.key)
    if mark is None:
        return Problem(issue.message, format_key(issue.key), hint=_hint(issue, ""), rule=issue.rule)
    origin = mark.origin
    line, column = origin.line, origin.column
    if issue.rule in AT_KEY and issue.key in marks and mark.key is not None:
        line, column = mark.key
    written = (*mark.written, *issue.key[_marked_length(marks, issue.key) :])
    message = issue.message
    if written != issue.key:
        message = message.replace(f"`{format_key(issue.key)}`", f"`{format_key(written)}`", 1)
    hint = _hint(issue, origin.source)
    if mark.as_text and issue.rule == WRONG_TYPE:
        hint = "write the value as valid TOML; other values are read as text"
    return Problem(message, format_key(written), origin.source, line, column, hint, issue.rule)


def _hint(issue: Issue, source: str) -> str | None:
    """Return the hint of an issue, in YAML notation for a YAML file, else in TOML notation."""
    if isinstance(issue.hint, Example):
        return issue.hint.text(yaml=source.endswith((".yaml", ".yml")))
    return issue.hint


def with_nulls(problems: Sequence[Problem], nulls: Iterable[Problem]) -> list[Problem]:
    """Return the problems, and each problem in ``nulls`` whose key has no problem yet."""
    said = {(problem.source, problem.key) for problem in problems}
    return [*problems, *(null for null in nulls if (null.source, null.key) not in said)]


def in_file_order(problems: Iterable[Problem], sources: Sequence[str]) -> tuple[Problem, ...]:
    """Return the problems without duplicates, sorted by file (in the order of ``sources``) and then by position.

    Problems without a file come last.
    """
    rank = {source: index for index, source in enumerate(sources)}
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda p: (rank.get(p.source or "", len(rank)), p.line or 0, p.column or 0)))


def _marked_length(marks: Mapping[KeyPath, Mark], path: KeyPath) -> int:
    return next(length for length in range(len(path), -1, -1) if path[:length] in marks)
