"""Small programs written by hand for the commands that work on files: each shows one thing that a file can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etdev.program import Blob, Program
from etdev.program import model as m
from program.hand import tensor

ADD, SIN, COS = m.Operator("aten::add", "out"), m.Operator("aten::sin", "out"), m.Operator("aten::cos", "out")
"""The operators of :func:`method`, by the index that instructions use."""


def method(
    values: Sequence[m.Value],
    instructions: Sequence[m.Instruction],
    *,
    inputs: Sequence[int] = (0,),
    outputs: Sequence[int] = (-1,),
    sizes: Sequence[int] = (),
    name: str = "forward",
    **more: object,
) -> m.ExecutionPlan:
    """A method of one chain; an output of -1 is the last value. ``sizes`` are those of the buffers from 1 on, which are
    as large as its tensors need if none are given."""
    last = len(values) - 1
    settings = {"operators": (ADD, SIN, COS), "delegates": (), **more}
    return m.ExecutionPlan(
        name=name,
        values=tuple(values),
        inputs=tuple(inputs),
        outputs=tuple(last if index < 0 else index for index in outputs),
        chains=(m.Chain(tuple(instructions)),),
        non_const_buffer_sizes=(0, *(sizes or _needed(values))),
        **settings,  # type: ignore[arg-type]
    )


def _needed(values: Sequence[m.Value]) -> list[int]:
    ends: dict[int, int] = {}
    for value in values:
        if isinstance(value, m.Tensor) and value.allocation_info is not None:
            place = value.allocation_info
            ends[place.memory_id] = max(ends.get(place.memory_id, 0), place.memory_offset + value.nbytes)
    return [ends.get(index, 0) for index in range(1, max(ends, default=0) + 1)]


def program(*plans: m.ExecutionPlan, **more: object) -> Program:
    """A program without constants, unless ``more`` has them."""
    empty = {"segments": (m.Segment(0, Blob()),), "constant_segment": m.SubsegmentOffsets(0, (0,))}
    return Program(tuple(plans), **(empty | more))  # type: ignore[arg-type]


def sin(origin: int, to: int) -> m.KernelCall:
    """``to = sin(origin)``."""
    return m.KernelCall(1, (origin, to, to))


def cos(origin: int, to: int) -> m.KernelCall:
    """``to = cos(origin)``."""
    return m.KernelCall(2, (origin, to, to))


def chain(length: int) -> Program:
    """``sin`` after ``sin``, each into memory of its own, where two places would do."""
    values = [tensor(4, at=16 * index) for index in range(length + 1)]
    return program(method(values, [sin(index, index + 1) for index in range(length)]))


def banked(slow: int, fast: int) -> Program:
    """``sin(cos(x))``, with a tensor of so many numbers in each bank; ``x`` is in the slow one."""
    values = [tensor(slow, at=0), tensor(fast, at=0, buffer=2), tensor(4, at=4 * slow)]
    return program(method(values, [cos(0, 1), sin(1, 2)], sizes=(4 * slow + 16, 4 * fast)))


def overwriting() -> Program:
    """The output is overwritten by a value that is needed for nothing."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=16)]
    return program(method(values, [sin(0, 1), cos(0, 2)], outputs=(1,)))


def branches() -> Program:
    """``x + sin(sin(x))`` or ``x + cos(cos(x))``: the branches use the same bytes, since only one of them runs.

    Values: 0 the condition, 1 x, 2 and 3 of the one branch, 4 and 5 of the other, 6 either's result, 7 the output.
    """
    flag = m.Tensor(m.ScalarType.BOOL, (), (), allocation_info=m.AllocationDetails(1, 64))
    values = [flag, tensor(16, at=128), tensor(16, at=0), tensor(16, at=64), tensor(16, at=0), tensor(16, at=64)]
    values += [tensor(16), tensor(16, at=0), m.Bool(False), m.Int(1)]
    calls = [
        m.JumpFalseCall(0, 5),
        sin(1, 2),
        sin(2, 3),
        m.MoveCall(3, 6),
        m.JumpFalseCall(8, 8),
        cos(1, 4),
        cos(4, 5),
        m.MoveCall(5, 6),
        m.KernelCall(0, (1, 6, 9, 7, 7)),
    ]
    return program(method(values, calls, inputs=(0, 1), outputs=(7,)))


