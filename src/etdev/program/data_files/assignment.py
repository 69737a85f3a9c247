"""Assignment of a program's external data to data files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from etdev.program.data_files.external import externalize, internalize, take_named, without_constant_names
from etdev.program.flat_tensor.model import FlatTensor, TensorLayout
from etdev.program.model import Program

Keys: TypeAlias = Mapping[str, TensorLayout | None]
"""Maps the name of data in one file to a tensor layout. The layout is None if the data is not a tensor."""


def merge_data_files(parts: Iterable[Mapping[str, Keys]]) -> dict[str, Keys]:
    """Merge the data files that the backends of several methods request.

    If several files contain the same name, only the first file stores the data. ExecuTorch does the same.
    """
    taken: set[str] = set()
    merged: dict[str, dict[str, TensorLayout | None]] = {}
    for part in parts:
        for name, keys in part.items():
            new = {key: layout for key, layout in keys.items() if key not in taken}
            if new:
                merged.setdefault(name, {}).update(new)
                taken.update(new)
    return dict(merged)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Data files of one program. Names are plain file names in the folder of the program."""

    delegates: Mapping[str, Keys] = field(default_factory=lambda: MappingProxyType({}))
    """Data files that backends request. Maps the name of a file to the names and layouts of its data."""
    weights: str | None = None
    """Name of the file for constants and all other movable data, or None to keep that data in the program."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all files, sorted."""
        return tuple(sorted({*self.delegates, *([] if self.weights is None else [self.weights])}))

    def split(self, program: Program) -> tuple[Program, dict[str, FlatTensor]]:
        """Move data out of a program. Return the program without that data, and a sorted map from names to files.

        A constant that stays in the program loses its name, because no runtime reads the name.

        Raises :class:`~etdev.errors.ProgramError` if constants must move and some of the program's data is already in
        another file.
        """
        files: dict[str, FlatTensor] = {}
        for name, keys in self.delegates.items():
            program, files[name] = take_named(program, keys)
        if self.weights is None:
            program = without_constant_names(program)
        else:
            reserved = {key for keys in self.delegates.values() for key in keys}
            program, files[self.weights] = externalize(program, reserved)
        return program, dict(sorted(files.items()))

    def joined(self, program: Program) -> Program:
        """Move data out of a program and back. The result is the program that a reader gets from the split files."""
        program, files = self.split(program)
        return internalize(program, *files.values()) if files else program
