"""Locks on output folders: only one build at a time may build a target in a folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from etdev.files import locked, write_errors_named
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import WAIT, Progress


@contextmanager
def exclusive_outputs(project: Project, targets: Sequence[str], progress: Progress) -> Iterator[None]:
    """Prevent other builds from using the folders of these targets during the block.

    First wait until running builds of these targets end. On exit, remove folders that did not exist before the block
    and are empty. Raises :class:`~etdev.errors.WriteError`.
    """
    with ExitStack() as stack:
        folders = [project.out, *(project.out / name for name in targets)]
        stack.callback(_remove_empty, [folder for folder in folders if not folder.exists()])
        for name in sorted(targets):  # The order is the same in every build, to prevent deadlocks.
            stack.enter_context(_exclusive(project.out, name, progress))
        yield


@contextmanager
def exclusive_lock_file(project: Project) -> Iterator[None]:
    """Keep other builds from using the config's lock during the block, which reads and writes the lock.

    Raises :class:`~etdev.errors.WriteError`.
    """
    with ExitStack() as stack:
        with write_errors_named(project.lock):
            stack.enter_context(locked(_held_place(project), lambda holder: None))
        yield


def is_lock_file_held(project: Project) -> bool:
    """Return True if another build uses the config's lock, or was killed while it did.

    In the second case, :func:`exclusive_lock_file` removes the file that this build left.
    """
    return _held_place(project).is_file()


def _held_place(project: Project) -> Path:
    return project.lock.with_name(f".{project.lock.name}.held")


@contextmanager
def _exclusive(out: Path, name: str, progress: Progress) -> Iterator[None]:
    began: list[float] = []

    def wait(holder: int | None) -> None:
        began.append(time.perf_counter())
        progress.started(name, WAIT if holder is None else f"{WAIT} (process {holder})")

    with ExitStack() as stack:
        with write_errors_named(out / name):
            stack.enter_context(locked(out / f".{name}.building", wait))
        if began:
            progress.finished(name, WAIT, time.perf_counter() - began[0])
        yield


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()
