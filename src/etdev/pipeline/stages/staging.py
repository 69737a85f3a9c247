"""Staged files: a target's files stay at temporary paths until all of them are accepted or rejected."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from etdev.errors import WriteError
from etdev.files import file_sha256, temporary_file, temporary_folder, write_errors_named
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import (
    REJECTED_SUFFIX,
    object_place,
    operators_place,
    record_place,
    report_place,
    reported_data,
    sidecar_place,
)


class StagedFile:
    """A file at a temporary path next to ``target``, its final path, until the file is accepted or rejected.

    This is a context manager. If the block ends earlier, because of an error or Ctrl-C, the temporary file is removed.
    The file at ``target`` is then unchanged.
    """

    path: Path
    """The temporary path; set on entry."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.rejected = target.with_name(target.name + REJECTED_SUFFIX)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with write_errors_named(self.target):
            self.path = self._stack.enter_context(temporary_file(self.target))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def accept(self) -> Path:
        """Move the file to its final path, and remove any rejected file that an earlier build left."""
        return self._settle(self.target, self.rejected)

    def reject(self) -> Path:
        """Move the file to ``NAME.pte.rejected``, and remove an earlier build's file at the final path.

        If the earlier file stayed, it could be mistaken for the new one.
        """
        return self._settle(self.rejected, self.target)

    def withdraw(self) -> None:
        """Remove an earlier build's accepted or rejected file.

        The new file stays at its temporary path, and can still be accepted.
        """
        with write_errors_named(self.target):
            self.target.unlink(missing_ok=True)
            self.rejected.unlink(missing_ok=True)

    def is_in_place(self) -> bool:
        """Return True if the file at the final path already has the same bytes."""
        with write_errors_named(self.target):
            same_size = self.target.is_file() and self.target.stat().st_size == self.path.stat().st_size
            return same_size and file_sha256(self.target) == file_sha256(self.path)

    def _settle(self, place: Path, other: Path) -> Path:
        with write_errors_named(place):
            os.replace(self.path, place)
            other.unlink(missing_ok=True)
        return place


class StagedObjects:
    """The files of a target's object program in a temporary folder, until they are moved; a context manager."""

    folder: Path
    """The temporary folder; set on entry."""

    def __init__(self, project: Project, target: str) -> None:
        self._place = object_place(project, target)
        self._has_record = project.config.targets[target].etrecord
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with write_errors_named(self._place):
            self.folder = self._stack.enter_context(temporary_folder(self._place))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    @contextmanager
    def places_named(self) -> Iterator[None]:
        """In write errors from the block, replace the path of a temporary file by the file's final path.

        Errors about files in other folders are unchanged.
        """
        try:
            yield
        except WriteError as error:
            path = Path(error.where or "")
            if path.parent != self.folder:
                raise
            raise WriteError(error.message, where=str(self._place.with_name(path.name)), hint=error.hint) from error

    def settle(self, program: StagedFile) -> None:
        """Move the files to their final paths.

        If there are no files to move, the object program of an earlier build stays. ``program`` is the staged linked
        program. An earlier linked program is removed before the object program changes.
        """
        last = sidecar_place(self._place).name  # If this file exists, all files belong together.
        new = sorted((path.name for path in self.folder.iterdir()), key=lambda name: (name == last, name))
        record = record_place(self._place)
        gone = [record] if not self._has_record and record.exists() else []
        if new or gone:
            program.withdraw()
        for place in (*(self._place.with_name(name) for name in reversed(new)), *gone):
            with write_errors_named(place):
                place.unlink(missing_ok=True)
        for name in new:
            place = self._place.with_name(name)
            with write_errors_named(place):
                os.replace(self.folder / name, place)


class StagedTarget:
    """All files of a target at temporary paths; a context manager.

    ``data`` are the names of the target's data files. The files are moved in an order that never leaves files of two
    builds together at the final paths.
    """

    def __init__(self, project: Project, target: str, objects: StagedObjects, data: Sequence[str] = ()) -> None:
        place, settings = project.artifact(target), project.config.targets[target]
        self.program = StagedFile(place)
        self.data = {name: StagedFile(place.with_name(name)) for name in data}
        self.record = StagedFile(record_place(place))
        self.operators = StagedFile(operators_place(place))
        self._report = StagedFile(report_place(project, target))
        self._objects = objects
        self._beside = ((self.record, settings.etrecord), (self.operators, settings.selected_operators))
        self._left = [old for old, _ in reported_data(project, target) if old.name not in data]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for file in (self.program, *self.data.values(), self.record, self.operators, self._report):
                stack.enter_context(file)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def write_report(self, text: str) -> None:
        """Write the report to its temporary path; :meth:`settle` moves it last."""
        with write_errors_named(self._report.target):
            self._report.path.write_text(text, encoding="utf-8")

    def settle(self, *, rejected: bool) -> Path:
        """Move all files to their final paths, and return the path of the program.

        Before a file is replaced, remove the earlier build's files that need or describe it. Move the new versions of
        those files last. If ``rejected``, append ``.rejected`` to the names of the program and its data files.
        """
        self._withdraw_others()
        self._report.withdraw()
        self._objects.settle(self.program)
        place = self._reject() if rejected else self._accept()
        self._report.accept()
        return place

    def _accept(self) -> Path:
        """Move all files to their final paths: first the data files, then the program, then the other files.

        If a data file changes, first remove the program of the earlier build.
        """
        changed = [file for file in self.data.values() if not file.is_in_place()]
        if changed:
            self.program.withdraw()
        for file in changed:
            file.withdraw()
        for file in changed:
            file.accept()
        place = self.program.accept()
        for file, wanted in self._beside:
            if wanted:
                file.accept()
        return place

    def _reject(self) -> Path:
        place = self.program.reject()
        for file in self.data.values():
            file.reject()
        return place

    def _withdraw_others(self) -> None:
        for file, _ in self._beside:
            file.withdraw()
        for old in self._left:
            if old.exists():
                self.program.withdraw()
            StagedFile(old).withdraw()
