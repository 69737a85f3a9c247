"""Whether the object program of an earlier build can be linked again: nothing that it was made from has changed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from etdev.config.models import LINK_KEYS
from etdev.errors import ProgramError
from etdev.pipeline.etrecord import read_delegates, record_place
from etdev.pipeline.forms import usable_forms
from etdev.pipeline.objects.emit import ObjectProgram, Origin, object_place, sidecar_place
from etdev.pipeline.project import Project
from etdev.pipeline.result import MethodResult
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.versions import versions
from etdev.program import read
from etdev.program.sidecar import read_sidecar

_AFTER_EMISSION = (
    ("project", "name"),
    ("project", "out"),
    ("extends",),
    ("profiles",),
    ("methods", "*", "samples"),
    ("targets", "*", "verify"),
    ("targets", "*", "budget"),
    ("targets", "*", "runtime"),
    ("targets", "*", "etrecord"),
)
"""Keys that neither emission nor the stages before it read, except for the forms that a runtime has the kernels for and
for an ETRecord: what they ask for is compared by itself."""


class Record(BaseModel):
    """What a build says of the stages up to emission, which a later one does not run again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: tuple[MethodResult, ...]
    scheme: str | None
    """The quantization scheme that was applied."""
    outputs: dict[str, int]
    """Number of outputs of each method."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Reused:
    """An object program of an earlier build, and what that build said of it."""

    objects: ObjectProgram
    record: Record


def find_object(project: Project, target: str) -> Reused | None:
    """The target's object program if a build now would give the same one; None if not, or if there is none."""
    path = object_place(project, target)
    try:
        sidecar = read_sidecar(sidecar_place(path))
        if sidecar.key != object_key(project, target) or not sidecar.files:
            return None
        if any(_digest(project.loaded.root / name) != digest for name, digest in sidecar.files.items()):
            return None
        if project.config.targets[target].etrecord:
            read_delegates(record_place(path))
        return Reused(ObjectProgram(path, read(path), sidecar), Record.model_validate_json(sidecar.report))
    except (ProgramError, OSError, ValidationError):
        return None


def origin_of(project: Project, target: str, user: UserCode, record: Record) -> Origin:
    """What to remember of an object program that is made now.

    ``user`` tells which modules the project's code has imported so far.
    """
    root = project.loaded.root
    files = {os.path.relpath(path, root).replace(os.sep, "/"): path for path in _files(project, user)}
    return Origin(
        key=object_key(project, target),
        files={name: _digest(path) for name, path in sorted(files.items())},
        report=record.model_dump_json(),
    )


def object_key(project: Project, target: str) -> str:
    """Digest of the settings that have an effect before the link, and of all versions."""
    config = project.config
    settings: Any = config.model_dump(mode="json")
    settings["targets"] = {"this": settings["targets"][target]}
    wanted = config.targets[target].quantize
    settings["quantize"] = {name: scheme for name, scheme in settings["quantize"].items() if name == wanted}
    for key in (*LINK_KEYS, *_AFTER_EMISSION):
        _drop(settings, key)
    root = project.loaded.root
    bases = {
        ".".join(map(str, key)): os.path.relpath(project.base(*key), root)
        for key in (("model", "entry"), ("project", "imports"))
    }
    content = {"settings": settings, "bases": bases, "forms": usable_forms(project, target), "versions": versions()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _drop(settings: Any, key: tuple[str | int, ...]) -> None:
    """Take a key out of nested tables; ``*`` stands for every name."""
    first, *rest = key
    for name in list(settings) if first == "*" else [first]:
        if not rest:
            settings.pop(name, None)
        elif isinstance(settings.get(name), dict):
            _drop(settings[name], tuple(rest))


def _files(project: Project, user: UserCode) -> Iterator[Path]:
    """Everything that was read to make the model: code, weights, and what the config declares."""
    yield from user.files()
    model = project.config.model
    for key in ("weights", "pt2", "hf"):
        if getattr(model, key) is not None:
            yield from _contents(project.loaded.resolve("model", key))
    for index in range(len(model.inputs)):
        yield from _contents(project.loaded.resolve("model", "inputs", index))


def _contents(path: Path) -> Iterable[Path]:
    """A file, or every file in a folder; nothing for what is no path: a model on the hub has a pinned commit."""
    if path.is_dir():
        return sorted(item for item in path.rglob("*") if item.is_file())
    return [path] if path.is_file() else []


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
