"""Search for changes of the files, folders and packages that an earlier build read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from etdev.config.module_files import MODULE_ENDS
from etdev.pipeline.cache.digests import Digests, digest_of_names
from etdev.pipeline.cache.entries import ABSENT, Difference, Reads
from etdev.pipeline.project import Project
from etdev.pipeline.project.versions import package_version


def changes(reads: Reads, project: Project, digests: Digests) -> Iterator[Difference]:
    """Yield a difference for each file, folder and package in ``reads`` that has changed since a build read it."""
    root = project.loaded.root
    for name, digest in reads.files.items():
        yield from _file(root / name, name, digest, digests)
    for name, digest in reads.folders.items():
        try:
            if digest_of_names(root / name, project.out) != digest:
                yield Difference("folder", name, f"files were added to {name} or removed from it")
        except OSError:
            yield Difference("gone", name, f"the folder {name} does not exist any more, or cannot be read")
    for name in reads.absent:
        if any((root / f"{name}{end}").is_file() for end in MODULE_ENDS):
            yield Difference(
                "module",
                name,
                f"the module {name} is new, and is imported instead of a module of the same name in another place",
            )
    for package, version in reads.packages.items():
        now = package_version(package)
        if now != version:
            yield Difference("version", package, f"{package} is {json.dumps(now)}, and was {json.dumps(version)}")


def _file(path: Path, name: str, digest: str, digests: Digests) -> Iterator[Difference]:
    try:
        if digest == ABSENT:
            if path.exists():
                yield Difference("file", name, f"{name} did not exist before, and exists now")
        elif digests.of(path) != digest:
            yield Difference("file", name, f"{name} has changed")
    except OSError:
        yield Difference("gone", name, f"{name} does not exist any more, or cannot be read")
