"""What the cache knows of a build: what it went by, what it read, and what came out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from etdev.pipeline.cache.digests import digest_of_text

Level = Literal["object", "linked", "reference"]
"""Up to emission, the whole build of a target with its verification, or outputs of the quantized model."""

_ABSENT = object()

ABSENT = ""
"""Stands for the digest of a file that is not there."""
Plain = str | int | float | bool | None


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Facts(_Part):
    """What a build goes by and is known before it begins."""

    settings: dict[str, Plain]
    """By dotted key, ``targets.this.memory.planner``: the values that have an effect."""
    versions: dict[str, str]
    """Of packages and of the machine, by name."""

    @property
    def digest(self) -> str:
        """Of all of it."""
        return digest_of_text(json.dumps(self.model_dump(mode="json"), sort_keys=True))


class Reads(_Part):
    """What a build has read. Paths are relative to the config's folder."""

    files: dict[str, str] = {}
    """SHA-256 by path; :data:`ABSENT` of what was looked for and not there."""
    folders: dict[str, str] = {}
    """Whose names were looked at: SHA-256 of the names, by path."""
    packages: dict[str, str] = {}
    """Versions of the packages that code of the project imports, by name."""
    absent: tuple[str, ...] = ()
    """Modules, as ``package/module``, that are looked for there and were found elsewhere or not at all."""

    def joined(self, other: Reads) -> Reads:
        """Of both; where they differ, the other's."""
        return Reads(
            files={**self.files, **other.files},
            folders={**self.folders, **other.folders},
            packages={**self.packages, **other.packages},
            absent=tuple(sorted({*self.absent, *other.absent})),
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was."""

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
    """One build, or its part up to emission."""

    format: Literal[1] = 1
    level: Level
    project: str
    target: str
    facts: Facts
    reads: Reads
    outputs: dict[str, Output]
    """By the name of the file in the target's folder."""
    record: str = ""
    """What the stages have to say of it: JSON of their own."""


def flattened(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """Nested tables by dotted key; lists by position. Empty ones have a key of their own."""
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
    """What a build of a target goes by now that it did not go by then, or the other way round."""
    for what, before, after in (("setting", was.settings, now.settings), ("version", was.versions, now.versions)):
        for key in sorted({*before, *after}):
            old, new = before.get(key, _ABSENT), after.get(key, _ABSENT)
            if old != new:
                name = key.replace("targets.this", f"targets.{target}", 1)
                yield Difference(what, name, f"{name} is {_shown(new)}, and was {_shown(old)}")


def _shown(value: object) -> str:
    return "not there" if value is _ABSENT else json.dumps(value)
