"""The interpreter on programs written by hand: control flow, state, sizes, overlaps, poison, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from etdev.devices import HOST
from etdev.errors import EtdevError, MissingRequirementError, UsageError
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.settings import Bounds
from etdev.runtime.interpreter.tensors import Memory, RunTensor
from etdev.runtime.method import Method, load_method, load_program
from program.hand import loop, tensor
from support.files import ADD, SIN, branches, chain, copies, cos, counters, delegated, method, program, sin

X = torch.linspace(-2, 2, 4)
DYNAMIC = m.TensorShapeDynamism.DYNAMIC_BOUND


def run(made: Program, *inputs: object, **settings: object) -> tuple[object, ...]:
    """Outputs of one call of ``forward``."""
    with load_method(made, **settings) as loaded:  # type: ignore[arg-type]
        return loaded.execute(inputs)


def with_plan(made: Program, **changes: object) -> Program:
    return replace(made, execution_plan=(replace(made.execution_plan[0], **changes),))  # type: ignore[arg-type]


def shifted(made: Program, value: int, offset: int) -> Program:
    """The program with one tensor at another place."""
    values = list(made.execution_plan[0].values)
    moved = values[value]
    assert isinstance(moved, m.Tensor)
    values[value] = replace(moved, allocation_info=m.AllocationDetails(1, offset))
    return with_plan(made, values=tuple(values))


@pytest.mark.parametrize(("start", "offset"), [(2, 0), (0, 2), (2, 2), (1, 3)])
def test_elements_at_any_byte_are_read_and_written(start: int, offset: int) -> None:
    """Also in memory that begins in the middle of an allocation, which torch refuses on CUDA devices."""
    allocation = torch.zeros(64, dtype=torch.uint8)
    part = allocation[start:]
    memory = Memory(HOST, part.data_ptr(), part.numel(), tensor=part)
    made = RunTensor(0, tensor(4), HOST)
    made.place(memory, offset)
    made.write(HOST, X)
    torch.testing.assert_close(made.view(HOST), X)
    assert allocation[start + offset :][:16].numpy().tobytes() == X.numpy().tobytes()


def test_a_loop_jumps_back_until_its_condition_is_true() -> None:
    (found,) = run(loop(times=3), X)
    torch.testing.assert_close(found, 16 * X)


@pytest.mark.parametrize("poison", [True, False])
def test_a_branch_gives_the_tensor_that_was_moved_to_its_result(poison: bool) -> None:
    x = torch.linspace(-1, 1, 16)
    with load_method(branches(), poison=poison) as loaded:
        for truth in (True, False, True):
            (found,) = loaded.execute((torch.tensor(truth), x))
            torch.testing.assert_close(found, x + (x.sin().sin() if truth else x.cos().cos()))


def test_copies_and_lists() -> None:
    with load_method(copies()) as loaded:
        cosine = X.cos().reshape(2, 2)[0]
        for _ in range(2):
            (found,) = loaded.execute((X,))
            torch.testing.assert_close(found, torch.cat([X, cosine]).sin().expand(9, 6))


@pytest.mark.parametrize(("shared", "wanted"), [(True, [1, 2, 3]), (False, [1, 1, 2])])
def test_methods_share_state_only_if_they_share_memory(shared: bool, wanted: list[int]) -> None:
    one = torch.ones(4)
    with load_program(counters(buffer=2), shared=shared) as loaded:
        assert [loaded.execute(name, (one,))[0][0] for name in ("first", "second", "first")] == wanted
        loaded.reset()
        assert loaded.execute("second", (one,))[0][0] == 1


def test_an_initial_value_is_there_again_after_a_reset() -> None:
    data = Blob(torch.full((4,), 7.0).numpy().tobytes())
    state = replace(tensor(4, at=16), data_buffer_idx=1)
    values = [tensor(4, at=0), state, tensor(4, at=32), m.Int(1), m.Bool(False)]
    copy = m.Operator("aten::copy_", "")
    plan = method(
        values, [m.KernelCall(0, (1, 0, 3, 2, 2)), m.KernelCall(1, (1, 2, 4, 1))], outputs=(2,), operators=(ADD, copy)
    )
    made = program(
        plan,
        segments=(m.Segment(0, Blob()), m.Segment(128, data)),
        mutable_data_segments=(m.SubsegmentOffsets(1, (0, 0)),),
    )
    with load_method(made) as loaded:
        for _ in range(2):
            assert [loaded.execute((torch.ones(4),))[0][0] for _ in range(2)] == [8, 9]  # type: ignore[index]
            loaded.reset()


def dynamic(rows: int = 4) -> Program:
    """``sin`` of up to so many rows of two."""
    values = [tensor(rows, 2, at=0, shape_dynamism=DYNAMIC), tensor(rows, 2, at=64, shape_dynamism=DYNAMIC)]
    return program(method(values, [sin(0, 1)], sizes=(128,)))


def memory_of(loaded: Method) -> torch.Tensor:
    """The bytes of the only planned buffer."""
    (memory,) = loaded._memories.values()
    return memory.bytes(HOST)


def test_a_dynamic_tensor_has_the_sizes_of_each_call() -> None:
    with load_method(dynamic()) as loaded:
        for rows in (4, 1, 3, 0):
            x = torch.arange(2.0 * rows).reshape(rows, 2)
            (found,) = loaded.execute((x,))
            torch.testing.assert_close(found, x.sin())


def test_what_is_beyond_the_present_sizes_is_poisoned() -> None:
    with load_method(dynamic()) as loaded:
        loaded.execute((torch.ones(4, 2),))
        loaded.execute((torch.ones(1, 2),))
        out = memory_of(loaded)[64:96].view(torch.float32)
    assert out.isnan().tolist() == [False] * 2 + [True] * 6


def test_channels_last_is_an_order_of_memory_not_of_meaning() -> None:
    image = replace(tensor(1, 2, 2, 2, at=0), dim_order=(0, 2, 3, 1))
    values = [image, tensor(1, 2, 2, 2, at=64), m.Bool(False), m.Null(), tensor(8, at=64)]
    clone = m.Operator("dim_order_ops::_clone_dim_order", "out")
    plan = method(values, [m.KernelCall(0, (0, 2, 3, 1, 1))], outputs=(0, 4), operators=(clone,))
    x = torch.arange(8.0).reshape(1, 2, 2, 2)
    as_given, in_order = run(program(plan), x)
    torch.testing.assert_close(as_given, x)
    torch.testing.assert_close(in_order, x.flatten())


def unplanned() -> Program:
    return program(method([tensor(4), tensor(4)], [sin(0, 1)], sizes=()))


def test_inputs_and_outputs_without_planned_memory_are_the_callers() -> None:
    with load_method(unplanned()) as loaded:
        first, second = loaded.execute((X,)), loaded.execute((2 * X,))
    torch.testing.assert_close(first, (X.sin(),))
    torch.testing.assert_close(second, ((2 * X).sin(),))


def test_an_output_may_take_the_place_of_an_operand_where_the_kernel_bears_it() -> None:
    (found,) = run(shifted(chain(2), 1, 0), X)
    torch.testing.assert_close(found, X.sin().sin())


FLAWS: dict[str, tuple[Callable[[], Program], str]] = {
    "an output over a part of an operand": (lambda: shifted(chain(1), 1, 8), "works in place only on the same bytes"),
    "an output over an operand of a kernel that cannot bear it": (
        lambda: with_plan(
            program(
                method(
                    [tensor(2, 2, at=0), m.Int(0), m.IntList((3, 1)), m.Int(1), tensor(2, 2, at=0)],
                    [m.KernelCall(0, (0, 2, 4, 4))],
                    operators=(m.Operator("aten::permute_copy", "out"),),
                )
            )
        ),
        "overlaps the operand",
    ),
    "an output of other sizes": (
        lambda: program(method([tensor(4, at=0), tensor(2, at=16)], [sin(0, 1)])),
        "is static, so it cannot be resized",
    ),
    "an output that is larger than planned": (
        lambda: program(method([tensor(4, at=0), tensor(2, at=16, shape_dynamism=DYNAMIC)], [sin(0, 1)])),
        "16 bytes, but only 8 are planned",
    ),
    "an output of another element type": (
        lambda: program(
            method(
                [tensor(4, at=0), replace(tensor(4, at=16), scalar_type=m.ScalarType.INT)],
                [sin(0, 1)],
            )
        ),
        "which does not fit the output",
    ),
    "an unknown operator": (
        lambda: with_plan(chain(1), operators=(ADD, m.Operator("my::sin", "out"), SIN)),
        "no kernel for the operator 'my::sin.out'",
    ),
    "a tensor without memory": (
        lambda: program(method([tensor(4, at=0), tensor(4), tensor(4, at=16)], [sin(1, 2)])),
        "has no memory",
    ),
    "a value that was overwritten": (
        lambda: program(
            method([tensor(4, at=at) for at in (0, 16, 16, 32)], [sin(0, 1), cos(0, 2), sin(1, 3)])
        ),
        "overwrote these bytes",
    ),
    "a result beyond all measure": (
        lambda: program(
            method(
                [tensor(4, at=0, shape_dynamism=DYNAMIC), m.Int(1 << 40), m.IntList((1,)), m.Int(0)],
                [m.KernelCall(0, (2, 3, 0, 0))],
                inputs=(),
                outputs=(0,),
                operators=(m.Operator("aten::full", "out"),),
            )
        ),
        "results take 4398046511104 bytes",
    ),
}  # fmt: skip
"""What is wrong → a program, and words of the error."""


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_wrong_program_is_refused_where_it_is_wrong(flaw: str) -> None:
    make, words = FLAWS[flaw]
    made = make()
    inputs = [torch.ones(tensor.sizes) for index, tensor in made.execution_plan[0].tensors() if not index]
    inputs = inputs[: len(made.execution_plan[0].inputs)]
    with pytest.raises(RunError) as caught:
        run(made, *inputs)
    assert words in caught.value.message
    assert "method 'forward'" in str(caught.value)


@pytest.mark.parametrize("poison", [True, False])
def test_bytes_that_are_not_in_use_any_more_do_not_hold_what_they_held(poison: bool) -> None:
    with load_method(chain(2), poison=poison) as loaded:
        loaded.execute((X,))
        dead = memory_of(loaded)[16:32].view(torch.float32)
    assert bool(dead.isnan().all()) is poison
    assert torch.equal(dead, X.sin()) is not poison


def test_a_loop_without_end_meets_the_limit() -> None:
    endless = with_plan(
        loop(), chains=(m.Chain((*loop().execution_plan[0].chains[0].instructions[:2], m.JumpFalseCall(5, 1))),)
    )
    with pytest.raises(RunError, match="did not end within 50 instructions; it is at instruction"):
        run(endless, X, bounds=Bounds(steps=50))


def test_more_planned_memory_than_the_limit_is_not_taken() -> None:
    with pytest.raises(RunError, match="planned buffers of 'forward' need 64 bytes"):
        run(chain(3), X, bounds=Bounds(memory=63))


def test_a_delegate_that_nothing_runs_is_named() -> None:
    with pytest.raises(MissingRequirementError, match="the interpreter cannot run delegates of 'XnnpackBackend'"):
        load_method(delegated())


INPUTS: dict[str, tuple[tuple[object, ...], str]] = {
    "too few": ((), "takes 1 inputs, but got 0"),
    "another element type": ((X.double(),), "must be torch.float32 on the host"),
    "other sizes": ((torch.ones(3),), "static"),
    "a number": ((3,), "must be a tensor, but is a int"),
}


@pytest.mark.parametrize("wrong", INPUTS)
def test_an_input_that_does_not_fit_is_refused(wrong: str) -> None:
    given, words = INPUTS[wrong]
    with pytest.raises(EtdevError, match=words):
        run(chain(1), *given)


def test_numbers_go_in_and_come_out() -> None:
    values = [m.Int(3), m.Double(0.5), m.Bool(True), m.Int(0)]
    add = m.Operator("executorch_prim::mul", "Scalar")
    made = program(method(values, [m.KernelCall(0, (0, 0, 3))], inputs=(0, 1, 2), outputs=(3, 1, 2), operators=(add,)))
    assert run(made, 5, 0.25, False) == (25, 0.25, False)
    with pytest.raises(UsageError, match="must be a Int, but is 'five'"):
        run(made, "five", 0.25, False)


def test_a_tensor_at_an_odd_place_is_read_and_written_all_the_same() -> None:
    values = [tensor(4, at=1), tensor(4, at=18)]
    (found,) = run(program(method(values, [sin(0, 1)], sizes=(40,))), X)
    torch.testing.assert_close(found, X.sin())
