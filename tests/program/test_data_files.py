"""Several data files of one program: each has its own data, and a round trip loses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from etdev.errors import ProgramError
from etdev.program import Blob, Program, flat_tensor, write
from etdev.program import model as m
from etdev.program.check import check_program
from etdev.program.data_files.assignment import DataFiles, merge_data_files
from etdev.program.data_files.external import external_names, internalize
from etdev.program.data_files.joined import read_joined
from etdev.program.flat_tensor import FlatTensor, TensorLayout
from etdev.program.flat_tensor.check import check_flat_tensor
from program.strategies import programs
from program.test_external import constant, content, program
from support.draws import examples

LAYOUT = TensorLayout(m.ScalarType.BYTE, (9,), (0,))


def keys(files: dict[str, FlatTensor]) -> dict[str, list[str]]:
    return {name: [item.key for item in data.named_data] for name, data in files.items()}


def looking_up(*names: str) -> Program:
    """Build constants ``a`` and one without a name, and named data that share one segment."""
    return program(constant(1, "a"), constant(2), named=tuple(m.NamedData(name, 2) for name in names))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(before=programs(), weights=st.sampled_from([None, "m.ptd"]), choice=st.data())
def test_nothing_is_lost(before: Program, weights: str | None, choice: st.DataObject) -> None:
    assume(not external_names(before))
    assume(any(plan.delegates for plan in before.execution_plan))
    names = [item.key for item in before.named_data]
    assume(all(name and "\0" not in name for name in names))
    forced: dict[str, dict[str, None]] = {}
    for name in names:
        file = choice.draw(st.sampled_from([None, "a.ptd", "z.ptd"]))
        if file is not None:
            forced.setdefault(file, {})[name] = None
    data = DataFiles(forced, weights)
    rest, files = data.split(before)
    check_program(rest)
    for data_file in files.values():
        check_flat_tensor(data_file)
    assert tuple(files) == data.names
    assert {name: set(found) for name, found in keys(files).items() if name in forced} == {
        name: set(found) for name, found in forced.items()
    }
    after = internalize(rest, *files.values()) if files else rest
    assert content(after) == content(before)
    assert data.joined(before) == after
    assert data.joined(after) == after
    assert data.split(after) == (rest, files)


def test_a_backends_data_stays_out_of_the_file_of_weights() -> None:
    data = DataFiles({"blob.ptd": {"x": LAYOUT}}, "w.ptd")
    rest, files = data.split(looking_up("x", "y"))
    assert keys(files)["blob.ptd"] == ["x"]
    assert files["blob.ptd"].named_data[0].tensor_layout == LAYOUT
    assert keys(files)["w.ptd"][0] == "a"
    assert keys(files)["w.ptd"][-1] == "y"
    assert (rest.named_data, [bytes(segment.data) for segment in rest.segments]) == ((), [b"", b"blob"])


def test_without_a_file_of_weights_the_rest_stays_inside() -> None:
    rest, files = DataFiles({"blob.ptd": {"x": None}}).split(looking_up("x", "y"))
    assert keys(files) == {"blob.ptd": ["x"]}
    assert [(item.key, bytes(rest.segments[item.segment_index].data)) for item in rest.named_data] == [
        ("y", b"looked up")
    ]
    assert not external_names(rest)


def test_a_constant_never_takes_the_name_of_a_backends_data() -> None:
    data = DataFiles({"blob.ptd": {"a": None}}, "w.ptd")
    rest, files = data.split(looking_up("a"))
    assert keys(files)["blob.ptd"] == ["a"]
    assert "a" not in keys(files)["w.ptd"]
    assert content(internalize(rest, *files.values())) == content(looking_up("a"))


def test_methods_that_ask_for_the_same_files() -> None:
    """ExecuTorch puts data of one name into the file that the first method asks for."""
    parts = [{"a.ptd": {"x": LAYOUT, "y": None}}, {"a.ptd": {"y": None, "z": None}, "b.ptd": {"x": None}}]
    assert merge_data_files(parts) == {"a.ptd": {"x": LAYOUT, "y": None, "z": None}}


def test_two_files_with_data_of_one_name(tmp_path: Path) -> None:
    one = FlatTensor((m.Segment(0, Blob(b"one")),), (flat_tensor.NamedData("k", 0),))
    two = replace(one, segments=(m.Segment(0, Blob(b"two")),))
    write(program(), tmp_path / "p.pte")
    flat_tensor.write(one, tmp_path / "one.ptd")
    flat_tensor.write(two, tmp_path / "two.ptd")
    with pytest.raises(ProgramError, match="the data 'k' is in two data files") as caught:
        read_joined(tmp_path / "p.pte", [tmp_path / "one.ptd", tmp_path / "two.ptd"])
    assert caught.value.where == f"{tmp_path / 'one.ptd'}, {tmp_path / 'two.ptd'}"
