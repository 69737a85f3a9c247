"""Files of a target that stand beside their places until all of them are accepted or rejected."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from etdev.files import file_sha256, temporary_beside, write_errors_named
from etdev.pipeline.places import REJECTED_SUFFIX, operators_place, record_place, reported_data
from etdev.pipeline.project import Project


class StagedFile:
    """A file that stands beside its place until it is accepted or rejected; gone if neither happens.

    A context manager: leaving it without a verdict (an error, Ctrl-C) removes the file and leaves whatever stood at
    ``target`` as it was.
    """

    path: Path
    """Where the file stands until the verdict; known once entered."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.rejected = target.with_name(target.name + REJECTED_SUFFIX)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with write_errors_named(self.target):
            self.path = self._stack.enter_context(temporary_beside(self.target))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def accept(self) -> Path:
        """Put the file at its place; a rejected one of an earlier build goes."""
        return self._settle(self.target, self.rejected)

    def reject(self) -> Path:
        """Put the file beside its place as ``NAME.pte.rejected``; the artifact of an earlier build goes, so that nobody
        takes it for this one."""
        return self._settle(self.rejected, self.target)

    def withdraw(self) -> None:
        """Remove what stands at the place, and what was rejected; this file may still take the place."""
        with write_errors_named(self.target):
            self.target.unlink(missing_ok=True)
            self.rejected.unlink(missing_ok=True)

    def stands(self) -> bool:
        """Are the bytes of this file at the place already?"""
        with write_errors_named(self.target):
            same_size = self.target.is_file() and self.target.stat().st_size == self.path.stat().st_size
            return same_size and file_sha256(self.target) == file_sha256(self.path)

    def _settle(self, place: Path, other: Path) -> Path:
        with write_errors_named(place):
            os.replace(self.path, place)
            other.unlink(missing_ok=True)
        return place


class StagedTarget:
    """The files of a target, ``data`` are names of its data files: at no time does one stand at its place beside the
    program of another build.

    A context manager, as :class:`StagedFile` is.
    """

    def __init__(self, project: Project, target: str, data: Sequence[str] = ()) -> None:
        place, settings = project.artifact(target), project.config.targets[target]
        self.program = StagedFile(place)
        self.data = {name: StagedFile(place.with_name(name)) for name in data}
        self.record = StagedFile(record_place(place))
        self.operators = StagedFile(operators_place(place))
        self._beside = ((self.record, settings.etrecord), (self.operators, settings.selected_operators))
        self._left = [old for old, _ in reported_data(project, target) if old.name not in data]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for file in (self.program, *self.data.values(), self.record, self.operators):
                stack.enter_context(file)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stack.close()

    def accept(self) -> Path:
        """Put all files at their places and return the program's. Data files come before the program that needs them,
        and the program of the last build goes before one of them changes."""
        self._withdraw_others()
        changed = [file for file in self.data.values() if not file.stands()]
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

    def reject(self) -> Path:
        """Put program and data files next to their places, with ``.rejected`` added to their names, and return the
        program's. Files of the last build go."""
        self._withdraw_others()
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
