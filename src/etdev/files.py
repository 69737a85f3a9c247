"""Reading of regular files, and writing of files completely or not at all."""

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

from etdev.errors import WriteError

TEMPORARY_SUFFIX = ".etdev-tmp"
"""Suffix of every unfinished file or folder. The next write removes those of killed processes."""

_TOKEN = rf"(\d+)-[0-9a-f]{{8}}{re.escape(TEMPORARY_SUFFIX)}"
"""Pattern for the end of such a name: the process id, and a random part."""

_DESCRIPTOR = re.compile(r"/proc/\d+/(task/\d+/)?fd/\d+")
"""Pattern of Linux's links that open the file of an open descriptor."""

_MOST_LINKS = 40
"""Largest number of links that the system follows in a row."""

_CAUSES = {
    errno.ENOSPC: ("no space left on the device", "free some space, or write to another place"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or write to another place"),
    errno.EFBIG: ("the file is larger than this process may write", "raise the limit (`ulimit -f`)"),
    errno.EACCES: ("permission denied", "check who owns the folder, or write to another place"),
    errno.EPERM: ("permission denied", "check who owns the folder, or write to another place"),
    errno.EROFS: ("the file system is read-only", "write to another place"),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "remove that file, or write to another place"),
    errno.EEXIST: ("a part of the path is a file, not a folder", "remove that file, or write to another place"),
    errno.EISDIR: ("this is a folder", "name a file"),
    errno.ENAMETOOLONG: ("the name is too long for the file system", "choose a shorter name"),
}


_SPECIAL = ("this is a pipe, a device or a socket", "name a file")


def describe_os_error(error: OSError) -> tuple[str, str | None]:
    """Return the cause of a failed read or write, and its remedy, in words."""
    if isinstance(error, SpecialFileError):
        return _SPECIAL
    fallback = (error.strerror or str(error) or type(error).__name__, None)
    return _CAUSES.get(error.errno or 0, fallback)


class SpecialFileError(OSError):
    """Error for a path to read that is a pipe, a device or a socket."""


def open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError. Never waits, as opening a pipe without a writer does."""
    if _is_special(os.stat(path)):  # Opening some devices has effects.
        raise SpecialFileError(errno.EINVAL, _SPECIAL[0], os.fspath(path))
    file = open(path, "rb", opener=_open_at_once)  # noqa: SIM115 - the caller closes it
    if _is_special(os.fstat(file.fileno())):
        file.close()
        raise SpecialFileError(errno.EINVAL, _SPECIAL[0], os.fspath(path))
    return file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _is_special(status: os.stat_result) -> bool:
    """Return whether this is neither a file nor a folder. Opening a folder fails anyway."""
    return not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError."""
    with open_file(path) as file:
        return file.read()


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Provide a temporary file next to ``path``, which replaces it when the block succeeds and is removed otherwise.

    Until the block ends, the file at ``path`` does not change. Missing folders are made. A character device or a pipe
    cannot be replaced: for these the block gets ``path`` itself. Raises :class:`WriteError`. Exceptions of the block
    that are not about writing the file pass through.
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
            temporary = stack.enter_context(temporary_beside(target))
        with write_errors_named(path, (None, os.fspath(temporary))):
            yield temporary
        with write_errors_named(path):
            _put_in_place(temporary, target)


@contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """Provide a new, empty file next to ``target``, which is removed when the block ends unless it was renamed.

    Its name has the process id of the writer, and the file is locked during the block. This distinguishes it from the
    leftovers of killed processes. Leftovers of the same ``target`` are removed. Missing folders are made. Raises
    OSError.
    """
    temporary = _new_name_beside(target)
    try:
        with temporary.open("xb") as held:
            with suppress(OSError):  # Not every file system has locks.
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield temporary
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def temporary_folder_beside(target: Path) -> Iterator[Path]:
    """Provide a new, empty folder next to ``target``, otherwise like the file of :func:`temporary_beside`."""
    temporary = _new_name_beside(target)
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


