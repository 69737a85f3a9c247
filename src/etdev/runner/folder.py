"""Writing of a project's files to a folder that may also contain files of the user."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from etdev.errors import UsageError, WriteError
from etdev.files import atomic_write_bytes, describe_os_error, read_file, real_path, temporary_folder

MANIFEST = ".etdev-runner.json"
"""Name of the file in which etdev records the names and digests of the files that it wrote."""
_FORMAT = 1


def write_project(folder: Path, contents: Mapping[str, bytes], made_from: str = "") -> tuple[str, ...]:
    """Write a project's files to a folder. Return the names of the files that changed.

    ``made_from`` is a digest of everything that determines the files, for :func:`is_made_from`. A missing folder is
    created together with all of its files. In an existing folder, each file is replaced atomically.

    A file is replaced or removed only if etdev wrote the file and its content is unchanged since then. If the project
    would replace any other file, nothing is written, and :class:`~etdev.errors.UsageError` is raised. Raises
    :class:`~etdev.errors.WriteError` if a file cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError("this is a file, not a folder", where=str(folder), hint="choose another folder")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    own = _own_files(folder)
    _refuse_others(folder, digests, own)
    target = real_path(folder)
    if not target.exists():
        _write_new(target, contents, {name: [digest] for name, digest in digests.items()}, made_from)
        return tuple(contents)
    gone = [name for name, known in own.items() if name not in contents and _digest(folder / name) in known]
    changed = [name for name in contents if _digest(folder / name) != digests[name]]
    if changed or gone:
        # If this process ends early, the next one needs the digests of old and new files to recognize them.
        both = {
            name: sorted({*own.get(name, ()), *([digests[name]] if name in digests else [])})
            for name in {*own, *digests}
        }
        _write_manifest(target, both, "")
        for name in changed:
            atomic_write_bytes(target / name, contents[name])
        for name in gone:
            _remove(target / name)
    _write_manifest(target, {name: [digest] for name, digest in digests.items()}, made_from)
    return tuple(changed)


def is_made_from(folder: Path, made_from: str) -> bool:
    """Return True if a folder has a project with the digest ``made_from``, and all of its files are unchanged."""
    try:
        data = json.loads(read_file(folder / MANIFEST))
        listed = dict(data["files"])
        same = data["format"] == _FORMAT and data["made_from"] == made_from
        return same and all(known == [_digest(folder / name)] for name, known in listed.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def remove_project(folder: Path) -> None:
    """Remove the unchanged files that etdev wrote to a folder. If the folder becomes empty, remove the folder, too.

    Raises :class:`~etdev.errors.UsageError` if the list of files is invalid, and :class:`~etdev.errors.WriteError` if a
    file cannot be removed.
    """
    if not os.path.lexists(folder / MANIFEST):
        return
    for name, known in _own_files(folder).items():
        if _digest(folder / name) in known:
            _remove(folder / name)
    _remove(folder / MANIFEST)
    with suppress(OSError):
        folder.rmdir()


def _own_files(folder: Path) -> dict[str, list[str]]:
    """Return ``{file name: recorded digests}`` for the files that etdev wrote to a folder."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return {}
    try:
        data = json.loads(read_file(path))
        if data["format"] == _FORMAT:
            return {str(name): [str(digest) for digest in known] for name, known in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UsageError(
        "this is not a list of files that this version of etdev can read",
        where=str(path),
        hint="remove this file and the other files of the old project, or choose another folder",
    )


def _refuse_others(folder: Path, digests: Mapping[str, str], own: Mapping[str, Collection[str]]) -> None:
    """Raise :class:`UsageError` if the project would replace files of the user."""
    there = {name: _digest(folder / name) for name in digests if os.path.lexists(folder / name)}
    changed = [name for name, found in there.items() if found != digests[name] and found not in own.get(name, ())]
    if changed:
        how = "etdev wrote and someone changed" if set(changed) <= set(own) else "etdev did not write"
        raise UsageError(
            f"the project would overwrite {', '.join(changed)}, which {how}; nothing was written",
            where=str(folder),
            hint="choose another folder, or move these files away",
        )


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file; None if the path is not a readable regular file."""
    if path.is_symlink():
        return None
    try:
        return hashlib.sha256(read_file(path)).hexdigest()
    except OSError:
        return None


def _write_new(target: Path, contents: Mapping[str, bytes], digests: Mapping[str, list[str]], made_from: str) -> None:
    try:
        with temporary_folder(target) as staging:
            for name, content in contents.items():
                (staging / name).write_bytes(content)
            (staging / MANIFEST).write_bytes(_manifest(digests, made_from))
            staging.rename(target)
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise WriteError(f"cannot write the project: {cause}", where=str(target), hint=remedy) from error


def _write_manifest(target: Path, files: Mapping[str, list[str]], made_from: str) -> None:
    content = _manifest(files, made_from)
    if _digest(target / MANIFEST) != hashlib.sha256(content).hexdigest():
        atomic_write_bytes(target / MANIFEST, content)


def _manifest(files: Mapping[str, list[str]], made_from: str) -> bytes:
    data = {"format": _FORMAT, "made_from": made_from, "files": dict(sorted(files.items()))}
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise WriteError(f"cannot remove the file: {cause}", where=str(path), hint=remedy) from error
