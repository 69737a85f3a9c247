"""The check *plan*: across methods, and of files that were built before or came from elsewhere (E2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.linker import LinkOptions, link, link_foreign
from etdev.pipeline.stages.link.proof import summarize_proof
from etdev.program import Program, read, write
from etdev.program import model as m
from etdev.program.model import AllocationDetails
from etdev.program.sidecar import write_sidecar
from etdev.validator import ValidationReport
from etdev.verification.checks.plan import check_alone, check_existing, check_memory_plan
from linker.programs import Method, Object, program
from program.hand import tensor
from support.files import chain, counters, method
from support.on_devices import D2H, H2D, across, delegate, entries, on, two_devices
from validator.pairs import program as program_of_host
from validator.test_single import view_of_condition
from validator.test_unwritten import stale


@pytest.mark.parametrize("second_at", [0, 16], ids=["state over state", "temporaries over state"])
def test_state_in_the_first_buffer_is_not_apart(second_at: int) -> None:
    found = counters(second_at=second_at)

    own, other = check_memory_plan(found), check_memory_plan(found, foreign=True)

    said = "method 'second' overwrites the state of 'first' (value 1 in buffer 1)"
    assert (own.status, own.summary) == ("failed", said)
    assert other.status == "passed"
    assert other.summary.endswith(f"; in a loader that gives all methods the same buffers, {said}")


@pytest.mark.parametrize("first", [16, 32, 64], ids=["a part", "all", "more"])
def test_methods_share_what_lies_at_the_same_place(first: int) -> None:
    """The first method only writes what the second one keeps, or a part of it, or more than that one looks at."""
    fills, keeps = Method("fills"), Method("keeps")
    fills.copy(_at(fills, first, 1024), fills.input(first))
    state = _at(keeps, 32, 1024)
    keeps.update(state, keeps.input(32))
    keeps.outputs = [keeps.op(state)]
    made = program(fills, keeps).program

    assert check_memory_plan(made).status == "passed"


def test_what_lies_across_state_disturbs_it() -> None:
    fills, keeps = Method("fills"), Method("keeps")
    fills.copy(_at(fills, 32, 1040), fills.input(32))
    keeps.update(_at(keeps, 32, 1024), keeps.input(32))

    found = check_memory_plan(program(fills, keeps).program)

    assert found.problems == ("method 'fills' overwrites the state of 'keeps' (value 0 in buffer 2)",)


def _at(method: Method, nbytes: int, offset: int) -> int:
    """A tensor in buffer 2."""
    index = method.tensor(nbytes, planned=False)
    method.values[index] = replace(method.at(index), allocation_info=AllocationDetails(2, offset))
    return index


def _model(*, turned: bool = False) -> Object:
    """Two methods with a delegate that share state."""
    methods = []
    for name in ("forward", "step"):
        method = Method(name)
        x, state = method.input(32), method.buffer(32, "cache")
        (inner,) = method.delegate(method.op(*((state, x) if turned else (x, state))))
        method.outputs = [method.op(method.view(inner), name="aten::relu.out")]
        method.copy(state, method.op(inner, name="aten::relu.out"))
        methods.append(method)
    return program(*methods)


def _built(model: Object, folder: Path, *, share_state: bool = True) -> Program:
    """The object program's files in ``folder``, and what was linked from it, read back."""
    write(model.program, folder / "model.object.pte")
    write_sidecar(model.sidecar, folder / "model.object.json")
    linked = link(model.program, LinkOptions(share_state=share_state), model.sidecar)
    write(linked.program, folder / "model.pte")
    return read(folder / "model.pte")


@pytest.mark.parametrize("share_state", [True, False])
def test_a_file_is_compared_with_its_object_program(tmp_path: Path, share_state: bool) -> None:
    found = _built(_model(), tmp_path, share_state=share_state)

    check = check_existing(found, tmp_path / "model.object.pte", share_state=share_state)

    assert check.status == "passed"
    assert check.summary.startswith("8 instructions compute the same as before the link, ")