def counters(*, buffer: int = 1, second_at: int = 16) -> Program:
    """Two methods that each count calls in a tensor of their own; with ``buffer`` 2, in one that both have.

    In buffer 1 the temporaries of each lie over the state of the other, or the states over each other if
    ``second_at`` is 0, which only loaders keep apart that give each method its own memory.
    """

    def count(name: str, state_at: int, result_at: int) -> m.ExecutionPlan:
        state = tensor(4, at=0 if buffer == 2 else state_at, buffer=buffer)
        values = [tensor(4, at=32), state, tensor(4, at=result_at), m.Int(1), m.Bool(False)]
        calls = [m.KernelCall(0, (1, 0, 3, 2, 2)), m.KernelCall(3, (1, 2, 4, 1))]
        operators = (ADD, SIN, COS, m.Operator("aten::copy_", ""))
        return method(values, calls, outputs=(2,), name=name, operators=operators)

    return program(count("first", 0, 16), count("second", second_at, 16 - second_at))


def channels_last(*, planned: bool) -> Program:
    """The sine of an image [2, 3, 4, 5] in channels-last order, in that order and in contiguous order.

    It has memory of the program if it is ``planned``, otherwise of the caller.
    """
    last, clone = (0, 2, 3, 1), m.Operator("dim_order_ops::_clone_dim_order", "out")
    image, sine, plain = (tensor(2, 3, 4, 5, at=480 * number if planned else None) for number in range(3))
    plain_order = (m.IntList((5, 6, 7, 8)), *map(m.Int, range(4)))
    values = [replace(image, dim_order=last), replace(sine, dim_order=last), plain, m.Bool(False), *plain_order]
    calls = [sin(0, 1), m.KernelCall(3, (1, 3, 4, 2, 2))]
    return program(method(values, calls, outputs=(1, 2), operators=(ADD, SIN, COS, clone)))


def delegated(*, ambiguous: bool = False, backend: str = "XnnpackBackend") -> Program:
    """One call of a delegate. If it is ``ambiguous``, nothing says which of its arguments are outputs."""
    values = [tensor(4, at=0), tensor(4, at=16)]
    arguments = (1, 0) if ambiguous else (0, 1)
    spec = m.CompileSpec("target_device", b"cpu")
    part = m.BackendDelegate(backend, m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 1), (spec,))
    plan = method(values, [m.DelegateCall(0, arguments)], delegates=(part,), operators=(), sizes=(32 + 64,))
    return program(
        plan,
        segments=(m.Segment(0, Blob()), m.Segment(128, Blob(b"delegate"))),
        named_data=(m.NamedData("weights", 1),),
    )


def copies() -> Program:
    """``x`` and the first row of ``cos(x)`` in another shape, put together; and ``x`` added to state.

    Values: 0 x, 1 state, 2 cos(x), 3 its view, 4 the row, 5 the new state, 6 x with the row, 7 its sine, 8 the output.
    """
    values = [tensor(4, at=0), tensor(4, at=0, buffer=2), tensor(4, at=16), tensor(2, 2, at=32), tensor(2, at=48)]
    values += [tensor(4, at=64), tensor(6, at=80), tensor(6, at=112), tensor(9, 6, at=144)]
    values += [m.Int(0), m.Int(1), m.Int(2), m.Bool(False), m.IntList((11, 11)), m.TensorList((0, 4))]
    values += [m.Int(9), m.Int(6), m.IntList((15, 16))]
    names = ["cos", "view_copy", "select_copy", "add", "copy_", "cat", "sin", "expand_copy"]
    overloads = {"select_copy": "int_out", "copy_": ""}
    arguments = [(0, 2), (2, 13, 3), (3, 9, 9, 4), (1, 0, 10, 5), (1, 5, 12), (14, 9, 6), (6, 7), (7, 17, 12, 8)]
    calls = [
        m.KernelCall(index, (*given, 1 if names[index] == "copy_" else given[-1]))
        for index, given in enumerate(arguments)
    ]
    operators = tuple(m.Operator(f"aten::{name}", overloads.get(name, "out")) for name in names)
    return program(method(values, calls, outputs=(8,), operators=operators))
