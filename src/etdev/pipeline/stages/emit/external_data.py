"""Storage of all data in the object program, including data that ExecuTorch would write to separate files.

A backend may tag data for a separate file. ExecuTorch does not write such a file together with the program. The object
program therefore contains all data. The sidecar assigns the tagged data to files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.config.types import is_data_file_name
from etdev.errors import EmitError
from etdev.files import temporary_file
from etdev.pipeline.project import Project
from etdev.pipeline.stages.emit.graphs import lowered_modules
from etdev.program import Program, flat_tensor, read, write
from etdev.program.data_files.assignment import Keys
from etdev.program.data_files.external import internalize
from etdev.program.flat_tensor import FlatTensor
from etdev.program.flat_tensor.model import SUFFIX

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager
    from torch.fx import GraphModule


def put_data_inside(
    project: Project, target: str, manager: ExecutorchProgramManager, path: Path
) -> tuple[Program, dict[str, Keys]]:
    """Put all data into the program at ``path``, including data that ExecuTorch would write to separate files.

    Returns the program, and a mapping from each separate file to the keys of its data. Raises
    :class:`~etdev.errors.EmitError` if a tag cannot be a file name.
    """
    program = read(path)
    cords: Mapping[str, Any] = manager._tensor_data or {}
    places = _file_names(project, target, cords)
    if not places:
        return program, {}
    files: dict[str, FlatTensor] = {}
    for name, tag in places.items():
        with temporary_file(path.with_name(name)) as temporary:
            with temporary.open("wb") as file:
                cords[tag].write_to_file(file)
            files[name] = flat_tensor.read(temporary)  # The file is memory-mapped, so it can be read after its removal.
    program = internalize(program, *files.values())
    write(program, path)
    inside = {item.key for item in program.named_data}  # The constants' data is not in it, because that data moved.
    keys = {
        name: {item.key: item.tensor_layout for item in data.named_data if item.key in inside}
        for name, data in files.items()
    }
    return read(path), {name: found for name, found in keys.items() if found}


def data_names(graph: GraphModule) -> tuple[str, ...]:
    """Return the names of all data that the delegates of a method look up by name, sorted."""
    found: set[str] = set()
    for module in lowered_modules(graph):
        stored = module.named_data_store_output
        if stored is not None:
            found.update(stored.pte_data, *stored.external_data.values())
    return tuple(sorted(found))


def _file_names(project: Project, target: str, tags: Iterable[str]) -> dict[str, str]:
    """Map each file name to the backend's tag. Raises an error if two names differ only in letter case."""
    names: dict[str, str] = {}
    for tag in tags:
        name = tag if tag.endswith(SUFFIX) else tag + SUFFIX
        other = next((known for known in names if known.casefold() == name.casefold()), None)
        if other is not None:
            raise EmitError(
                f"backends tag data for the files {names[other]!r} and {tag!r}, but these names are the same file",
                where=project.where("targets", target, "partitioners"),
                hint="report this to the backend's authors: its file names must differ in more than letter case "
                "or `.ptd`",
            )
        if not is_data_file_name(name):
            raise EmitError(
                f"a backend tags data for a file {tag!r}, which is not a plain file name",
                where=project.where("targets", target, "partitioners"),
                hint="report this to the backend's authors: a tag must consist of letters, digits, `.`, `_` and `-`",
            )
        names[name] = tag
    return names
