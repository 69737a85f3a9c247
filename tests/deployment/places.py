"""Real targets on this machine for the tests of deployments, and a look at them that goes past etdev's transports."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from etdev.config.destinations import parse_destination
from etdev.deployment.manifest import Check, Manifest, Needs, ReleasedFile
from etdev.deployment.release import Release
from etdev.deployment.transports import Connection, open_transport
from etdev.deployment.transports.base import Transport


class Place(Protocol):
    """What lies at a target."""

    def files(self) -> dict[str, bytes]:
        """Every file below it, by its path; of a symbolic link, what it points at."""

    def pointer(self) -> str | None:
        """What the pointer points at."""

    def put(self, path: str, content: bytes) -> None:
        """Write a file there by other means."""


@dataclass(frozen=True)
class Folder:
    """A target that is a folder of this machine, whatever way leads there."""

    root: Path

    def files(self) -> dict[str, bytes]:
        found = {}
        for folder, names, items in os.walk(self.root):
            for name in [*items, *(name for name in names if (Path(folder) / name).is_symlink())]:
                path = Path(folder) / name
                content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
                found[path.relative_to(self.root).as_posix()] = content
        return found

    def pointer(self) -> str | None:
        link = self.root / "current"
        return os.readlink(link) if link.is_symlink() else None

    def put(self, path: str, content: bytes) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(content)


@dataclass(frozen=True)
class Bucket:
    """A target that is a prefix of a bucket."""

    client: Any
    name: str
    prefix: str

    def files(self) -> dict[str, bytes]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=f"{self.prefix}/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return {key.removeprefix(f"{self.prefix}/"): self._read(key) for key in keys}

    def pointer(self) -> str | None:
        content = self.files().get("current.json")
        return None if content is None else json.loads(content)["release"]

    def put(self, path: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"{self.prefix}/{path}", Body=content)

    def _read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())


@dataclass(frozen=True)
class Target:
    """A target, as etdev reaches it and as it is."""

    kind: str
    place: Place
    uri: str
    reach: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of :class:`~etdev.deployment.transports.Connection`."""

    def open(self) -> Transport:
        return open_transport(Connection(destination=parse_destination(self.uri), base=Path("/"), **self.reach))


@dataclass(frozen=True)
class Maker:
    """Makes releases of small files below a folder."""

    folder: Path

    def __call__(self, label: str, size: int = 2000) -> Release:
        """A release of a program and its weights; equal labels give equal releases."""
        source = random.Random(label)
        contents = {"net.pte": source.randbytes(size), "net.ptd": f"weights of {label}".encode()}
        sources = {name: self.folder / f"{label}-{name}" for name in contents}
        for name, content in contents.items():
            sources[name].write_bytes(content)
        files = tuple(
            ReleasedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in contents.items()
        )
        return Release(manifest_of(files), sources)


def manifest_of(files: tuple[ReleasedFile, ...]) -> Manifest:
    """A manifest of these files, the first of which is the program."""
    return Manifest(
        project="net",
        target="cpu",
        program=files[0].name,
        files=files,
        versions={"etdev": "0.1.0"},
        needs=Needs(
            executorch="1.4.1",
            devices=("cuda:0",),
            operators=("aten::add.out",),
            delegates=("XnnpackBackend",),
            libraries=("portable",),
            memory={"cpu": 64},
        ),
        verification=(Check(name="bytes", status="passed", summary="1 method"),),
        lock=None,
    )


def check_serves(place: Place, *allowed: Release | None) -> Release | None:
    """The release that a target serves has to be one of these, whole: every file as its manifest says, the manifest as
    the folder's name says. None stands for no pointer at all."""
    pointer, files = place.pointer(), place.files()
    if pointer is None:
        assert None in allowed
        return None
    content = files[f"{pointer}/manifest.json"]
    assert hashlib.sha256(content).hexdigest()[:12] == pointer.rpartition("-")[2]
    served = {path.removeprefix(f"{pointer}/"): item for path, item in files.items() if path.startswith(f"{pointer}/")}
    for file in json.loads(content)["files"]:
        assert hashlib.sha256(served[file["name"]]).hexdigest() == file["sha256"]
        assert len(served[file["name"]]) == file["size"]
    assert served.keys() == {"manifest.json", *(file["name"] for file in json.loads(content)["files"])}
    return next(release for release in allowed if release is not None and release.content == content)


def strays(place: Place) -> list[str]:
    """Files that belong neither to the pointer nor to a whole release."""
    files = place.files()
    releases = {path.rsplit("/", 1)[0] for path in files if path.endswith("/manifest.json")}
    whole = {item for item in releases if item.startswith("releases/")}
    return [path for path in files if path not in ("current", "current.json") and path.rsplit("/", 1)[0] not in whole]


Opened = Callable[[], Transport]
