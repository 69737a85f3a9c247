"""Names of outputs, from the nesting that a file states."""

from __future__ import annotations

import collections
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.inspection.output_names import output_names
from etdev.program import model as m
from linker.programs import Method, program


def plan(described: str, outputs: int) -> m.ExecutionPlan:
    """A method with a number of outputs and a description of their nesting."""
    method = Method("forward")
    method.outputs = [method.op(method.input(4), nbytes=4)]
    (found,) = program(method).program.execution_plan
    container = m.ContainerMetadata(encoded_out_str=described)
    return replace(found, outputs=(0,) * outputs, container_meta_type=container)


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ({"mask": 1, "heads": (2, 3)}, ["mask", "heads.0", "heads.1"]),
        (({"mask": 1}, 2), ["0.mask", None]),
        (collections.OrderedDict(label=1), ["label"]),
        ({3: 1}, ["3"]),
        ((1, [2, 3]), [None, None, None]),
        (1, [None]),
    ],
    ids=str,
)
def test_keys_of_the_result(result: object, names: list[str | None]) -> None:
    pytree = pytest.importorskip("torch.utils._pytree", reason="needs the extra `build`")
    described = pytree.treespec_dumps(pytree.tree_structure(result))
    assert list(output_names(plan(described, len(names)))) == names
    assert list(output_names(plan(described, len(names) + 1))) == [None] * (len(names) + 1)


LEAF = {"type": None, "context": None, "children_spec": []}


@pytest.mark.parametrize(
    "described",
    [
        "",
        "1",
        "[1]",
        "{}",
        '[1, {"type": "builtins.dict"}]',
        json.dumps([1, {"type": "builtins.dict", "context": "[", "children_spec": [LEAF]}]),
        json.dumps([1, {"type": "builtins.dict", "context": '["a"]', "children_spec": 3}]),
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_a_description_that_cannot_be_read_names_nothing(described: str) -> None:
    assert list(output_names(plan(described, 1))) == [None]


@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_json_has_as_many_names_as_outputs(content: object) -> None:
    assert len(output_names(plan(json.dumps([1, content]), 2))) == 2
