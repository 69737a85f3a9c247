"""ETRecords: zip files that tell ExecuTorch's Inspector which op an event of the runtime belongs to.

The runtime names an event by the position of its instruction. Three JSON members of the zip map positions to ops and
delegates. The others are serialized graphs, which a link does not change. So a record follows a link without torch and
executorch. The format is that of ``executorch/devtools/etrecord/_etrecord.py`` of executorch 1.4.
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
"""ExecuTorch's description of a delegate: its ``name``, and in ``delegate_map`` its own numbers → debug handles."""

_HANDLES = "debug_handle_map"
_DELEGATES = "delegate_map"
_OUTPUTS = "instruction_id_to_num_outs_map"


@dataclass(frozen=True, slots=True)
class InstructionMaps:
    """A record's data on a program's instructions, by method and position of the instruction."""

    handles: Mapping[str, Mapping[int, tuple[int, ...]]]
    """Debug handles of the ops that became the instruction."""
    delegates: Mapping[str, Mapping[int, DelegateMap]]
    """Description of the delegate of each delegate call."""
    outputs: Mapping[str, Mapping[int, int]]
    """Number of outputs of each delegate call."""

    def members(self) -> dict[str, Any]:
        """Return the members of the zip as ExecuTorch has them before it writes JSON.

        A single handle is a number. Several handles, and those of a delegate call, are a list.
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

    ``inputs`` has the number of arguments that are inputs.
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

    Raises :class:`~etdev.errors.ProgramError` if the record is missing or broken.
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
    """Write the record at ``source`` with other maps to ``path``.

    Equal content makes equal bytes. Raises OSError.
    """
    members = {name: json.dumps(content) for name, content in maps.members().items()}
    with ZipFile(source) as before, ZipFile(path, "w") as after:
        for item in before.infolist():
            # Leave out the time of the original, which has no meaning.
            if item.filename in members:
                after.writestr(ZipInfo(item.filename), members[item.filename])
                continue
            copied = ZipInfo(item.filename)
            copied.file_size = item.file_size  # It determines the size of the fields for sizes.
            with before.open(item) as content, after.open(copied, "w") as file:
                shutil.copyfileobj(content, file, 1 << 20)
