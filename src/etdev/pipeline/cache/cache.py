"""The cache of a build: object programs and finished targets, found again if nothing that they go by has changed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from platformdirs import user_cache_path

from etdev.config.types import parse_byte_size
from etdev.errors import UsageError, WriteError
from etdev.pipeline.cache.digests import Digests
from etdev.pipeline.cache.entries import Difference, Entry, Facts, Level, Output, Reads
from etdev.pipeline.cache.store import Store
from etdev.pipeline.cache.watch import Seen
from etdev.pipeline.project import Project

FOLDER_VARIABLE = "ETDEV_CACHE_DIR"
SIZE_VARIABLE = "ETDEV_CACHE_SIZE"
_DEFAULT_SIZE = "10GiB"
_DATABASE = "digests.sqlite"


def open_store(environ: Mapping[str, str] = os.environ) -> Store:
    """The cache of this user on this machine. Raises :class:`~etdev.errors.UsageError` for a size that is none."""
    named = environ.get(FOLDER_VARIABLE)
    folder = Path(named).absolute() if named else user_cache_path("etdev", appauthor=False)
    text = environ.get(SIZE_VARIABLE) or _DEFAULT_SIZE
    try:
        return Store(folder, int(str(parse_byte_size(text))))
    except ValueError as error:
        raise UsageError(f"{text!r} is no size: {error}", where=SIZE_VARIABLE, hint="like `10GiB`") from error


class Cache:
    """The store and the digests of one run. A context manager. ``obstacle`` says why nothing could be kept."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.digests = Digests(store.folder / _DATABASE)
        self.obstacle: str | None = None
        self.changed: set[str] = set()
        """Files that were read, by path relative to the config's folder, and written meanwhile."""
        self._since = 0.0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._since = time.time()
        self._open.enter_context(self.digests)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def find(self, project: Project, target: str, level: Level, facts: Facts) -> Entry | None:
        """What an earlier build made by the same facts of the same files, and is there still."""
        root = project.loaded.root
        for entry in self.store.entries(project.name, target, level, facts):
            if next(changes(entry.reads, root, self.digests), None) is None and all(
                self.store.holds(output) for output in entry.outputs.values()
            ):
                return entry
        return None

    def restore(self, entry: Entry, folder: Path) -> bool:
        """Put what a build wrote into a folder; what is there already stays. False if something is damaged or gone.

        Raises :class:`~etdev.errors.WriteError`.
        """
        for name, output in entry.outputs.items():
            place = folder / name
            try:
                same = place.stat().st_size == output.size and self.digests.of(place) == output.sha256
            except OSError:
                same = False
            if not same and not self.store.restore(output, place):
                return False
        self.store.use(entry)
        return True

    def keep(
        self,
        project: Project,
        target: str,
        level: Level,
        facts: Facts,
        reads: Reads,
        outputs: Sequence[Path],
        record: str = "",
    ) -> Entry | None:
        """Remember a build that has gone well. None, and :attr:`obstacle`, if it cannot be: that fails no build."""
        try:
            found = {path.name: Output(size=path.stat().st_size, sha256=self.digests.of(path)) for path in outputs}
            for path in outputs:
                self.store.keep(path, found[path.name])
            entry = Entry(
                level=level,
                project=project.name,
                target=target,
                facts=facts,
                reads=reads,
                outputs=found,
                record=record,
            )
            self.store.add(entry)
            if self.store.is_full():
                self.store.collect()
        except (WriteError, OSError) as error:
            self.obstacle = f"nothing is kept in the cache {self.store.folder}: {error}"
            return None
        return entry

    def reads(
        self,
        project: Project,
        modules: Sequence[Path],
        declared: Sequence[Path],
        seen: Seen,
        absent: Iterable[Path] = (),
    ) -> Reads:
        """What a build has read: code, declared files (of folders all that is in them), and what was seen besides;
        ``absent`` are modules that it looked for, without a suffix.

        A file that was written after the cache was opened is entered in :attr:`changed`: nobody knows what was read.
        """
        root = project.loaded.root
        files = sorted(path for path in {*modules, *declared, *map(Path, seen.files)} if path.is_file())
        self.changed |= {_relative(path, root) for path in files if _written(path) > self._since}
        return Reads(
            files={_relative(path, root): self.digests.of(path) for path in files},
            folders={
                _relative(Path(folder), root): self.digests.of_names(Path(folder))
                for folder in sorted(seen.folders)
                if Path(folder).is_dir()
            },
            absent=tuple(sorted(_relative(path, root) for path in absent)),
        )


def changes(reads: Reads, root: Path, digests: Digests) -> Iterator[Difference]:
    """What is not as it was when a build read it."""
    for name, digest in reads.files.items():
        try:
            if digests.of(root / name) != digest:
                yield Difference("file", name, f"{name} has changed")
        except OSError:
            yield Difference("file", name, f"{name} is gone, or cannot be read")
    for name, digest in reads.folders.items():
        try:
            if digests.of_names(root / name) != digest:
                yield Difference("folder", name, f"files in {name} came or went")
        except OSError:
            yield Difference("folder", name, f"the folder {name} is gone, or cannot be read")
    for name in reads.absent:
        if (root / f"{name}.py").is_file() or (root / name).is_dir():
            yield Difference("module", name, f"the module {name} is new, and is imported before others of this name")


def _written(path: Path) -> float:
    """When a file was written last, or put in its place."""
    found = path.stat()
    return max(found.st_mtime, found.st_ctime)


def _relative(path: Path, root: Path) -> str:
    return os.path.relpath(path, root).replace(os.sep, "/")
