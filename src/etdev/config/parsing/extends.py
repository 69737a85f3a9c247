"""Function that reads a config file and all files that it extends, each as a layer.

The layer of a file is above the layers of the files that it extends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from etdev.config.describe.grammar import grammar_of
from etdev.config.issues import REFERENCE
from etdev.config.keys import KeyPath, format_key
from etdev.config.layers import Layer, Mark, file_layer, overlay
from etdev.config.messages import model_issues, null_issues
from etdev.config.models import Config
from etdev.config.parsing.config_files import display, read_document
from etdev.config.parsing.document import MAX_DEPTH
from etdev.config.problems import problem_of
from etdev.config.types import FormatVersion, Many, Text
from etdev.errors import ConfigError, Problem


class _Head(BaseModel):
    """Keys that are checked in each file before the merge, because the merge keeps only one value of each key."""

    model_config = ConfigDict(strict=True)
    version: FormatVersion | None = None
    extends: Many[Text] | Text = ()


@dataclass
class FileSet:
    """All files of one config: one layer for each file, the merge of these layers, and the problems."""

    merged: Layer = field(default_factory=Layer)
    """Merged data of all files, without the key ``extends``."""
    layers: list[Layer] = field(default_factory=list)
    """Each file as a separate layer, lowest first; the main file is the last."""
    files: list[Path] = field(default_factory=list)
    """Absolute paths of the files, the main file first."""
    problems: list[Problem] = field(default_factory=list)
    nulls: list[Problem] = field(default_factory=list)
    """One problem for each null in each file. A null counts even if a higher layer overrides the value."""
    incomplete: bool = False
    """True if a file could not be read. Keys that seem to be missing may be in that file."""


def read_files(main: Path, cwd: Path) -> FileSet:
    """Read a config file and all files that it extends. The result includes the problems of all files."""
    reader = _Reader(cwd)
    try:
        reader.result.merged = reader.read(main, ())
    except ConfigError as error:
        reader.result.problems.extend(error.problems)
        reader.result.incomplete = True
    return reader.result


class _Reader:
    def __init__(self, cwd: Path) -> None:
        self.result = FileSet()
        self._cwd = cwd
        self._known: dict[Path, Layer] = {}

    def read(self, path: Path, chain: tuple[Path, ...]) -> Layer:
        """Return the layer of a file, merged with the files that it extends.

        ``chain`` contains the files whose ``extends`` led to this file. Raises :class:`ConfigError` if the file itself
        cannot be read.
        """
        if path in self._known:
            return self._known[path]
        source = display(path, self._cwd)
        self.result.files.append(path)
        document = read_document(path, source)
        own = file_layer(document, "extends" if chain else "file", source, path.parent)
        self.result.nulls.extend(problem_of(issue, own.marks) for issue in null_issues(grammar_of(Config), own.data))
        merged = Layer()
        names = self._extended_names(own)
        for key, name in names:
            below = self._extended(key, name, own.marks[key], (*chain, path))
            merged = overlay(merged, below)
        own = _without_extends(own)
        self.result.layers.append(own)
        self._known[path] = overlay(merged, own)
        return self._known[path]

    def _extended_names(self, layer: Layer) -> list[tuple[KeyPath, str]]:
        issues = model_issues(_Head, layer.data)
        self.result.problems.extend(problem_of(issue, layer.marks) for issue in issues)
        if any(issue.key[0] == "extends" for issue in issues):
            self.result.incomplete = True
            return []
        return list(_names(layer.data.get("extends", [])))

    def _extended(self, key: KeyPath, name: str, mark: Mark, chain: tuple[Path, ...]) -> Layer:
        path = Path(os.path.normpath(chain[-1].parent / name))
        problem = self._refusal(key, name, mark, path, chain)
        if problem is None:
            try:
                return self.read(path, chain)
            except ConfigError as error:
                self.result.problems.extend(self._at_mark(found, key, name, mark) for found in error.problems)
        else:
            self.result.problems.append(problem)
        self.result.incomplete = True
        return Layer()

    def _refusal(self, key: KeyPath, name: str, mark: Mark, path: Path, chain: tuple[Path, ...]) -> Problem | None:
        shown = format_key(key)
        if "://" in name:
            return _problem(
                key, mark, f"`{shown}` is a URL; only local files can be extended", "copy the file next to this one"
            )
        if path in chain:
            cycle = " -> ".join(display(file, self._cwd) for file in (*chain[chain.index(path) :], path))
            return _problem(key, mark, f"`{shown}` makes a cycle: {cycle}", "remove one of these `extends`")
        if len(chain) > MAX_DEPTH:
            return _problem(key, mark, f"`{shown}` makes a chain of more than {MAX_DEPTH} files", None)
        return None

    def _at_mark(self, problem: Problem, key: KeyPath, name: str, mark: Mark) -> Problem:
        """If the problem is that a file cannot be read, report it at the file's entry in ``extends``.

        Return all other problems unchanged.
        """
        if problem.rule != "file" or problem.line is not None:
            return problem
        file = f"`{problem.source}`" if problem.source else f"`{name}`"
        message = f"`{format_key(key)}` names {file}: {problem.message}"
        hint = "the path is relative to this file" if "no such file" in problem.message else problem.hint
        return _problem(key, mark, message, hint)


def _names(extends: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(extends, str):
        yield ("extends",), extends
        return
    for index, name in enumerate(extends):
        yield ("extends", index), name


def _without_extends(layer: Layer) -> Layer:
    data = {key: value for key, value in layer.data.items() if key != "extends"}
    return replace(
        layer, data=data, marks={path: mark for path, mark in layer.marks.items() if path[:1] != ("extends",)}
    )


def _problem(key: KeyPath, mark: Mark, message: str, hint: str | None) -> Problem:
    return mark.origin.problem(key, message, REFERENCE, hint)