def _new_name_beside(target: Path) -> Path:
    """Return an unused name next to ``target``, after making its folder and removing leftovers."""
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(target.parent, _temporary_prefix(target))
    token = f"{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f"{_temporary_prefix(target)}{token}{TEMPORARY_SUFFIX}")


@contextmanager
def locked(place: Path, wait: Callable[[int | None], None]) -> Iterator[None]:
    """Hold an exclusive lock, also between threads of a process. The file ``place`` exists meanwhile.

    The system frees the lock when its holder ends, in any way. If the lock is taken, ``wait`` is called once with the
    process that holds it (None if that is not known). A file system without locks locks nothing. Missing folders are
    made, since the last holder may have removed an empty one. Raises OSError.
    """
    descriptor = _locked_descriptor(place, wait)
    _LOCKS.add(descriptor)
    try:
        yield
    finally:
        with suppress(OSError):  # A waiting process checks whether the file still exists.
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
                with suppress(OSError):  # A full disk. The content only tells other processes who holds the lock.
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_taken(descriptor: int) -> bool:
    """Try to lock an open file; return whether another holder has the lock. Not every file system has locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _is_file_at(place: Path, descriptor: int) -> bool:
    """Return whether the open file is the one at ``place``. Its last holder may have removed it."""
    try:
        return os.path.samestat(os.stat(place), os.fstat(descriptor))
    except FileNotFoundError:
        return False


_LOCKS: set[int] = set()
"""Descriptors of the locks that this process holds."""


def _let_go() -> None:
    """Close the parent's locks in a forked process, which may outlive the parent."""
    for descriptor in _LOCKS:
        with suppress(OSError):
            os.close(descriptor)
    _LOCKS.clear()


os.register_at_fork(after_in_child=_let_go)


def atomic_write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file completely or not at all."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(content)


def atomic_write_text(path: Path, content: str) -> None:
    r"""Write a UTF-8 text file with ``\n`` line ends, completely or not at all."""
    atomic_write_bytes(path, content.encode("utf-8"))


def real_path(path: str | Path) -> Path:
    """Return the absolute path without symbolic links. A link to itself stays: opening it fails."""
    return Path(os.path.realpath(path))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal. Raises OSError."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_stream(path: Path) -> bool:
    """Return whether ``path`` is a character device or a pipe. Only its status decides, never its folder.

    Raises :class:`WriteError` for a file that can neither take a stream of bytes nor be replaced as a whole.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # Writing reports the problem.
        return False
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        kind = "a block device" if stat.S_ISBLK(mode) else "a socket"
        raise WriteError(f"cannot write the file: this is {kind}", where=os.fspath(path), hint="name a file")
    opened = _open_file_named_by(path)
    if opened is not None:
        raise WriteError(
            f"cannot write the file: this is an open descriptor of the file {opened}",
            where=os.fspath(path),
            hint="name the file itself, or redirect into a pipe (`| cat > FILE`)",
        )
    return False


def _open_file_named_by(path: Path) -> str | None:
    """Return the file of ``/dev/stdout`` and the like. A process that has it open continues to write to it."""
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
    """Remove leftovers of killed processes in a folder: all, or those whose names begin with ``prefix``."""
    ours = re.compile((r"\..*\." if prefix is None else re.escape(prefix)) + _TOKEN, re.DOTALL)
    with suppress(OSError):
        for path in folder.iterdir():
            found = ours.fullmatch(path.name)
            if found and not is_alive(int(found[1])):
                _remove_unless_locked(path)


def is_alive(process: int) -> bool:
    """Return whether a process of this machine is alive, including those of other users."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # It belongs to another user.
        return True
    return True


def _remove_unless_locked(path: Path) -> None:
    """Remove a temporary file or folder unless its writer holds the lock.

    The writer may run in another container, whose process ids mean nothing here. Its lock is visible.
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


def _put_in_place(temporary: Path, target: Path) -> None:
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, target)


@contextmanager
def write_errors_named(path: Path, files: tuple[str | None, ...] | None = None) -> Iterator[None]:
    """Turn an OSError of the block into a WriteError about ``path``.

    With ``files``, only errors about one of these files are turned. None in ``files`` matches an error without a file
    name, such as that of a failed ``write``.
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
