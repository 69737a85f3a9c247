"""Writing a new project: all of its files or none, and never over one that exists."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from etdev.errors import UsageError, WriteError
from etdev.files import TEMPORARY_SUFFIX, describe_os_error


def create_project(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write the files under ``folder``, which is made if it is missing.

    Raises :class:`UsageError` naming what is in the way, and :class:`WriteError`; in both cases nothing was written.
    """
    _refuse_existing(folder, contents)
    target = folder.resolve()
    is_new = not target.exists()
    staging = (target.parent if is_new else target) / f".{target.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    try:
        _write_all(staging, contents)
        if is_new:
            staging.rename(target)
        else:
            _move_all(staging, target, contents)
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise WriteError(f"cannot write the project: {cause}", where=str(folder), hint=remedy) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _refuse_existing(folder: Path, paths: Iterable[str]) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError("this is a file, not a folder", where=str(folder), hint="name another folder")
    existing = [path for path in paths if os.path.lexists(folder / path)]
    if existing:
        raise UsageError(
            f"would overwrite {', '.join(existing)}; nothing was written",
            where=str(folder),
            hint="name a new folder: `etdev init DIR`",
        )


def _write_all(folder: Path, contents: Mapping[str, bytes]) -> None:
    for path, content in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _move_all(source: Path, target: Path, paths: Iterable[str]) -> None:
    moved: list[Path] = []
    try:
        for path in paths:
            destination = target / path
            destination.parent.mkdir(parents=True, exist_ok=True)
            moved.append(destination)
            (source / path).rename(destination)
    except BaseException:
        for destination in moved:
            with suppress(OSError):
                destination.unlink()
        raise
