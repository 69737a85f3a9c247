"""Writing of a project's files: all or none. Existing files are replaced only if the user requests it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etdev.errors import UsageError, WriteError
from etdev.files import describe_os_error, read_file, real_path, temporary_folder

BACKUP_SUFFIX = ".bak"
"""Suffix of the backup of a replaced file. A number is appended if that name is in use."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Lines that an existing shared file lacks."""

    lines: tuple[str, ...]
    """The missing lines, without comments."""
    under: str | None
    """Existing line under which the missing lines have to be added; None if they can be at any place.

    This line is the key of a YAML list. The user must not add the key again, because YAML allows a key only once.
    """


@dataclass(frozen=True, slots=True)
class Plan:
    """Comparison between the files to write and the current content of a folder."""

    folder: Path
    new: Mapping[str, bytes]
    """Contents of the files that do not exist yet, by path."""
    different: Mapping[str, bytes]
    """New contents of the existing files that would change, by path. Writing replaces these files."""
    unchanged: tuple[str, ...]
    """Paths of the existing files that need no change."""
    additions: Mapping[str, Missing]
    """Lines that existing shared files lack, by path. The user must add them; writing does not change these files."""


def plan_project(folder: Path, contents: Mapping[str, bytes], shared: Collection[str] = ()) -> Plan:
    """Compare ``contents``, the files to write, with the current content of ``folder``.

    Files in ``shared`` may have additional content. They are written if they do not exist, and never replaced. Raises
    :class:`UsageError` if a folder exists at the path of a file, or a file at the path of a folder.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("this is a file, not a folder", where=str(folder), hint="choose another folder")
    new: dict[str, bytes] = {}
    different: dict[str, bytes] = {}
    additions: dict[str, Missing] = {}
    unchanged = []
    for path, content in contents.items():
        file = folder / path
        if not os.path.lexists(file):
            new[path] = content
        elif file.is_dir():
            raise UsageError(
                "this is a folder, but a file would be written here", where=str(file), hint="choose another folder"
            )
        elif (found := _read(file)) == content:
            unchanged.append(path)
        elif path not in shared:
            different[path] = content
        elif missing := _missing(found, content):
            additions[path] = missing
        else:
            unchanged.append(path)
    return Plan(folder, new, different, tuple(unchanged), additions)


def refuse_existing(plan: Plan) -> None:
    """Raise :class:`UsageError` with the names of the files that the plan would replace, if there are any."""
    _refuse(plan.folder, plan.different)


def _refuse(folder: Path, paths: Collection[str]) -> None:
    if paths:
        raise UsageError(
            f"the project would overwrite {', '.join(paths)}; nothing was written",
            where=str(folder),
            hint=f"choose a new folder, or use `--force`, which keeps the existing files as NAME{BACKUP_SUFFIX}",
        )


def create_project(plan: Plan, *, replace: bool = False) -> dict[str, str]:
    """Write the files of a plan to its folder, which is created if missing. Return the backups' names, by path.

    If ``replace`` is True, existing files with other content are replaced, and backups of them are kept. Otherwise,
    they cause a :class:`UsageError` with their names. Raises :class:`WriteError` if a file cannot be written. After an
    error, the folder is unchanged.
    """
    if not replace:
        refuse_existing(plan)
    _refuse(plan.folder, [path for path in plan.new if os.path.lexists(plan.folder / path)])  # New since the plan.
    contents = {**plan.new, **plan.different}
    target = real_path(plan.folder)
    is_new = not target.exists()
    try:
        with temporary_folder(target if is_new else target / target.name) as staging:
            _write_all(staging, contents)
            if is_new:
                staging.rename(target)
                return {}
            backups = {path: _backup_of(target, path) for path in plan.different}
            _move_all(staging, target, contents, backups)
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise WriteError(f"cannot write the project: {cause}", where=str(plan.folder), hint=remedy) from error
    return backups


def _read(file: Path) -> bytes | None:
    """Return the content of a file, or None if the file cannot be read."""
    try:
        return read_file(file)
    except OSError:
        return None


def _missing(found: bytes | None, wanted: bytes) -> Missing | None:
    """Return the wanted lines that a file lacks, or None if it contains all of them. Ignore indentation.

    The wanted lines may be a list under a key. If the file lacks one entry of the list, return all entries, because
    the list works only as a whole.
    """
    lines = [line for line in wanted.decode().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    there = {line.split(" #")[0].strip() for line in (found or b"").decode(errors="replace").splitlines()}
    absent = tuple(line for line in lines if line.strip() not in there)
    if not absent:
        return None
    if not lines[0].endswith(":"):
        return Missing(absent, None)
    key = lines[0].removesuffix(":")
    has_key = any(line.partition(":")[0] == key for line in there)
    return Missing(tuple(lines[1:]), lines[0]) if has_key else Missing(tuple(lines), None)


def _backup_of(folder: Path, path: str) -> str:
    """Return the first unused name for a backup of a file."""
    name, number = f"{path}{BACKUP_SUFFIX}", 1
    while os.path.lexists(folder / name):
        number += 1
        name = f"{path}{BACKUP_SUFFIX}{number}"
    return name


def _write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    for path, content in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _move_all(source: Path, target: Path, paths: Iterable[str], backups: Mapping[str, str]) -> None:
    """Move all files to their final paths. If a step fails, undo all steps in reverse order."""
    with ExitStack() as undo:
        for path in paths:
            destination = target / path
            _make_folders(destination.parent, undo)
            if path in backups:
                backup = target / backups[path]
                undo.callback(_if_possible, partial(backup.rename, destination))
                destination.rename(backup)
            undo.callback(_if_possible, destination.unlink)
            (source / path).rename(destination)
        undo.pop_all()


def _make_folders(folder: Path, undo: ExitStack) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent, undo)
        undo.callback(_if_possible, folder.rmdir)
        folder.mkdir()


def _if_possible(step: Callable[[], object]) -> None:
    with suppress(OSError):
        step()
