"""The sidecar of an object program: a JSON file with facts that the ``.pte`` cannot hold.

The file is ``NAME.object.json`` next to ``NAME.object.pte``. It is one object with ``format`` (5), ``methods``,
``data_files`` and ``delegates``. The index of an instruction is its position in the method's first chain. Current
programs have no other chains. This module imports neither torch nor executorch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from etdev.errors import ProgramError
from etdev.files import atomic_write_text, describe_os_error, read_file
from etdev.program.flat_tensor.model import TensorLayout
from etdev.program.flaw import FlawError
from etdev.program.model import ScalarType
from etdev.program.sidecar.notes import MethodNotes, OutputNote, Source, StateNote
from etdev.program.sidecar.records import DelegateRecord, encode_record, unpack

__all__ = [
    "FORMAT",
    "MethodNotes",
    "OutputNote",
    "Sidecar",
    "Source",
    "StateNote",
    "read_sidecar",
    "write_sidecar",
]

FORMAT = 5
"""Version of the file's structure. It increases when a reader of the old version would misread the new version."""

_MOST = 1 << 63
"""Exclusive upper bound of all numbers in the file. Indices, counts and debug handles fit in 63 bits."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Notes on the methods of an object program. Methods without notes are left out."""

    methods: Mapping[str, MethodNotes]
    """Maps the name of a method to its notes."""
    data_files: Mapping[str, Mapping[str, TensorLayout | None]] = field(default_factory=dict)
    """Data files that backends request: maps the name of a file to its data. The object program contains the data."""
    delegates: Mapping[str, DelegateRecord] = field(default_factory=dict)
    """Maps the SHA-256 of a delegate's blob to the record of the delegate."""

    @property
    def lookups(self) -> dict[str, tuple[str, ...]]:
        """Map the name of each method to the names of the data that its delegates look up."""
        return {name: notes.data_names for name, notes in self.methods.items()}

    def renumbered(self, method: str, old_to_new: Mapping[int, int | None]) -> Sidecar:
        """Return the notes after a change of a method's instructions.

        ``old_to_new`` maps the index of each old instruction to its new index, or to ``None`` for a removed
        instruction. If several old instructions became one, the new instruction gets the source line and the module of
        the first old instruction. It gets the debug handles of all these old instructions.

        Raises :class:`KeyError` for an unknown method, or if the map lacks an instruction that has notes. Raises
        :class:`ValueError` if two delegate calls became one.
        """
        return replace(self, methods={**self.methods, method: self.methods[method].renumbered(old_to_new)})