def test_one_is_not_many() -> None:
    assert summarize_proof(ValidationReport((), (), 1, 1)) == (
        "1 instruction computes the same as before the link, 1 value compared"
    )


def _without(folder: Path, suffix: str) -> None:
    (folder / f"model.object.{suffix}").unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: _without(folder, "pte"), "cannot read the program: there is no such file"),
        (lambda folder: _without(folder, "json"), "cannot read the sidecar: there is no such file"),
        (lambda folder: (folder / "model.object.json").write_text("{"), "this is not JSON: "),
        (lambda folder: _built(_model(turned=True), folder), "it may be from another build (method 'forward': "),
    ],
    ids=["no object program", "no sidecar", "a broken sidecar", "another build"],
)
def test_a_file_without_its_object_program(tmp_path: Path, change: Callable[[Path], object], reason: str) -> None:
    found = _built(_model(), tmp_path)
    change(tmp_path)

    check = check_existing(found, tmp_path / "model.object.pte", share_state=True)

    assert check.status == "passed"
    assert f" in use; not compared with model.object.pte: {reason}" in check.summary


def test_a_file_whose_plan_was_changed(tmp_path: Path) -> None:
    """What the state becomes lies over the output."""
    found = _built(_model(), tmp_path)
    first, *others = found.execution_plan
    values = (*first.values[:-1], first.values[first.outputs[0]])
    changed = replace(found, execution_plan=(replace(first, values=values), *others))

    check = check_existing(changed, tmp_path / "model.object.pte", share_state=True)

    assert check.status == "failed"
    assert check.summary == (
        "method 'forward': the caller (outputs) reads value 5 at bytes 0 to 32 of buffer 1 after "
        "instruction 3 (aten::relu.out) overwrote these bytes"
    )


def test_a_file_from_elsewhere() -> None:
    good, views = check_alone(chain(3), foreign=True), check_alone(view_of_condition(), foreign=True)

    assert (good.status, good.summary) == (
        "passed",
        "4 tensors of 64 B in total, none overlaps another one that is in use",
    )
    assert views.status == "passed"
    assert views.summary.endswith(
        "method 'forward': instruction 6 (aten::neg.out) reads value 6 at bytes 256 to 272 of buffer 1, but no "
        "instruction writes these bytes, and they have no initial value"
    )


def without(whole: Program, position: int) -> Program:
    """The program without one of its instructions."""
    (plan,) = whole.execution_plan
    (chain,) = plan.chains
    left = chain.instructions[:position] + chain.instructions[position + 1 :]
    return replace(whole, execution_plan=(replace(plan, chains=(replace(chain, instructions=left),)),))


@pytest.mark.parametrize("again", [False, True])
def test_a_program_that_lacks_a_copy_to_a_device_fails(again: bool) -> None:
    whole = link_foreign(two_devices()).program if again else two_devices()
    assert check_alone(whole, foreign=True).status == "passed"
    copies = _copies(whole, "et_copy::_h2d_copy")
    assert len(copies) == 2
    for position in copies:
        check = check_alone(without(whole, position), foreign=True)
        assert check.status == "failed"
        assert "(EtdevReferenceBackend) reads value" in check.summary
        assert "no instruction writes these bytes" in check.summary


@pytest.mark.parametrize(
    ("again", "reason"), [(False, "no instruction writes these bytes"), (True, "which no instruction reads")]
)
def test_a_program_that_lacks_a_copy_from_a_device_fails(again: bool, reason: str) -> None:
    """Planned tightly, what should have been copied has the bytes of another value."""
    whole = link_foreign(two_devices()).program if again else two_devices()
    copies = _copies(whole, "et_copy::_d2h_copy")
    assert len(copies) == 2
    for position in copies:
        check = check_alone(without(whole, position), foreign=True)
        assert check.status == "failed"
        assert reason in check.summary


def _one_device(values: list[m.Tensor], calls: list[m.Instruction], **settings: object) -> Program:
    """A method whose delegates all run on ``cuda:0``, next to operators 0 ``_h2d_copy`` and 1 ``_d2h_copy``."""
    settings = {"operators": (H2D, D2H), "delegates": (delegate(b"cuda:0"),), **settings}
    return across(method(values, calls, non_const_buffer_device=entries("cuda:0"), **settings))  # type: ignore[arg-type]


