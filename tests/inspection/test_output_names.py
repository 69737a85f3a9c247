"""Names of outputs, from the nesting that a file states."""

from __future__ import annotations

import collections
import json
from dataclasses import replace
from typing import Any

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
        (collections.defaultdict(list, label=1), ["label"]),
        ({}, []),
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


def test_containers_that_are_registered() -> None:
    """A reproducer: the names of a dataclass were its lists of fields, and a namedtuple hid the names around it."""
    leaves = [LEAF, LEAF]
    pair = {"type": "my.Out", "context": '[["boxes", "scores"], []]', "children_spec": leaves}
    assert list(output_names(plan(json.dumps([1, pair]), 2))) == ["boxes", "scores"]
    point = {"type": "collections.namedtuple", "context": "my.Point", "children_spec": leaves}
    whole = {"type": "builtins.dict", "context": '["mask", "at"]', "children_spec": [LEAF, point]}
    assert list(output_names(plan(json.dumps([1, whole]), 3))) == ["mask", "at.0", "at.1"]


KEYS = st.text(st.characters(categories=["L", "Cs"]), max_size=300) | st.integers() | st.none() | st.lists(st.text())
CONTEXTS = st.lists(KEYS, max_size=2).map(json.dumps) | st.text() | st.lists(KEYS, max_size=2) | st.none()
SPECS = st.recursive(
    st.just(LEAF),
    lambda inner: st.builds(
        lambda kind, context, specs: {"type": kind, "context": context, "children_spec": specs},
        st.just("builtins.dict"),
        CONTEXTS,
        st.lists(inner, max_size=3),
    ),
)


@given(SPECS)
def test_every_name_can_be_printed(spec: dict[str, Any]) -> None:
    """A reproducer: a key with half of a surrogate pair ended the command with an internal error."""

    def leaves(node: dict[str, Any]) -> int:
        return 1 if node["type"] is None else sum(map(leaves, node["children_spec"]))

    found = output_names(plan(json.dumps([1, spec]), leaves(spec)))
    assert len(found) == leaves(spec)
    for name in found:
        assert name is None or name.encode().decode() == name


def test_long_names_are_left_out() -> None:
    whole = {"type": "builtins.dict", "context": json.dumps(["a" * 201, "b"]), "children_spec": [LEAF, LEAF]}
    assert list(output_names(plan(json.dumps([1, whole]), 2))) == [None, "b"]
