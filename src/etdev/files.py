"""Reading of regular files, atomic writing (a file is written completely or not at all), and the cache's folder."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from platformdirs import user_cache_path

from etdev.errors import WriteError

CACHE_VARIABLE = "ETDEV_CACHE_DIR"
"""Environment variable for the path of the cache's folder."""

TEMPORARY_SUFFIX = ".etdev-tmp"
"""Suffix of unfinished files and folders. The next write removes leftovers of killed processes."""

_TOKEN = rf"(\d+)-[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}"
"""Pattern of the end of a temporary name: process id, random digits, suffix."""

_DESCRIPTOR = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")
"""Pattern of the paths under ``/proc`` that represent an open file descriptor."""

_MOST_LINKS = 40
"""Maximum number of symbolic links that Linux follows in one path."""

_CAUSES = {
    errno.ENOSPC: ("no space left on the device", "free some space, or write to another place"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or write to another place"),
    errno.EFBIG: ("the file exceeds the size limit of this process", "raise the limit (`ulimit -f`)"),
    errno.EIO: ("the disk or its connection reports an error", "check the disk, or use another one"),
    errno.EACCES: ("permission denied", "check who owns the folder, or write to another place"),
    errno.EPERM: ("permission denied", "check who owns the folder, or write to another place"),
    errno.EROFS: ("the file system is read-only", "write to another place"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "remove that file, or write to another place"),
    errno.EEXIST: ("a part of the path is a file, not a folder", "remove that file, or write to another place"),
    errno.EISDIR: ("this is a folder", "use the path of a file"),
    errno.ENAMETOOLONG: ("the name is too long for the file system", "choose a shorter name"),
}


_SPECIAL = ("this is a pipe, a device or a socket", "name a regular file")


def describe_os_error(error: OSError) -> tuple[str, str | None]:
    """Return the tuple (cause of a failed read or write, hint). The hint may be None."""
    if isinstance(error, SpecialFileError):
        return _SPECIAL
    fallback = (error.strerror or str(error) or type(error).__name__, None)
    return _CAUSES.get(error.errno or 0, fallback)


class SpecialFileError(OSError):
    """Error for a path to a pipe, a device or a socket where a regular file is expected."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading. If the path is a pipe, the call fails without waiting. Raises OSError."""
    if _is_special(os.stat(path)):  # Check before opening, because opening some devices has side effects.
        raise SpecialFileError(errno.EINVAL, _SPECIAL[0], os.fspath(path))
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    if _is_special(os.fstat(file.fileno())):
        file.close()
        raise SpecialFileError(errno.EINVAL, _SPECIAL[0], os.fspath(path))
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _is_special(status: os.stat_result) -> bool:
    """Return whether a status describes a special file: neither a regular file nor a folder."""
    return not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError."""
    with open_file(path) as file:
        return file.read()


@contextmanager
def atomic_path(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary file next to ``path``. When the block succeeds, the temporary file replaces ``path``.

    The file at ``path`` does not change before the block ends, and does not change if the block fails. Missing folders
    are created. A character device or a pipe cannot be replaced. For such a ``path``, yield ``path`` itself. Raises
    :class:`WriteError` for failed writes. All other exceptions of the block propagate.

    If ``durable`` is False, this function does not wait for the disk. In that case, content of the new file may be
    missing after a power failure. Readers of the file must check for this.
    """
    if _is_stream(path):
        with write_errors_named(path, (None, os.fspath(path))):
            yield path
        return
    target = Path(os.path.realpath(path))
    with ExitStack() as stack:
        with write_errors_named(path):
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(target))
            temporary = stack.enter_context(temporary_file(target))
        with write_errors_named(path, (None, os.fspath(temporary))):
            yield temporary
        with write_errors_named(path):
            if durable:
                wait_for_disk(temporary)
            os.replace(temporary, target)


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """Yield a new, empty file next to ``target``. When the block ends, the file is removed unless it was renamed.

    The file's name contains the writer's process id, and the file is locked during the block. So other processes do not
    mistake the file for a leftover of a killed process. Leftovers for the same ``target`` are removed, and missing
    folders are created. Raises OSError.
    """
    temporary = _new_temporary_name(target)
    try:
        with temporary.open("xb") as held:
            with suppress(OSError):  # Not every file system has locks.
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def temporary_folder(target: Path) -> Iterator[Path]:
    """Yield a new, empty folder next to ``target``. The folder is locked and removed like a temporary file."""
    temporary = _new_temporary_name(target)
    try:
        temporary.mkdir()
        held = os.open(temporary, os.O_RDONLY)
        try:
            with suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield temporary
        finally:
            os.close(held)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _new_temporary_name(target: Path) -> Path:
    """Create the parent folder, remove leftover temporary files, and return an unused name next to ``target``."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent, _temporary_prefix(target))
    token = f"{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f"{_temporary_prefix(target)}{token}{TEMPORARY_SUFFIX}")


@contextmanager
def locked(place: Path, wait: Callable[[int | None], None]) -> Iterator[None]:
    """Hold an exclusive lock on the file ``place`` during the block. The file exists only while the lock is held.

    The lock also excludes other threads of this process. The system releases the lock when the holding process ends. If
    another process has the lock, ``wait`` is called once. Its argument is that process's id, or None if the id is
    unknown. On a file system without locks, the block runs without a lock. Missing folders are created. Raises OSError.
    """
    descriptor = _locked_descriptor(place, wait)
    _LOCKS.add(descriptor)
    try:
        yield
    finally:
        with suppress(OSError):  # If the file stays, the next holder uses it again.
            place.unlink()
        _LOCKS.discard(descriptor)
        os.close(descriptor)


def _locked_descriptor(place: Path, wait: Callable[[int | None], None]) -> int:
    told = False
    while True:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            if place.parent.is_dir():
                raise
            continue
        try:
            if _is_taken(descriptor):
                if not told:
                    holder = os.pread(descriptor, 20, 0).decode("ascii", "ignore")
                    wait(int(holder) if holder.isdigit() else None)
                    told = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_file_at(place, descriptor):
                with suppress(OSError):  # The disk is full. The process id is only information for others.
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_taken(descriptor: int) -> bool:
    """Try to lock an open file. Return True if another process or thread has the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_file_at(place: Path, descriptor: int) -> bool:
    """Return whether the open file is still at ``place``. The previous holder of the lock may have removed the file."""
    try:
        return os.path.samestat(os.stat(place), os.fstat(descriptor))
    except FileNotFoundError:
        return False


