"""The folder of the cache.

The folder contains files, stored under the digests of their content, and entries of builds. An entry refers to files by
digest. Several processes can use the folder at the same time. Content is checked when it is read. Damaged content
counts as missing.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from etdev.files import (
    TEMPORARY_SUFFIX,
    atomic_path,
    atomic_write_text,
    file_sha256,
    open_file,
    read_file,
    remove_abandoned,
)
from etdev.pipeline.cache.digests import digest_of_text
from etdev.pipeline.cache.entries import Entry, Facts, Level, Output

_GRACE_SECONDS = 3600.0
"""Age in seconds up to which the store keeps a file that no entry refers to.

Another process may have stored the file, and may be about to write the entry.
"""
_PART = 4 << 20
"""Number of bytes that a copy reads and writes at once."""
_WINDOW = 64 << 20
"""Number of bytes at the end of a copy that the system may still have to write, if the copy is not kept in memory."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Figures on the content of the cache's folder."""

    folder: Path
    limit: int
    """Maximum size in bytes."""
    objects: int
    linked: int
    references: int
    """Number of entries with outputs of quantized models.

    ``objects`` counts entries with object programs, and ``linked`` counts entries with finished targets.
    """
    files: int
    size: int
    """Bytes of all stored files."""


@dataclass(frozen=True, slots=True)
class Freed:
    """Figures on content that was removed from the cache."""

    entries: int
    files: int
    size: int
    """Bytes that were removed."""


