"""The build cache: finds stored object programs and finished targets whose inputs are unchanged."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from etdev.config.types import parse_byte_size
from etdev.errors import LoadError, UsageError, WriteError
from etdev.files import cache_folder, describe_os_error, file_sha256, temporary_file, write_errors_named
from etdev.pipeline.cache.comparison import changes
from etdev.pipeline.cache.digests import Digests, digest_of_names
from etdev.pipeline.cache.entries import ABSENT, Entry, Facts, Level, Output, Reads
from etdev.pipeline.cache.store import Store
from etdev.pipeline.cache.watch import FileAccess
from etdev.pipeline.project import Project

SIZE_VARIABLE = "ETDEV_CACHE_SIZE"
_DEFAULT_SIZE = "10GiB"
_REFERENCE = "reference.pt"
_DATABASE = "digests.sqlite"


def open_store() -> Store:
    """Return the cache of the current user on this machine.

    Raises :class:`~etdev.errors.UsageError` if an environment variable sets an invalid size.
    """
    text = os.environ.get(SIZE_VARIABLE) or _DEFAULT_SIZE
    try:
        return Store(cache_folder(), int(str(parse_byte_size(text))))
    except ValueError as error:
        raise UsageError(f"{text!r} is not a size: {error}", where=SIZE_VARIABLE, hint="like `10GiB`") from error


class Cache:
    """The cache of one run: the store of earlier builds, and the digests of files; a context manager.

    ``obstacle`` is the reason why the cache could not store a build; None if no store operation failed.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.digests = Digests(store.folder / _DATABASE)
        self.obstacle: str | None = None
        self.changed: set[str] = set()
        """Files that the build read and that were written after the cache was opened.

        The paths are relative to the config's folder.
        """
        self._since = 0.0
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._since = time.time()
        self._open.enter_context(self.digests)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def find(self, project: Project, target: str, level: Level, facts: Facts) -> Entry | None:
        """Return an earlier build with these facts and with all reads unchanged; None if no such build exists.

        Ignore a build if one of its output files is no longer in the store.
        """
        for entry in self.store.entries(project.name, target, level, facts):
            if next(changes(entry.reads, project, self.digests), None) is None and all(
                self.store.holds(output) for output in entry.outputs.values()
            ):
                return entry
        return None

    def restore(self, entry: Entry, folder: Path, gone: Sequence[Path] = ()) -> bool:
        """Write a build's files to a folder, and remove the files in ``gone``.

        Do not write a file that already has the right content. If a stored file is damaged or lost, change nothing and
        return False. Raises :class:`~etdev.errors.WriteError`.
        """
        wrong = self._not_in_place(entry, folder)
        with ExitStack() as stack:
            ready: dict[Path, Path] = {}
            for name in wrong:
                place = folder / name
                with write_errors_named(place):
                    ready[place] = stack.enter_context(temporary_file(place))
                    if not self.store.copy_out(entry.outputs[name], ready[place]):
                        return False
            for place in (*ready, *gone):  # Remove old files first, so that the folder never has files of two builds.
                with write_errors_named(place):
                    place.unlink(missing_ok=True)
            for place, temporary in ready.items():
                with write_errors_named(place):
                    os.replace(temporary, place)
        self.store.use(entry)
        return True

    def is_in_place(self, entry: Entry, folder: Path) -> bool:
        """Return True if a folder contains all files of an entry with the right content.

        If so, also mark the entry as used.
        """
        if self._not_in_place(entry, folder):
            return False
        self.store.use(entry)
        return True

    def _not_in_place(self, entry: Entry, folder: Path) -> list[str]:
        return [name for name, output in entry.outputs.items() if not self._is_there(folder / name, output)]

    def _is_there(self, place: Path, output: Output) -> bool:
        try:
            return place.stat().st_size == output.size and self.digests.of(place) == output.sha256
        except OSError:
            return False

    def keep(self, entry: Entry, folder: Path) -> None:
        """Store a successful build, whose files are in ``folder``.

        An error is not raised. Instead, :attr:`obstacle` is set to the reason.
        """
        try:
            for name, output in entry.outputs.items():
                self.store.keep(folder / name, output)
            self.store.add(entry)
            if self.store.is_full():
                self.store.collect()
        except (WriteError, OSError, UnicodeError) as error:
            self.obstacle = f"the cache {self.store.folder} did not keep the build: {error}"

    def reference(self, project: Project, target: str, facts: Facts, reads: Reads) -> bytes | None:
        """Return the outputs that an earlier run with equal ``facts`` and ``reads`` stored for a quantized model.

        Return None if the cache has no such outputs.
        """
        for entry in self.store.entries(project.name, target, "reference", facts):
            content = self.store.read(entry.outputs[_REFERENCE]) if entry.reads == reads else None
            if content is not None:
                self.store.use(entry)
                return content
        return None

    def keep_reference(self, project: Project, target: str, facts: Facts, reads: Reads, content: bytes) -> None:
        """Keep the outputs of a target's quantized model; if keeping fails, :attr:`obstacle` states the reason."""
        outputs = {_REFERENCE: Output(size=len(content), sha256=hashlib.sha256(content).hexdigest())}
        entry = Entry(level="reference", project=project.name, target=target, facts=facts, reads=reads, outputs=outputs)
        try:
            with TemporaryDirectory(prefix="etdev-") as folder:
                Path(folder, _REFERENCE).write_bytes(content)
                self.keep(entry, Path(folder))
        except OSError as error:  # The temporary folder could not be made or written.
            self.obstacle = f"the cache {self.store.folder} did not keep the build: {error}"

    def outputs(self, paths: Sequence[Path]) -> dict[str, Output]:
        """Return the digest and size of each file, by file name. Raises OSError."""
        return {path.name: Output(size=path.stat().st_size, sha256=file_sha256(path)) for path in paths}

    def note_changed(self, project: Project, files: Iterable[Path]) -> None:
        """Enter files in :attr:`changed`, because the build may have read their old or their new content."""
        self.changed |= {_relative(path, project.loaded.root) for path in files}

    def reads(
        self,
        project: Project,
        named: Iterable[Path],
        seen: FileAccess | None = None,
        absent: Iterable[Path] = (),
        packages: Mapping[str, str] | None = None,
    ) -> Reads:
        """Return the files, folders and packages that a build has read, with their digests and versions.

        ``named`` are source files, and files that the config refers to. ``seen`` contains the files and folders that
        the build accessed. ``absent`` are the paths, without a suffix, at which the build looked for a module and found
        none. ``packages`` maps each package that the build imported to its version.

        A file that was written after the cache was opened is entered in :attr:`changed`. The build may have read the
        file's old or new content.
        """
        root = project.loaded.root
        seen = seen or FileAccess()
        paths = {*named, *map(Path, seen.files)}
        files = sorted(path for path in paths if path.is_file())
        self.note_changed(project, (path for path in files if path.stat().st_ctime > self._since))
        try:
            found = {_relative(path, root): self.digests.of(path) for path in files}
        except OSError as error:
            cause = describe_os_error(error)[0]
            raise LoadError(
                f"cannot read a file that the build depends on: {cause}",
                where=error.filename,
                hint="make the file readable, or remove it from the config if the model does not need it",
            ) from error
        gone = {_relative(path, root): ABSENT for path in paths if not path.exists()}
        return Reads(
            files={**found, **gone},
            folders={
                _relative(Path(folder), root): digest_of_names(Path(folder), project.out)
                for folder in sorted(seen.folders)
                if Path(folder).is_dir()
            },
            absent=tuple(sorted(_relative(path, root) for path in absent)),
            packages=dict(packages or {}),
        )


def _relative(path: Path, root: Path) -> str:
    """Return a path relative to the project's folder. Resolve symbolic links if the path is outside that folder."""
    name = os.path.relpath(path, root)
    if name.startswith(os.pardir):
        name = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return name.replace(os.sep, "/")
