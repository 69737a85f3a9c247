"""``file:``: a folder on this machine. The pointer is the symbolic link ``current``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from etdev.deployment.transports.base import PIECE, SMOKE_SECONDS, CommandResult, Fingerprint, fingerprint_of, tail
from etdev.errors import DeployError
from etdev.files import describe_os_error, wait_for_disk

POINTER = "current"


class FolderTransport:
    """A folder on this machine, used as the target.

    Content is flushed to the disk before files are renamed. So after a power failure, no name refers to missing
    content.
    """

    def __init__(self, root: Path, commands_in: Path) -> None:
        self._root = root
        self._commands_in = commands_in
        """Folder in which commands of :meth:`run` are started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing, because the transport does not keep a connection open."""

    def check(self) -> None:
        nearest = self._root
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        if not nearest.is_dir():
            raise DeployError("a part of the path is a file, not a folder", where=str(nearest))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise DeployError("permission denied", where=str(nearest), hint="check who owns the folder")

    def names(self, folder: str) -> list[str]:
        with self._errors(folder):
            try:
                return sorted(os.listdir(self._root / folder))
            except FileNotFoundError:
                return []

    def read(self, path: str) -> bytes | None:
        with self._errors(path):
            try:
                return (self._root / path).read_bytes()
            except FileNotFoundError:
                return None

    def fingerprint(self, path: str) -> Fingerprint | None:
        with self._errors(path):
            try:
                with (self._root / path).open("rb") as file:
                    return fingerprint_of(iter(lambda: file.read(PIECE), b""))
            except FileNotFoundError:
                return None

    def write(self, path: str, content: bytes) -> None:
        with self._errors(path):
            place = self._root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            wait_for_disk(place)

    def upload(self, path: str, source: Path) -> None:
        with self._errors(path):
            place = self._root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, place)
            wait_for_disk(place)

    def rename(self, folder: str, to: str, last: str) -> None:
        with self._errors(to):
            (self._root / to).parent.mkdir(parents=True, exist_ok=True)
            wait_for_disk(self._root / folder)
            os.rename(self._root / folder, self._root / to)
            wait_for_disk((self._root / to).parent)

    def remove(self, path: str) -> None:
        with self._errors(path):
            place = self._root / path
            try:
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place)
                else:
                    place.unlink()
            except FileNotFoundError:
                return

    def current(self) -> str | None:
        place = self._root / POINTER
        with self._errors(POINTER):
            try:
                return os.readlink(place)
            except FileNotFoundError:
                return None
            except OSError:
                if place.exists():
                    raise DeployError(NOT_A_LINK, where=str(place), hint=REMOVE_IT) from None
                raise

    def switch(self, path: str, temporary: str) -> None:
        with self._errors(POINTER):
            (self._root / temporary).symlink_to(path)
            os.replace(self._root / temporary, self._root / POINTER)
            wait_for_disk(self._root)

    def location(self, path: str) -> str:
        return str(self._root / path)

    def run(self, command: Sequence[str], environment: dict[str, str]) -> CommandResult:
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **environment},
                cwd=self._commands_in,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=SMOKE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise DeployError(f"the command {command[0]!r} did not end within {SMOKE_SECONDS} s") from None
        except OSError as error:
            cause, _ = describe_os_error(error)
            raise DeployError(f"cannot run {command[0]!r}: {cause}", hint="name an existing program") from error
        return CommandResult(done.returncode, tail(done.stdout))

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            cause, remedy = describe_os_error(error)
            raise DeployError(cause, where=str(self._root / path), hint=remedy) from error


NOT_A_LINK = "this is not a symbolic link, so it is not a pointer of etdev"
REMOVE_IT = "deploy to a separate folder, or remove it"
