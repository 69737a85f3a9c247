"""ETRecords: zip files that tell ExecuTorch's Inspector which op a runtime event belongs to.

The runtime identifies an event by the position of its instruction. The zip has three JSON files, which map positions to
ops and delegates. The other files are serialized graphs, which a link does not change. So the record of a linked
program can be written without torch and executorch. The format is that of
``executorch/devtools/etrecord/_etrecord.py``, equal in executorch 1.4.1 and 1.5.1.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile, ZipFile, ZipInfo

from etdev.errors import ProgramError
from etdev.program import Program
from etdev.program.model import DelegateCall

DelegateMap: TypeAlias = Mapping[str, Any]
"""ExecuTorch's description of a delegate.

The item ``name`` is the delegate's name. The item ``delegate_map`` maps the backend's own op numbers to debug handles.
"""

_HANDLES = "debug_handle_map"
_DELEGATES = "delegate_map"
_OUTPUTS = "instruction_id_to_num_outs_map"


@dataclass(frozen=True, slots=True)
class InstructionMaps:
    """An ETRecord's maps from instructions to ops and delegates. Keys are the method and the instruction's position."""

    handles: Mapping[str, Mapping[int, tuple[int, ...]]]
    """Debug handles of each instruction's ops, by method and by position of the instruction."""
    delegates: Mapping[str, Mapping[int, DelegateMap]]
    """Description of the delegate of each delegate call, by method and by position of the call."""
    outputs: Mapping[str, Mapping[int, int]]
    """Number of outputs of each delegate call, by method and by position of the call."""

    def members(self) -> dict[str, Any]:
        """Return the content of the zip's JSON files, by file name, as Python objects.

        The debug handles of a kernel call are one number if there is only one handle, otherwise a list. The debug
        handles of a delegate call are always a list.
        """
        handles = {
            method: {
                position: found[0] if len(found) == 1 and position not in self.outputs[method] else list(found)
                for position, found in positions.items()
            }
            for method, positions in self.handles.items()
        }
        return {_HANDLES: handles, _DELEGATES: self.delegates, _OUTPUTS: self.outputs}


def delegate_outputs(program: Program, inputs: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
    """Return the number of outputs of each delegate call of the given methods.

    ``inputs`` has the number of inputs of each delegate call, by method and by position of the call. The other
    arguments of a call are outputs.
    """
    return {
        name: {
            position: len(call.args) - inputs[name][position]
            for position, call in enumerate(program.method(name).chains[0].instructions)
            if isinstance(call, DelegateCall)
        }
        for name in inputs
    }


def read_delegates(path: Path) -> dict[str, dict[int, DelegateMap]]:
    """Read the descriptions of delegate calls from the record at ``path``, by method and position.

    Raises :class:`~etdev.errors.ProgramError` if the record is missing or damaged.
    """
    try:
        with ZipFile(path) as archive:
            content = json.loads(archive.read(_DELEGATES))
        return {
            method: {int(position): found for position, found in positions.items()}
            for method, positions in content.items()
        }
    except (BadZipFile, OSError, KeyError, ValueError, AttributeError, EOFError) as error:
        raise ProgramError(f"this is not an ETRecord: {error}", where=os.fspath(path)) from error


def write_record(source: Path, maps: InstructionMaps, path: Path) -> None:
    """Write a copy of the record at ``source`` to ``path``, with ``maps`` instead of the maps in ``source``.

    Two records with the same content are equal byte for byte. Raises OSError.
    """
    members = {name: json.dumps(content) for name, content in maps.members().items()}
    with ZipFile(source) as before, ZipFile(path, "w") as after:
        for item in before.infolist():
            # Omit the time of the original, so that equal content has equal bytes.
            if item.filename in members:
                after.writestr(ZipInfo(item.filename), members[item.filename])
                continue
            copied = ZipInfo(item.filename)
            copied.file_size = item.file_size  # zipfile derives the width of the size fields from this size.
            with before.open(item) as content, after.open(copied, "w") as file:
                shutil.copyfileobj(content, file, 1 << 20)
