"""SHA-256 digests of files, stored so that a file with unchanged metadata is not read again."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from etdev.config.limits import RESULTS
from etdev.config.parsing.config_files import SUFFIXES, lock_name
from etdev.files import open_file
from etdev.pipeline.results.report import find_report

_TABLE = """
CREATE TABLE IF NOT EXISTS checked_digests (
    path BLOB PRIMARY KEY, size INTEGER, mtime INTEGER, ctime INTEGER, inode INTEGER, device INTEGER, digest TEXT,
    checksum TEXT
)
"""
_FAILURES = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""Errors of the database. The sqlite3 module decodes messages, which have names from the file, as UTF-8."""
_DAMAGED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""Codes of errors that stay until the database is removed: also a table or column that another program has renamed."""
_SETTLED_SECONDS = 1.0
"""Minimum age in seconds of a file's last change. If a file changed more recently, its digest is not stored.

A file system's clock may be too coarse to distinguish two changes within this time.
"""
_WAIT_SECONDS = 5.0
"""Maximum time in seconds to wait until another process has written its digests to the database."""

_OUTPUT = "build"
"""Default name of the output folder, which etdev itself adds to a project."""

_Stamp = tuple[int, int, int, int, int]


class Digests:
    """Digests of files, kept in memory and, if possible, in a database; a context manager.

    The database is written when the block ends. A row with a wrong checksum counts as missing. A database that SQLite
    rejects as damaged is removed.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._known: dict[str, tuple[_Stamp, str]] = {}
        self._new: set[str] = set()
        self._database: sqlite3.Connection | None = None

    def of(self, path: Path) -> str:
        """Return the digest of a file, in hexadecimal. Raises OSError."""
        name = os.path.abspath(path)
        stamp = _stamp(path)
        known = self._known.get(name) or self._recalled(name)
        if known is not None and known[0] == stamp:
            return known[1]
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if _stamp(path) == stamp and time.time() - max(stamp[1], stamp[2]) / 1e9 > _SETTLED_SECONDS:
            self._known[name] = stamp, digest
            self._new.add(name)
        return digest

    def __enter__(self) -> Self:
        if self._place is not None:
            with suppress(OSError):
                self._place.parent.mkdir(parents=True, exist_ok=True)
                self._open(self._place)
                if self._database is None:  # A damaged database was removed.
                    self._open(self._place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None and self._new:
            rows = [self._row(name) for name in sorted(self._new)]
            try:
                with self._database:
                    self._database.executemany(
                        "INSERT OR REPLACE INTO checked_digests VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
                    )
            except _FAILURES as failure:  # A later run computes again the digests that could not be stored.
                self._remove_if_damaged(failure)
        if self._database is not None:
            self._database.close()
        self._database, self._new = None, set()

    def _open(self, place: Path) -> None:
        """Open the database with its table. A damaged one is removed instead."""
        try:
            self._database = sqlite3.connect(place, timeout=_WAIT_SECONDS)
            self._database.execute(_TABLE)
        except _FAILURES as failure:
            self._remove_if_damaged(failure)

    def _remove_if_damaged(self, failure: Exception) -> None:
        """Close and remove a damaged database. Another process may still use it; checksums protect its rows."""
        damaged = getattr(failure, "sqlite_errorcode", 0) & 0xFF in _DAMAGED or isinstance(failure, UnicodeDecodeError)
        if damaged and self._database is not None and self._place is not None:
            self._database.close()
            self._database = None
            with suppress(OSError):
                self._place.unlink(missing_ok=True)

    def _row(self, name: str) -> tuple[object, ...]:
        stamp, digest = self._known[name]
        return os.fsencode(name), *stamp, digest, _checksum(name, stamp, digest)

    def _recalled(self, name: str) -> tuple[_Stamp, str] | None:
        if self._database is None:
            return None
        try:
            found = self._database.execute(
                "SELECT size, mtime, ctime, inode, device, digest, checksum FROM checked_digests WHERE path = ?",
                (os.fsencode(name),),
            ).fetchone()
        except _FAILURES as failure:
            self._remove_if_damaged(failure)
            return None
        if found is None or found[6] != _checksum(name, found[:5], found[5]):
            return None
        self._known[name] = (found[0], found[1], found[2], found[3], found[4]), found[5]
        return self._known[name]


def digest_of_names(folder: Path, out: Path) -> str:
    """Return the digest of the names in a folder. Raises OSError.

    Ignore hidden names, and names that Python or etdev adds: ``__pycache__``, locks and output folders. ``out`` is the
    project's output folder. Also ignore the name of the subfolder that contains ``out``, even indirectly.
    """
    with os.scandir(folder) as entries:
        found = list(entries)
    own = {_OUTPUT, _first_name(folder, out), *(lock_name(item.name) for item in found if item.name.endswith(SUFFIXES))}
    seen = (item for item in found if not item.name.startswith((".", "__pycache__")) and item.name not in own)
    return digest_of_text("\n".join(sorted(item.name for item in seen if not _is_output(item))))


def _first_name(folder: Path, out: Path) -> str | None:
    """Return the name in ``folder`` that leads to ``out``; None if ``out`` is not inside ``folder``."""
    place, around = Path(os.path.abspath(out)), os.path.abspath(folder)
    return next(iter(place.relative_to(around).parts), None) if place.is_relative_to(around) else None


def _is_output(entry: os.DirEntry[str]) -> bool:
    """Return True if a folder contains the results of a build. Return False if the folder cannot be read."""
    if entry.is_file(follow_symlinks=False):
        return False
    results = os.path.join(entry.path, RESULTS)
    return os.path.isfile(results) and find_report(Path(results)) is not None


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _checksum(name: str, stamp: _Stamp, digest: str) -> str:
    """Return the checksum of a row. The values of a damaged row can have any type."""
    return digest_of_text(repr((name, tuple(stamp), digest)))


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev
