"""Writing a project's files: all of them or none, and over one that stands there only on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etdev.errors import UsageError, WriteError
from etdev.files import describe_os_error, read_file, real_path, temporary_folder_beside

BACKUP_SUFFIX = ".bak"
"""Ends the name of what a replaced file becomes; a number follows if there is one already."""


@dataclass(frozen=True, slots=True)
class Missing:
    """What a file lacks of the lines that it should have."""

    lines: tuple[str, ...]
    """Without comments."""
    under: str | None
    """The line that the file has, and that these belong below: the key of a list, which YAML takes once only."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What writing files to a folder means, given what stands there."""

    folder: Path
    new: Mapping[str, bytes]
    """Contents by path of the files that are not there."""
    different: Mapping[str, bytes]
    """Of those that are there with another content: writing these replaces them."""
    unchanged: tuple[str, ...]
    """Paths of those that are there as they would be written."""
    additions: Mapping[str, Missing]
    """By path of a shared file, which is left alone: what it lacks."""


def plan_project(folder: Path, contents: Mapping[str, bytes], shared: Collection[str] = ()) -> Plan:
    """Compare the files to write with what stands in ``folder``.

    A file of ``shared`` belongs to more than these contents: it is written if it is not there, and never replaced.
    Raises :class:`UsageError` for a folder in the place of a file or the other way round.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("this is a file, not a folder", where=str(folder), hint="name another folder")
    new: dict[str, bytes] = {}
    different: dict[str, bytes] = {}
    additions: dict[str, Missing] = {}
    unchanged = []
    for path, content in contents.items():
        file = folder / path
        if not os.path.lexists(file):
            new[path] = content
        elif file.is_dir():
            raise UsageError("this is a folder, and would be a file", where=str(file), hint="name another folder")
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
    """Raise :class:`UsageError` naming the files that the plan would replace."""
    _refuse(plan.folder, plan.different)


def _refuse(folder: Path, paths: Collection[str]) -> None:
    if paths:
        raise UsageError(
            f"would overwrite {', '.join(paths)}; nothing was written",
            where=str(folder),
            hint=f"name a new folder, or say `--force`: what stands there is kept as NAME{BACKUP_SUFFIX}",
        )


def create_project(plan: Plan, *, replace: bool = False) -> dict[str, str]:
    """Write the files of a plan under its folder, which is made if it is missing.

    With ``replace`` the different ones, too: returns, by path, what the replaced files are called now. Raises
    :class:`UsageError` naming what is in the way, and :class:`WriteError`; in both cases nothing was written.
    """
    if not replace:
        refuse_existing(plan)
    _refuse(plan.folder, [path for path in plan.new if os.path.lexists(plan.folder / path)])  # Somebody was asked.
    contents = {**plan.new, **plan.different}
    target = real_path(plan.folder)
    is_new = not target.exists()
    try:
        with temporary_folder_beside(target if is_new else target / target.name) as staging:
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
    """None for what is no readable file, which is different from any."""
    try:
        return read_file(file)
    except OSError:
        return None


def _missing(found: bytes | None, wanted: bytes) -> Missing | None:
    """What the file lacks, whatever the indentation; None if it is nothing.

    If the lines are a list below a key, all of its entries are lacking as soon as one line is: a part means nothing.
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
    """The first name that nothing has."""
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
    """Each step is undone in reverse unless all succeed."""
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
