"""The sidecar of an object program: its file, strict reading, and updates for changed instructions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.errors import ProgramError, WriteError
from etdev.program.flat_tensor import TensorLayout
from etdev.program.model import ScalarType
from etdev.program.sidecar import MethodNotes, OutputNote, Sidecar, Source, StateNote, read_sidecar, write_sidecar
from etdev.program.sidecar.records import DelegateRecord

NOTES = Sidecar(
    {
        "forward": MethodNotes(
            delegate_inputs={12: 3, 4: 1},
            state=(StateNote(0, "cache", False), StateNote(7, "layers.0.größe", True)),
            sources={10: Source("model.py", 21, "forward", "return self.fc(x)"), 9: Source("a/b.py", 3, "forward", "")},
            debug_handles={4: (1, 2, 3), 0: ()},
            modules={9: "", 4: "layers.0.größe"},
            outputs={4: (OutputNote("layers.0", Source("model.py", 22, "forward", "x")), OutputNote(None, None))},
            data_names=("a", "größe"),
        ),
        "empty": MethodNotes(),
    },
    {"b.ptd": {"größe": TensorLayout(ScalarType.FLOAT, (2, 3), (1, 0)), "a": None}},
    {"ab12": DelegateRecord({"scratch": 64, "fast_scratch": 0}, b"graph")},
)
FILE = """\
{
 "format": 5,
 "methods": {
  "empty": {
   "delegate_inputs": {},
   "state": [],
   "sources": {},
   "debug_handles": {},
   "modules": {},
   "outputs": {},
   "data_names": []
  },
  "forward": {
   "delegate_inputs": {
    "4": 1,
    "12": 3
   },
   "state": [
    {
     "value": 0,
     "name": "cache",
     "initialized": false
    },
    {
     "value": 7,
     "name": "layers.0.größe",
     "initialized": true
    }
   ],
   "sources": {
    "9": {
     "file": "a/b.py",
     "line": 3,
     "function": "forward",
     "text": ""
    },
    "10": {
     "file": "model.py",
     "line": 21,
     "function": "forward",
     "text": "return self.fc(x)"
    }
   },
   "debug_handles": {
    "0": [],
    "4": [
     1,
     2,
     3
    ]
   },
   "modules": {
    "4": "layers.0.größe",
    "9": ""
   },
   "outputs": {
    "4": [
     {
      "module": "layers.0",
      "source": {
       "file": "model.py",
       "line": 22,
       "function": "forward",
       "text": "x"
      }
     },
     {
      "module": null,
      "source": null
     }
    ]
   },
   "data_names": [
    "a",
    "größe"
   ]
  }
 },
 "data_files": {
  "b.ptd": {
   "a": null,
   "größe": {
    "scalar_type": "FLOAT",
    "sizes": [
     2,
     3
    ],
    "dim_order": [
     1,
     0
    ]
   }
  }
 },
 "delegates": {
  "ab12": {
   "memory": {
    "fast_scratch": 0,
    "scratch": 64
   },
   "graph": "eJxLL0osyAAABjsCEw==",
   "reference": "eJwDAAAAAAE="
  }
 }
}
"""

INDICES = st.integers(0, 60)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
STATE = st.lists(st.tuples(TEXTS, st.booleans()), max_size=4).map(
    lambda found: tuple(StateNote(3 * index, *rest) for index, rest in enumerate(found))
)
SOURCES = st.builds(Source, TEXTS, st.integers(0, 99), TEXTS, TEXTS)
OUTPUTS = st.lists(st.builds(OutputNote, st.none() | TEXTS, st.none() | SOURCES), max_size=2).map(tuple)
METHODS = st.builds(
    MethodNotes,
    delegate_inputs=st.dictionaries(INDICES, st.integers(0, 5), max_size=4),
    state=STATE,
    sources=st.dictionaries(INDICES, SOURCES, max_size=4),
    debug_handles=st.dictionaries(INDICES, st.lists(INDICES, unique=True).map(tuple), max_size=4),
    modules=st.dictionaries(INDICES, TEXTS, max_size=4),
    outputs=st.dictionaries(INDICES, OUTPUTS, max_size=4),
    data_names=st.lists(TEXTS, max_size=3).map(tuple),
)
SHAPES = st.lists(INDICES, max_size=3).map(tuple)
LAYOUTS = st.builds(TensorLayout, st.sampled_from(ScalarType), SHAPES, SHAPES)
FILES = st.dictionaries(TEXTS, st.dictionaries(TEXTS, st.none() | LAYOUTS, max_size=3), max_size=2)
RECORDS = st.builds(DelegateRecord, st.dictionaries(TEXTS, INDICES, max_size=2), st.binary(max_size=99), st.binary())
SIDECARS = st.builds(
    Sidecar, st.dictionaries(TEXTS, METHODS, max_size=3), FILES, st.dictionaries(TEXTS, RECORDS, max_size=2)
)


# The file -------------------------------------------------------------------------------------------------------------


def test_the_file(tmp_path: Path) -> None:
    write_sidecar(NOTES, tmp_path / "a.json")

    assert (tmp_path / "a.json").read_text(encoding="utf-8") == FILE
    assert read_sidecar(tmp_path / "a.json") == NOTES


@given(SIDECARS)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, sidecar: Sidecar) -> None:
    place = tmp_path_factory.getbasetemp() / "law.json"
    write_sidecar(sidecar, place)

    assert read_sidecar(place) == sidecar


@given(METHODS)
def test_equal_notes_give_equal_bytes(tmp_path_factory: pytest.TempPathFactory, notes: MethodNotes) -> None:
    """The order in which notes are added does not matter."""
    backwards = MethodNotes(
        delegate_inputs=dict(reversed(notes.delegate_inputs.items())),
        state=notes.state,
        sources=dict(reversed(notes.sources.items())),
        debug_handles=dict(reversed(notes.debug_handles.items())),
        modules=dict(reversed(notes.modules.items())),
        outputs=dict(reversed(notes.outputs.items())),
        data_names=notes.data_names,
    )
    places = [tmp_path_factory.getbasetemp() / name for name in ("one.json", "two.json")]
    write_sidecar(Sidecar({"a": notes, "b": notes}), places[0])
    write_sidecar(Sidecar({"b": backwards, "a": backwards}), places[1])

    assert places[0].read_bytes() == places[1].read_bytes()


def _with(*path: str | int, value: Any) -> str:
    """Return the file with another value at a path; ``...`` removes the key."""
    content = json.loads(FILE)
    inner = content
    for part in path[:-1]:
        inner = inner[part]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(content)


F = ("methods", "forward")
INDEX = "expected the index of an instruction, found"
NUMBER = "expected a number of 0 or more, found"
MALFORMED = {
    "nothing": ("", "this is not JSON: Expecting value: line 1 column 1 (char 0)"),
    "half a file": (FILE[:60], "this is not JSON: …"),
    "deep": ("[" * 100_000, "this is not JSON: …"),
    "a large number": (_with("format", value=1).replace("1", "1" * 5000, 1), "this is not JSON: …"),
    "no object": ("[]", "expected an object, found []"),
    "another format": (_with("format", value=1), "format: version 1 is unknown; this version of etdev reads 5"),
    "a truth as format": (_with("format", value=True), f"format: {NUMBER} true"),
    "no format": (_with("format", value=...), "format: missing key"),
    "no methods": (_with("methods", value=...), "methods: missing key"),
    "no data files": (_with("data_files", value=...), "data_files: missing key"),
    "a number as layout": (
        _with("data_files", "b.ptd", "a", value=3),
        "data_files.b.ptd.a: expected an object, found 3",
    ),
    "another scalar type": (
        _with("data_files", "b.ptd", "größe", "scalar_type", value="REAL"),
        'data_files.b.ptd.größe.scalar_type: expected the name of a scalar type, found "REAL"',
    ),
    "a list as scalar type": (
        _with("data_files", "b.ptd", "größe", "scalar_type", value=[]),
        "data_files.b.ptd.größe.scalar_type: expected the name of a scalar type, found []",
    ),
    "more": (_with("more", value=1), "more: unknown key; expected format, methods, data_files, delegates"),
    "a key twice": ('{"format": 5, "methods": {}, "methods": {}}', "the key 'methods' occurs twice"),
    "a list of methods": (_with("methods", value=[]), "methods: expected an object, found []"),
    "a method without state": (_with(*F, "state", value=...), "methods.forward.state: missing key"),
    "state as an object": (_with(*F, "state", value={}), "methods.forward.state: expected a list, found {}"),
    "a negative value": (_with(*F, "state", 0, "value", value=-1), f"methods.forward.state[0].value: {NUMBER} -1"),
    "a huge value": (
        _with(*F, "state", 0, "value", value=1 << 63),
        f"methods.forward.state[0].value: {NUMBER} 9223372036854775808",
    ),
    "a broken number": (_with(*F, "state", 0, "value", value=0.5), f"methods.forward.state[0].value: {NUMBER} 0.5"),
    "state out of order": (
        _with(*F, "state", 1, "value", value=0),
        "methods.forward.state[1]: expected values in ascending order, found 0 after 0",
    ),
    "no truth": (
        _with(*F, "state", 1, "initialized", value=1),
        "methods.forward.state[1].initialized: expected true or false, found 1",
    ),
    "an instruction by name": (_with(*F, "sources", "add", value={}), f'methods.forward.sources: {INDEX} "add"'),
    "a zero before": (_with(*F, "debug_handles", "01", value=[]), f'methods.forward.debug_handles: {INDEX} "01"'),
    "another script's digit": (
        _with(*F, "debug_handles", "٣", value=[]),
        f'methods.forward.debug_handles: {INDEX} "\\u0663"',
    ),
    "a very long digit": (
        _with(*F, "debug_handles", "1" * 5000, value=[]),
        f'methods.forward.debug_handles: {INDEX} "111…',
    ),
    "a line as text": (
        _with(*F, "sources", "9", "line", value="3"),
        f'methods.forward.sources.9.line: {NUMBER} "3"',
    ),
    "a source as text": (
        _with(*F, "sources", "9", value="a/b.py:3" + "x" * 50),
        'methods.forward.sources.9: expected an object, found "a/b.py:3' + "x" * 28 + "...",
    ),
    "handles that are one": (
        _with(*F, "debug_handles", "4", value=1),
        "methods.forward.debug_handles.4: expected a list, found 1",
    ),
    "a module that is no text": (
        _with(*F, "modules", "4", value=4),
        "methods.forward.modules.4: expected a string, found 4",
    ),
    "an output that is a path": (
        _with(*F, "outputs", "4", value=["layers.0"]),
        'methods.forward.outputs.4[0]: expected an object, found "layers.0"',
    ),
    "a graph that is no text": (
        _with("delegates", "ab12", "graph", value=1),
        "delegates.ab12.graph: expected compressed data in base64",
    ),
    "a graph that is cut off": (
        _with("delegates", "ab12", "graph", value="eJxLL0os"),
        "delegates.ab12.graph: the data is incomplete, larger than 2 GiB when decompressed, or followed by other data",
    ),
    "a graph that is not compressed": (
        _with("delegates", "ab12", "graph", value="AAAA"),
        "delegates.ab12.graph: expected compressed data in base64: …",
    ),
    "a broken size": (
        _with("delegates", "ab12", "memory", "scratch", value=-1),
        f"delegates.ab12.memory.scratch: {NUMBER} -1",
    ),
    "a handle that is none": (
        _with(*F, "debug_handles", "4", value=[0, None]),
        f"methods.forward.debug_handles.4[1]: {NUMBER} null",
    ),
}


@pytest.mark.parametrize(("content", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_with_the_place(tmp_path: Path, content: str, message: str) -> None:
    place = tmp_path / "a.json"
    place.write_text(content, encoding="utf-8")
    with pytest.raises(ProgramError) as caught:
        read_sidecar(place)

    assert caught.value.where == str(place)
    if message.endswith("…"):
        assert caught.value.message.startswith(message[:-1])
    else:
        assert caught.value.message == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.json", "cannot read the sidecar: there is no such file"),
        (".", "cannot read the sidecar: this is a folder"),
        ("bytes.json", "this is not UTF-8 text: invalid start byte at byte 1"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "bytes.json").write_bytes(b"{\xff}")
    with pytest.raises(ProgramError) as caught:
        read_sidecar(tmp_path / name)

    assert (caught.value.message, caught.value.where) == (message, str(tmp_path / name))


def test_a_failed_write_leaves_the_file_of_before(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("before")
    broken = Sidecar({"forward": MethodNotes(state=(StateNote(0, "\ud800", True),))})
    with pytest.raises((WriteError, UnicodeEncodeError)):
        write_sidecar(broken, tmp_path / "a.json")

    assert (tmp_path / "a.json").read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["a.json"]


# Changed instructions -------------------------------------------------------------------------------------------------


def _renumbered(notes: MethodNotes, old_to_new: Mapping[int, int | None]) -> MethodNotes:
    return (
        Sidecar({"forward": notes, "other": NOTES.methods["forward"]})
        .renumbered("forward", old_to_new)
        .methods["forward"]
    )


MAPS = st.lists(st.booleans(), min_size=61, max_size=61).map(
    lambda kept: {old: sum(kept[:old]) if stays else None for old, stays in enumerate(kept)}
)
"""Results of a pass that removes instructions."""


def test_notes_move_with_their_instructions() -> None:
    moved = NOTES.renumbered("forward", {0: 0, 4: 3, 9: None, 10: 9, 12: 8})

    assert moved.methods["forward"] == MethodNotes(
        delegate_inputs={3: 1, 8: 3},
        state=NOTES.methods["forward"].state,
        sources={9: Source("model.py", 21, "forward", "return self.fc(x)")},
        debug_handles={3: (1, 2, 3), 0: ()},
        modules={3: "layers.0.größe"},
        outputs={3: NOTES.methods["forward"].outputs[4]},
        data_names=("a", "größe"),
    )
    assert replace(moved, methods=NOTES.methods) == NOTES
    assert moved.methods["empty"] == MethodNotes()


@given(METHODS)
def test_nothing_changes_where_nothing_moves(notes: MethodNotes) -> None:
    assert _renumbered(notes, {index: index for index in range(61)}) == notes


@given(METHODS, MAPS, MAPS)
def test_two_passes_are_one(notes: MethodNotes, first: dict[int, int | None], second: dict[int, int | None]) -> None:
    both = {old: None if new is None else second[new] for old, new in first.items()}

    assert _renumbered(_renumbered(notes, first), second) == _renumbered(notes, both)


def test_instructions_that_became_one_keep_all_debug_handles() -> None:
    notes = MethodNotes(
        sources={1: Source("a.py", 1, "forward", ""), 2: Source("a.py", 2, "forward", "")},
        debug_handles={2: (5, 6), 1: (4, 5)},
    )
    assert _renumbered(notes, {1: 0, 2: 0}) == MethodNotes(sources={0: notes.sources[1]}, debug_handles={0: (4, 5, 6)})


def test_delegate_calls_cannot_become_one() -> None:
    with pytest.raises(ValueError, match="two delegate calls, with 1 and 3 inputs, became one instruction"):
        _renumbered(MethodNotes(delegate_inputs={1: 1, 2: 3}), {1: 0, 2: 0})


@pytest.mark.parametrize("field", ["delegate_inputs", "debug_handles"])
def test_a_map_has_every_instruction(field: str) -> None:
    notes = replace(MethodNotes(), **{field: {3: 1 if field == "delegate_inputs" else (1,)}})
    with pytest.raises(KeyError):
        _renumbered(notes, {1: 1})


def test_outputs_of_a_call_are_its_last_arguments() -> None:
    first, second = OutputNote("a", None), OutputNote(None, None)
    notes = MethodNotes(delegate_inputs={3: 2, 5: 1}, outputs={3: (first, second), 5: (first, second), 6: (first,)})

    assert notes.outputs_of(3, (10, 11, 12, 13)) == {12: first, 13: second}
    assert notes.outputs_of(5, (10, 11)) == {}  # The notes are not of this call.
    assert notes.outputs_of(6, (10,)) == {}
    assert notes.outputs_of(7, (10, 11)) == {}


def test_a_source_reads_like_a_place() -> None:
    assert str(Source("a.py", 3, "forward", "return x")) == "a.py:3: return x"
    assert str(Source("a.py", 3, "forward", "")) == "a.py:3"
