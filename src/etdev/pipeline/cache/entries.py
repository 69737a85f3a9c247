"""Entries of the cache: each has the facts, reads and outputs of a build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from etdev.pipeline.cache.digests import digest_of_text
from etdev.pipeline.cache.phrases import setting_changes, shown

Level = Literal["object", "linked", "reference"]
"""Content of an entry: the object program, the whole verified target, or the quantized model's outputs."""

ABSENT = ""
"""Digest of a file that does not exist."""
Plain = str | int | float | bool | None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Facts(_Part):
    """The inputs of a build that are known before the build begins."""

    settings: dict[str, Plain]
    """Settings that affect the result, by dotted key such as ``targets.this.memory.planner``."""
    versions: dict[str, str]
    """Versions of packages and checks, by name. ``machine`` and ``system`` describe the machine."""

    @property
    def digest(self) -> str:
        """Digest of all facts."""
        return digest_of_text(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class Reads(_Part):
    """Files, folders and packages that a build has read. Paths are relative to the config's folder."""

    files: dict[str, str] = {}
    """SHA-256 of each file, by path; :data:`ABSENT` for a path at which the build found no file."""
    folders: dict[str, str] = {}
    """SHA-256 of the file names in each folder that the build listed, by the folder's path."""
    packages: dict[str, str] = {}
    """Versions of the packages that the project's code imports, by name."""
    absent: tuple[str, ...] = ()
    """Paths such as ``package/module`` at which the build looked for a module and found none."""

    def joined(self, other: Reads) -> Reads:
        """Return the union of the reads; on a conflict, the entry of ``other`` wins."""
        return Reads(
            files={**self.files, **other.files},
            folders={**self.folders, **other.folders},
            packages={**self.packages, **other.packages},
            absent=tuple(sorted({*self.absent, *other.absent})),
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference from an earlier build."""

    what: str
    """Kind of the difference.

    One of ``setting``, ``version``, ``file``, ``gone`` (a file or a folder), ``folder``, ``module`` and ``output``.
    """
    name: str
    message: str


class Output(_Part):
    """Digest and size of a file that a build wrote."""

    size: int
    """Size in bytes."""
    sha256: str


class Entry(_Part):
    """An entry of the cache: the facts, reads and outputs of one build.

    ``level`` is the kind of content in the entry.
    """

    level: Level
    project: str
    target: str
    facts: Facts
    reads: Reads
    outputs: dict[str, Output]
    """Maps the name of each file in the target's folder to the file's digest and size."""
    record: str = ""
    """JSON text with facts from the stages. Only the builder reads and writes this text."""

    def to_text(self) -> str:
        """Return the content of the entry's file: JSON with a checksum."""
        return _Checked(checksum=self._checksum, entry=self).model_dump_json(indent=1) + "\n"

    @staticmethod
    def from_text(text: str | bytes) -> Entry:
        """Return the entry in a file's content. Raises ValueError if the content is damaged."""
        checked = _Checked.model_validate_json(text)
        if checked.checksum != checked.entry._checksum:
            raise ValueError("the checksum is wrong")
        return checked.entry

    @property
    def _checksum(self) -> str:
        return digest_of_text(self.model_dump_json())


class _Checked(_Part):
    """The content of an entry's file."""

    format: Literal[2] = 2
    checksum: str
    """SHA-256 of the entry as JSON. A damaged file can still be valid JSON, with the name of another output."""
    entry: Entry


def flattened(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """Return a flat mapping from dotted keys to the values in nested tables and lists.

    A key includes positions in lists, as in ``a[0].b``. An empty table has the key ``a{}``, an empty list ``a[]``.
    """
    return dict(_leaves(settings, ""))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Plain]]:
    if isinstance(value, Mapping) and value:
        for name, item in sorted(value.items()):
            yield from _leaves(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{key}[{index}]")
    elif isinstance(value, Mapping | list | tuple):
        yield f"{key}{'{}' if isinstance(value, Mapping) else '[]'}", None
    else:
        yield key, value


def differences(was: Facts, now: Facts, target: str) -> Iterator[Difference]:
    """Yield a difference for each fact that differs between an earlier build of a target and the current one."""
    for change in setting_changes(was.settings, now.settings, target):
        yield Difference("setting", change.name, change.message)
    for name in sorted({*was.versions, *now.versions}):
        old, new = (shown(facts.versions[name]) if name in facts.versions else "not set" for facts in (was, now))
        if old != new:
            yield Difference("version", name, f"{name} is {new}, and was {old}")
