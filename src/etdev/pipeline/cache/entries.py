"""Entries of the cache: the facts, reads and outputs of a build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from etdev.pipeline.cache.digests import digest_of_text

Level = Literal["object", "linked", "reference"]
"""Extent of an entry: up to emission, a target's whole build with verification, or outputs of the quantized model."""

_ABSENT = object()

ABSENT = ""
"""Digest of a file that does not exist."""
Plain = str | int | float | bool | None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Facts(_Part):
    """Inputs of a build that are known before it begins."""

    settings: dict[str, Plain]
    """Settings that have an effect, by dotted key: ``targets.this.memory.planner``."""
    versions: dict[str, str]
    """Versions of packages and of the machine, by name."""

    @property
    def digest(self) -> str:
        """Digest of all facts."""
        return digest_of_text(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class Reads(_Part):
    """Files, folders and packages that a build has read. Paths are relative to the config's folder."""

    files: dict[str, str] = {}
    """SHA-256 by path; :data:`ABSENT` for a file that was looked for and missing."""
    folders: dict[str, str] = {}
    """By path of each folder that was listed: SHA-256 of the names in it."""
    packages: dict[str, str] = {}
    """Versions of the packages that the project's code imports, by name."""
    absent: tuple[str, ...] = ()
    """Modules, as ``package/module``, that were looked for at these places, and found elsewhere or not at all."""

    def joined(self, other: Reads) -> Reads:
        """Return the union; ``other`` wins on conflict."""
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
    """``setting``, ``version``, ``file``, ``gone`` (a file or a folder), ``folder``, ``module`` or ``output``."""
    name: str
    message: str


class Output(_Part):
    """A file that a build wrote."""

    size: int
    """Bytes."""
    sha256: str


class Entry(_Part):
    """A build, a part of it up to emission, or the outputs of its reference."""

    format: Literal[1] = 1
    level: Level
    project: str
    target: str
    facts: Facts
    reads: Reads
    outputs: dict[str, Output]
    """Output files by name in the target's folder."""
    record: str = ""
    """Record of the stages: JSON in their own format."""


def flattened(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """Return nested tables by dotted key and lists by position; an empty one has a key of its own."""
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
    """Yield the facts that differ between an earlier build of a target and one now."""
    for what, before, after in (("setting", was.settings, now.settings), ("version", was.versions, now.versions)):
        for key in sorted({*before, *after}):
            old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
            if old != new:
                name = key.replace("targets.this", f"targets.{target}", 1)
                yield Difference(what, name, f"{name} is {_shown(new)}, and was {_shown(old)}")


def _shown(value: object) -> str:
    return "not there" if value is _ABSENT else json.dumps(value)