class Store:
    """The cache's folder, created at the first write."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._files, self._entries = folder / "files", folder / "entries"
        self._checked: set[str] = set()
        """Digests of the files that this object has stored, or whose content it has checked."""

    # Files

    def keep(self, path: Path, output: Output) -> None:
        """Store a file.

        Raises :class:`~etdev.errors.WriteError` if the cache cannot be written, and OSError if ``path`` is missing.
        """
        place = self._place(output.sha256)
        is_checked = output.sha256 in self._checked
        if _size_of(place) == output.size and (is_checked or file_sha256(place) == output.sha256):
            self._checked.add(output.sha256)
            _touch(place)
            return
        # Every reader compares the content with the digest.
        with open_file(path) as source, atomic_path(place, durable=False) as temporary:
            if _copy(source, temporary, keep_in_memory=False) != output.sha256:
                raise OSError(errno.EIO, "the file changed while it was being copied", os.fspath(path))
        self._checked.add(output.sha256)

    def copy_out(self, output: Output, place: Path) -> bool:
        """Copy a stored file to ``place``, a temporary file; return False if the stored file is missing or damaged.

        Remove a damaged file from the store. Raises OSError if ``place`` cannot be written.
        """
        source = self._place(output.sha256)
        try:
            content = open_file(source)
        except OSError:
            return False
        with content:
            good = _copy(content, place) == output.sha256
        if good:
            _touch(source)
        else:
            source.unlink(missing_ok=True)
        return good

    def read(self, output: Output) -> bytes | None:
        """Return a stored file's content; None if the file is missing or damaged. A damaged file is removed."""
        place = self._place(output.sha256)
        try:
            content = place.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(content).hexdigest() != output.sha256:
            _remove(place)
            return None
        _touch(place)
        return content

    def holds(self, output: Output) -> bool:
        """Return True if a file with this digest and size is stored.

        This function does not check the content of the file. :meth:`read` and :meth:`copy_out` do.
        """
        return _size_of(self._place(output.sha256)) == output.size

    def _place(self, digest: str) -> Path:
        return self._files / digest[:2] / digest[2:]

    # Entries

    def add(self, entry: Entry) -> None:
        """Add an entry, and remove temporary files of builds that were killed.

        Raises :class:`~etdev.errors.WriteError`.
        """
        atomic_write_text(self._entry_place(entry), entry.to_text())
        for folder in (*self._files.glob("*"), *self._entries.glob("*")):
            remove_abandoned(folder)

    def entries(self, project: str, target: str, level: Level, facts: Facts | None = None) -> list[Entry]:
        """Return the entries of a target, most recently used first; with ``facts``, only those with equal facts."""
        prefix = f"{level}-" if facts is None else f"{level}-{facts.digest[:32]}-"
        found = []
        for path in _by_age(self._folder(project, target)):
            if path.name.startswith(prefix):
                entry = _read(path)
                if entry is not None and (facts is None or entry.facts == facts):
                    found.append(entry)
        return found

    def use(self, entry: Entry) -> None:
        """Mark an entry as used now; the least recently used entries are removed first."""
        _touch(self._entry_place(entry))

    def _entry_place(self, entry: Entry) -> Path:
        """Return the path of an entry. Two entries have the same path if their facts and their reads are equal."""
        read = digest_of_text(entry.reads.model_dump_json())
        name = f"{entry.level}-{entry.facts.digest[:32]}-{read[:16]}.json"
        return self._folder(entry.project, entry.target) / name

    def _folder(self, project: str, target: str) -> Path:
        return self._entries / digest_of_text(f"{project}\n{target}")[:24]

    # Size and removal

    def stats(self) -> StoreStats:
        """Return figures on the content of the folder."""
        levels = [path.name.partition("-")[0] for path in self._all_entries()]
        sizes = [size for _, size, _ in self._all_files()]
        return StoreStats(
            self.folder,
            self.limit,
            levels.count("object"),
            levels.count("linked"),
            levels.count("reference"),
            len(sizes),
            sum(sizes),
        )

    def collect(self, limit: int | None = None) -> Freed:
        """Remove the least recently used entries until the remaining content is at most ``limit`` bytes.

        If ``limit`` is None, the store's own limit applies. Also remove files that no entry refers to. Another process
        that needs a removed file treats the file as missing.
        """
        limit = self.limit if limit is None else limit
        files = {path.parent.name + path.name: (path, size, used) for path, size, used in self._all_files()}
        wanted: dict[str, int] = {}
        entries = 0
        total = 0
        for path in sorted(self._all_entries(), key=_used, reverse=True):
            entry = _read(path)
            outputs = () if entry is None else entry.outputs.values()
            new = {one.sha256: one.size for one in outputs if one.sha256 not in wanted}
            if entry is None or total + sum(new.values()) > limit or any(digest not in files for digest in new):
                _remove(path)
                entries += 1
                continue
            wanted |= new
            total += sum(new.values())
        gone = freed = 0
        for digest, (path, size, used) in files.items():
            held = time.time() - used < _GRACE_SECONDS and total + size <= limit
            if digest not in wanted and not held and _remove(path):
                gone, freed = gone + 1, freed + size
        return Freed(entries, gone, freed)

    def is_full(self) -> bool:
        """Return True if the stored files exceed the store's limit."""
        return sum(size for _, size, _ in self._all_files()) > self.limit

    def _all_entries(self) -> Iterator[Path]:
        return (path for path in self._entries.glob("*/*.json") if not path.name.endswith(TEMPORARY_SUFFIX))

    def _all_files(self) -> Iterator[tuple[Path, int, float]]:
        """Yield each file with its size in bytes and the time of its last use."""
        for path in self._files.glob("*/*"):
            with suppress(OSError):
                found = path.stat()
                yield path, found.st_size, found.st_mtime


def _read(path: Path) -> Entry | None:
    try:
        return Entry.from_text(read_file(path))
    except (OSError, ValueError):
        return None


def _by_age(folder: Path) -> list[Path]:
    """Return the entries in a folder, most recently used first; an empty list if the folder cannot be read."""
    try:
        return sorted(folder.glob("*.json"), key=_used, reverse=True)
    except OSError:
        return []


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _touch(path: Path) -> None:
    with suppress(OSError):
        os.utime(path)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _copy(source: BinaryIO, place: Path, *, keep_in_memory: bool = True) -> str:
    """Copy a file to a place, and return its digest. Raises OSError.

    If ``keep_in_memory`` is False, the system need not keep the copy in its page cache. On a virtual machine, copies of
    large files are then several times faster, because they use the same few pages of memory again and again.
    """
    digest = hashlib.sha256()
    with place.open("wb") as file:
        while part := source.read(_PART):
            digest.update(part)
            file.write(part)
            if not keep_in_memory and hasattr(os, "posix_fadvise"):
                # The system drops the pages that are on the disk already, and begins to write the others.
                with suppress(OSError):
                    os.posix_fadvise(file.fileno(), max(file.tell() - _WINDOW, 0), 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest()