def test_a_program_that_lacks_one_of_two_copies_to_the_same_bytes_fails() -> None:
    values = [tensor(4, at=0), *(on("cuda:0", 4, at=at) for at in (0, 16, 0, 16)), tensor(4, at=0), tensor(4, at=16)]
    calls = [
        m.KernelCall(0, (0, 1, 1)),
        m.DelegateCall(0, (1, 2)),
        m.KernelCall(1, (2, 6, 6)),
        m.KernelCall(0, (6, 3, 3)),
        m.DelegateCall(0, (3, 4)),
        m.KernelCall(1, (4, 5, 5)),
    ]
    whole = _one_device(values, calls, outputs=(5,))
    assert check_alone(whole, foreign=True).status == "passed"
    for position in range(len(calls)):
        assert check_alone(without(whole, position), foreign=True).status == "failed", position


def test_a_copy_that_one_of_two_paths_lacks_fails() -> None:
    flag = m.Tensor(m.ScalarType.BOOL, (), (), allocation_info=m.AllocationDetails(1, 32))
    values = [flag, tensor(4, at=0), on("cuda:0", 4, at=0), on("cuda:0", 4, at=16), tensor(4, at=16), m.Bool(False)]
    copy, rest = m.KernelCall(0, (1, 2, 2)), [m.DelegateCall(0, (2, 3)), m.KernelCall(1, (3, 4, 4))]
    jumps = [m.JumpFalseCall(0, 3), copy, m.JumpFalseCall(5, 4)]
    ends = {"inputs": (0, 1), "outputs": (4,)}
    whole = _one_device(values, [*jumps, copy, *rest], **ends)  # type: ignore[list-item]
    assert check_alone(whole, foreign=True).status == "passed"
    one = _one_device(values, [*jumps[:2], m.JumpFalseCall(5, 3), *rest], **ends)  # type: ignore[list-item]
    check = check_alone(one, foreign=True)
    assert check.status == "failed"
    assert "no instruction writes these bytes" in check.summary


def test_state_of_a_device_may_be_copied_to_the_host() -> None:
    """A delegate reads what the call before has left, and writes it again by the same value."""
    values = [on("cuda:0", 4, at=0), on("cuda:0", 4, at=16), tensor(4, at=0)]
    calls = [m.DelegateCall(0, (0, 1)), m.DelegateCall(0, (1, 0)), m.KernelCall(1, (0, 2, 2))]
    assert check_alone(_one_device(values, calls, inputs=()), foreign=True).status == "passed"


def test_a_value_on_the_host_that_may_lack_its_write_is_pointed_out() -> None:
    check = check_alone(program_of_host(stale()), foreign=True)
    assert check.status == "passed"
    assert "reads value 4 at bytes 16 to 32 of buffer 1, but no instruction writes this value" in check.summary


def _copies(whole: Program, name: str) -> list[int]:
    (plan,) = whole.execution_plan
    calls = enumerate(plan.chains[0].instructions)
    return [at for at, call in calls if isinstance(call, m.KernelCall) and plan.operators[call.op_index].name == name]


def test_state_that_stays_on_a_device_is_not_a_missing_copy() -> None:
    """A delegate reads what the call before has left: its input is written only afterwards."""
    values = [on("cuda:0", 4, at=0), on("cuda:0", 4, at=16), tensor(4, at=0)]
    calls = [m.DelegateCall(0, (0, 1)), m.DelegateCall(0, (0, 0)), m.KernelCall(0, (1, 2, 2))]
    settings = {
        "inputs": (),
        "operators": (D2H,),
        "delegates": (delegate(b"cuda:0"),),
        "non_const_buffer_device": entries("cuda:0"),
    }
    assert check_alone(across(method(values, calls, **settings)), foreign=True).status == "passed"  # type: ignore[arg-type]
    never = across(method(values, [calls[0], calls[2]], **settings))  # type: ignore[arg-type]
    assert check_alone(never, foreign=True).status == "failed"