def write_sidecar(sidecar: Sidecar, path: str | os.PathLike[str]) -> None:
    """Write the file atomically. Equal notes yield equal bytes.

    Raises :class:`~etdev.errors.WriteError`, which states the path and the cause.
    """
    content = {
        "format": FORMAT,
        "methods": {name: _encoded(notes) for name, notes in sorted(sidecar.methods.items())},
        "data_files": {
            name: {key: _encoded_layout(layout) for key, layout in sorted(keys.items())}
            for name, keys in sorted(sidecar.data_files.items())
        },
        "delegates": {digest: encode_record(record) for digest, record in sorted(sidecar.delegates.items())},
    }
    atomic_write_text(Path(path), json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def _encoded(notes: MethodNotes) -> dict[str, Any]:
    return {
        "delegate_inputs": {str(index): count for index, count in sorted(notes.delegate_inputs.items())},
        "state": [{"value": note.value, "name": note.name, "initialized": note.initialized} for note in notes.state],
        "sources": {str(index): _encoded_source(line) for index, line in sorted(notes.sources.items())},
        "debug_handles": {str(index): list(handles) for index, handles in sorted(notes.debug_handles.items())},
        "modules": {str(index): path for index, path in sorted(notes.modules.items())},
        "outputs": {
            str(index): [{"module": one.module, "source": _encoded_source(one.source)} for one in outputs]
            for index, outputs in sorted(notes.outputs.items())
        },
        "data_names": list(notes.data_names),
    }


def _encoded_source(source: Source | None) -> dict[str, Any] | None:
    return None if source is None else asdict(source)


def _encoded_layout(layout: TensorLayout | None) -> dict[str, Any] | None:
    if layout is None:
        return None
    return {
        "scalar_type": layout.scalar_type.name,
        "sizes": list(layout.sizes),
        "dim_order": list(layout.dim_order),
    }


def read_sidecar(path: str | os.PathLike[str]) -> Sidecar:
    """Read and check a sidecar.

    Raises :class:`~etdev.errors.ProgramError`, which states the file, the flaw and the flaw's path in the file, such as
    ``methods.forward.state[0].value``.
    """
    where = os.fspath(path)
    try:
        text = read_file(Path(path)).decode("utf-8")
    except OSError as error:
        cause, remedy = describe_os_error(error)
        if isinstance(error, FileNotFoundError):
            cause = "there is no such file"
        raise ProgramError(f"cannot read the sidecar: {cause}", where=where, hint=remedy) from error
    except UnicodeDecodeError as error:
        raise ProgramError(f"this is not UTF-8 text: {error.reason} at byte {error.start}", where=where) from error
    try:
        return _decoded(_parsed(text))
    except FlawError as flaw:
        raise flaw.as_error(where) from None


def _parsed(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise FlawError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise FlawError(f"this is not JSON: {error}") from error


def _decoded(content: Any) -> Sidecar:
    version = content.get("format") if isinstance(content, dict) else None
    if isinstance(version, int) and not isinstance(version, bool) and version != FORMAT:
        raise FlawError(f"version {version} is unknown; this version of etdev reads {FORMAT}", "format")
    fields = {
        "format": _count,
        "methods": _by_name(_notes),
        "data_files": _by_name(_by_name(_layout)),
        "delegates": _by_name(_record),
    }
    found = _object(content, fields)
    return Sidecar(found["methods"], found["data_files"], found["delegates"])


def _by_name(decode: Callable[[Any], _T]) -> Callable[[Any], dict[str, _T]]:
    """Return a decoder of a mapping from names to items."""
    return lambda content: {name: _within(decode, item, name) for name, item in _mapping(content).items()}


def _notes(content: Any) -> MethodNotes:
    fields = {
        "delegate_inputs": _by_instruction(_count),
        "state": _state,
        "sources": _by_instruction(_source),
        "debug_handles": _by_instruction(_counts),
        "modules": _by_instruction(_text),
        "outputs": _by_instruction(_outputs),
        "data_names": _texts,
    }
    return MethodNotes(**_object(content, fields))


def _record(content: Any) -> DelegateRecord:
    return DelegateRecord(**_object(content, {"memory": _by_name(_count), "graph": unpack, "reference": unpack}))


def _layout(content: Any) -> TensorLayout | None:
    if content is None:
        return None
    return TensorLayout(**_object(content, {"scalar_type": _scalar_type, "sizes": _counts, "dim_order": _counts}))


def _scalar_type(content: Any) -> ScalarType:
    if not isinstance(content, str) or content not in ScalarType.__members__:
        raise FlawError(f"expected the name of a scalar type, found {_shown(content)}")
    return ScalarType[content]


def _counts(content: Any) -> tuple[int, ...]:
    return _items(content, _count)


def _texts(content: Any) -> tuple[str, ...]:
    return _items(content, _text)


def _state(content: Any) -> tuple[StateNote, ...]:
    notes = _items(content, _state_note)
    for index, (note, other) in enumerate(pairwise(notes), 1):
        if other.value <= note.value:
            raise FlawError(f"expected values in ascending order, found {other.value} after {note.value}", f"[{index}]")
    return notes


def _state_note(content: Any) -> StateNote:
    return StateNote(**_object(content, {"value": _count, "name": _text, "initialized": _truth}))


def _source(content: Any) -> Source:
    return Source(**_object(content, {"file": _text, "line": _count, "function": _text, "text": _text}))


def _outputs(content: Any) -> tuple[OutputNote, ...]:
    return _items(content, _output)


def _output(content: Any) -> OutputNote:
    return OutputNote(**_object(content, {"module": _optional(_text), "source": _optional(_source)}))


def _optional(decode: Callable[[Any], _T]) -> Callable[[Any], _T | None]:
    return lambda content: None if content is None else decode(content)


def _by_instruction(decode: Callable[[Any], _T]) -> Callable[[Any], dict[int, _T]]:
    def decode_all(content: Any) -> dict[int, _T]:
        return {_index(key): _within(decode, item, key) for key, item in _mapping(content).items()}

    return decode_all


def _index(key: str) -> int:
    if not (key.isascii() and key.isdecimal() and len(key) < 20) or str(int(key)) != key:
        raise FlawError(f"expected the index of an instruction, found {_shown(key)}")
    return int(key)


def _object(content: Any, fields: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Decode the fields of an object. Raise :class:`FlawError` if a field is missing or unknown."""
    found = _mapping(content)
    for name in fields:
        if name not in found:
            raise FlawError("missing key", name)
    for name in found:
        if name not in fields:
            raise FlawError(f"unknown key; expected {', '.join(fields)}", name)
    return {name: _within(decode, found[name], name) for name, decode in fields.items()}


def _items(content: Any, decode: Callable[[Any], _T]) -> tuple[_T, ...]:
    if not isinstance(content, list):
        raise FlawError(f"expected a list, found {_shown(content)}")
    return tuple(_within(decode, item, f"[{index}]") for index, item in enumerate(content))


def _mapping(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise FlawError(f"expected an object, found {_shown(content)}")
    return content


def _count(content: Any) -> int:
    if not isinstance(content, int) or isinstance(content, bool) or not 0 <= content < _MOST:
        raise FlawError(f"expected a number of 0 or more, found {_shown(content)}")
    return content


def _text(content: Any) -> str:
    if not isinstance(content, str):
        raise FlawError(f"expected a string, found {_shown(content)}")
    return content


def _truth(content: Any) -> bool:
    if not isinstance(content, bool):
        raise FlawError(f"expected true or false, found {_shown(content)}")
    return content


def _within(decode: Callable[[Any], _T], content: Any, part: str) -> _T:
    try:
        return decode(content)
    except FlawError as flaw:
        raise flaw.within(part) from None


def _shown(content: Any) -> str:
    text = json.dumps(content)
    return text if len(text) <= 40 else text[:37] + "..."
