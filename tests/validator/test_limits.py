"""Limits of the validator: an unsupported method never passes, wrong hints prove nothing, and messages (E2)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.linker import LinkOptions, link
from etdev.program import model as m
from etdev.validator import Correspondence, Violation, validate_link
from linker.programs import Object
from linker.programs_drawn import objects
from validator.cases import CASES
from validator.pairs import BOOL, Half, only, program, validate


def _swapping(count: int) -> Half:
    """Build conditions that exchange two values or not, so that the result depends on all of them."""
    half = Half()
    p = half.input(at=512, dtype=BOOL)
    one, other = half.input(4, at=0), half.input(4, at=64)
    for _ in range(count):
        new = half.tensor(4), half.tensor(4)
        jump = half.jump_if_false(p)
        half.move(one, new[0])
        half.move(other, new[1])
        end = half.jump()
        half.land(jump)
        half.move(other, new[0])
        half.move(one, new[1])
        half.land(end)
        one, other = new
    half.outputs = [half.op("exp.out", one, half.tensor(4, at=128))]
    return half


@pytest.mark.parametrize(
    ("count", "reason"), [(6, None), (12, "the tensor to which a value refers depends on too many conditions")]
)
def test_too_many_conditions(count: int, reason: str | None) -> None:
    report = validate(_swapping(count), _swapping(count))

    assert report.violations == ()
    assert [item.reason for item in report.not_validated] == ([reason] if reason else [])
    assert report.proved is (reason is None)


def _handing_on(variant: str) -> Half:
    """Build a loop whose two values swap in each iteration."""
    half = Half()
    p = half.input(at=512, dtype=BOOL)
    x, y = half.input(4, at=0), half.input(4, at=64)
    one, other, kept = half.tensor(4), half.tensor(4), half.tensor(4)
    half.move(x, one)
    half.move(y, other)
    start = len(half.calls)
    half.move(one, kept)
    half.move(other, one)
    half.move(kept, other)
    half.jump_if_false(p, start)
    half.outputs = [half.op("exp.out", one if variant == "before" else other, half.tensor(4, at=128))]
    return half


def test_references_that_go_round_in_a_loop() -> None:
    for variant in ("before", "bad"):
        report = validate(_handing_on("before"), _handing_on(variant))

        assert not report.proved
        assert report.violations == ()
        assert [item.reason for item in report.not_validated] == [
            "the tensor to which a value refers depends on more than the last iteration of a loop"
        ]


def test_a_reference_that_a_call_finds_from_the_one_before() -> None:
    """The value refers to one tensor in the first call and to another one in later calls."""
    half = Half()
    x = half.input(4, at=0)
    value = half.tensor(4, at=64)
    half.outputs = [half.op("exp.out", value, half.tensor(4, at=128))]
    half.move(x, value)
    report = validate(half, half)

    assert [item.reason for item in report.not_validated] == ["value 1 is used before a move sets it"]


def test_sizes_that_grow_without_end() -> None:
    """Products of sums: a file may ask for more terms than there is time for."""
    half = Half()
    x = half.input(4, 4, at=0, dynamic=True)
    numbers = [half.integer(0) for _ in range(40)]
    half.kernel("aten::sym_size.int", x, half.integer(0), numbers[0])
    half.kernel("aten::sym_size.int", x, half.integer(1), numbers[1])
    for one, other, result in zip(numbers, numbers[1:], numbers[2:], strict=False):
        between = half.integer(0)
        half.kernel("executorch_prim::add.Scalar", one, other, between)
        half.kernel("executorch_prim::mul.Scalar", between, between, result)
    report = validate(half, half)

    assert [item.reason for item in report.not_validated] == [
        "the formulas for the method's tensor sizes have too many terms"
    ]


@pytest.mark.parametrize(
    "moved",
    [{}, {0: 0, 1: 0}, {0: 1, 1: 0}, {0: 5}, {-1: 0}, {0: 0}, {1: 1}],
    ids=["nothing", "twice the same", "another order", "behind the end", "before the start", "one", "the other"],
)
def test_a_wrong_correspondence_proves_nothing(moved: dict[int, int]) -> None:
    case = CASES["operands keep their places"]
    before, bad = case.build("before"), case.build("bad")
    for half in (before, bad):
        half.outputs = [half.op("exp.out", half.outputs[0], half.tensor(4, at=192))]

    assert not validate(before, bad, moved=moved).proved


@settings(max_examples=40)
@given(found=objects(delegates=False), data=st.data())
def test_any_correspondence_ends_in_an_answer(found: Object, data: st.DataObject) -> None:
    """The validator answers even if values of different kinds are paired."""
    linked = link(found.program, LinkOptions(), found.sidecar).program
    (before,), (after,) = found.program.execution_plan, linked.execution_plan
    sizes = [len(plan.chains[0].instructions) for plan in (before, after)]
    positions = [st.integers(0, max(size - 1, 0)) for size in sizes]
    moved = data.draw(st.dictionaries(*positions, max_size=sizes[0]))
    report = validate_link(found.program, linked, {before.name: Correspondence(moved)})

    assert report.proved or report.violations or report.not_validated


def test_a_violation_names_everything() -> None:
    case = CASES["dead memory is used again"]
    found = only(validate(case.build("before"), case.build("bad")))

    assert found == Violation(
        kind="content",
        method="forward",
        message="method 'forward': instruction 2 (aten::add.out) reads value 2 at bytes 76 to 80 of buffer 1: "
        "expected the result of instruction 0 (aten::mul.out), found the result of instruction 1 (aten::exp.out)",
        before=2,
        after=2,
        operator="aten::add.out",
        value=2,
        buffer=1,
        start=76,
        end=80,
        expected="the result of instruction 0 (aten::mul.out)",
        found="the result of instruction 1 (aten::exp.out)",
    )


MESSAGES = {
    "only some kernels work in place": """
        instruction 1 (aten::mm.out) writes value 3 over the bytes of value 2, which it still reads
    """,
    "tensors lie in their buffer": "value 1 is at bytes 52 to 68 of buffer 1, which has 64 bytes",
    "what a loop reads from outside stays": """
        instruction 1 (aten::mul.out) reads value 1 at bytes 64 to 80 of buffer 1: expected the caller's data
        for input 1, found the result of a loop iteration
    """,
    "branches may use the same memory": """
        instruction 7 (aten::sin.out) reads value 1 at bytes 0 to 16 of buffer 1: expected the caller's data
        for input 1, found the result of instruction 4 (aten::relu.out) or the caller's data for input 1, depending on
        the path
    """,
    "temporaries do not lie over state": """
        bytes 0 to 16 of buffer 1, which keep their content between calls: expected the result of
        instruction 0 (aten::mul.out) after the call, found the result of instruction 2 (aten::relu.out)
    """,
    "attributes stay": "instruction 0 (aten::add.out) reads value 1, whose number was different before the link",
}


@pytest.mark.parametrize(("name", "message"), MESSAGES.items(), ids=MESSAGES)
def test_messages(name: str, message: str) -> None:
    case = CASES[name]
    found = only(validate(case.build("before"), case.build("bad"), case.gone, case.new))

    assert found.message == f"method 'forward': {' '.join(message.split())}"


def test_operands_that_were_tried() -> None:
    """A config may add operators to those that work in place; the validator gets them as a parameter."""
    case = CASES["only some kernels work in place"]
    before, bad = case.build("before"), case.build("bad")
    links = {"forward": Correspondence({0: 0, 1: 1})}
    answers = [
        validate_link(program(before), program(bad), links, in_place={"aten::mm.out": [place]}).proved
        for place in ((0, 0), (1, 0))
    ]

    assert answers == [True, False]


def test_a_method_that_never_ends() -> None:
    half = Half()
    x = half.input(4, at=0)
    half.op("relu.out", x, x)
    half.calls.append(m.JumpFalseCall(half.truth(False), 0))
    plan = half.plan()
    report = validate_link(
        replace(program(half), execution_plan=(plan,)),
        replace(program(half), execution_plan=(plan,)),
        {"forward": Correspondence({0: 0, 1: 1})},
    )

    assert only(report).message == "method 'forward': the method never ends (instruction 0, 0 before the link)"


def test_imports_nothing_that_links_or_plans() -> None:
    """Neither directly nor indirectly; nor torch, numpy or executorch."""
    code = "import sys, etdev.validator; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    own = {name for name in loaded if name.startswith("etdev.") and not name.startswith("etdev.validator")}

    assert not {"torch", "numpy", "executorch"} & set(loaded)
    parts = {name.removeprefix("etdev.program.") for name in own if name.startswith("etdev.program.")}
    assert not {"effects", "flow", "liveness", "reaching", "storage", "inplace"} & parts
    assert not any(name.startswith(("etdev.linker", "etdev.planner", "etdev.pipeline")) for name in own)