_LOCKS: set[int] = set()
"""File descriptors of the locks that this process holds."""


def _close_inherited_locks() -> None:
    """Close the lock files that a forked child inherits. Otherwise, the parent process could not release the locks."""
    for descriptor in _LOCKS:
        with suppress(OSError):
            os.close(descriptor)
    _LOCKS.clear()


os.register_at_fork(after_in_child=_close_inherited_locks)


def atomic_write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write bytes to a file, completely or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(content)


def atomic_write_text(path: Path, content: str) -> None:
    r"""Write a UTF-8 text file with ``\n`` line ends, completely or not at all."""
    atomic_write_bytes(path, content.encode("utf-8"))


def cache_folder() -> Path:
    """Return the folder of this user's cache. It may not exist yet."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named).absolute() if named else user_cache_path("etdev", appauthor=False)


def real_path(path: str | Path) -> Path:
    """Return the absolute path without symbolic links. A link that points to itself is returned unchanged."""
    return Path(os.path.realpath(path))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal. Raises OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_stream(path: Path) -> bool:
    """Return whether ``path`` is a character device or a pipe. Such a file is written directly and never replaced.

    Raises :class:`WriteError` for a block device, a socket, and an open descriptor of a file.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # The write that follows reports the error.
        return False
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        kind = "a block device" if stat.S_ISBLK(mode) else "a socket"
        raise WriteError(
            f"cannot write the file: this is {kind}", where=os.fspath(path), hint="write to a regular file"
        )
    opened = _open_file_named_by(path)
    if opened is not None:
        raise WriteError(
            f"cannot write the file: this is an open descriptor of the file {opened}",
            where=os.fspath(path),
            hint="write to the file by its own name, or redirect into a pipe (`| cat > FILE`)",
        )
    return False


def _open_file_named_by(path: Path) -> str | None:
    """Return the name of the open file to which ``path`` refers through ``/proc``, or None if there is no such file.

    For example, ``/dev/stdout`` refers to an open file if stdout is redirected to a file. An open file cannot be
    replaced, because the process that opened it would continue to write to the old file.
    """
    link = os.path.abspath(path)
    for _ in range(_MOST_LINKS):
        place = os.path.join(os.path.realpath(os.path.dirname(link)), os.path.basename(link))
        if not os.path.islink(place):
            return None
        target = os.readlink(place)
        if _DESCRIPTOR.fullmatch(place):
            return target
        link = os.path.join(os.path.dirname(place), target)
    return None


def _temporary_prefix(target: Path) -> str:
    return f".{os.fsencode(target.name)[:200].decode(errors='ignore')}."  # File systems allow 255 bytes.


def remove_abandoned(folder: Path, prefix: str | None = None) -> None:
    """Remove temporary files of killed processes in a folder.

    If ``prefix`` is given, remove only two kinds of temporary files: those whose names begin with ``prefix``, and those
    that would have replaced such a file.
    """
    mine = r"\..*\." if prefix is None else re.escape(prefix)
    ours = re.compile(rf"(?:{mine}|\.{mine}{_TOKEN}\.){_TOKEN}", re.DOTALL)
    with suppress(OSError):
        for path in folder.iterdir():
            found = ours.fullmatch(path.name)
            if found and not is_alive(int(found[found.re.groups])):
                _remove_unless_locked(path)


def is_alive(process: int) -> bool:
    """Return whether a process of this machine is alive. The process may belong to another user."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # The process belongs to another user.
        return True
    return True


def _remove_unless_locked(path: Path) -> None:
    """Remove a temporary file or folder unless its writer has locked it.

    The writer may run in another container. There, the process ids are different, but the lock is visible here, too.
    """
    with suppress(OSError):
        is_folder = path.is_dir() and not path.is_symlink()
        descriptor = os.open(path, (os.O_RDONLY if is_folder else os.O_RDWR) | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_folder:
                shutil.rmtree(path)
            else:
                path.unlink()
        finally:
            os.close(descriptor)


def wait_for_disk(path: Path) -> None:
    """Wait until the disk has the content of a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_errors_named(path: Path, files: tuple[str | None, ...] | None = None) -> Iterator[None]:
    """Inside the block, convert an OSError to a WriteError about ``path``.

    If ``files`` is given, convert only errors about one of these files. None in ``files`` matches errors without a file
    name, such as errors of ``write``.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if files is not None and error.filename not in files:
            raise
        cause, remedy = describe_os_error(error)
        raise WriteError(f"cannot write the file: {cause}", where=os.fspath(path), hint=remedy) from error
