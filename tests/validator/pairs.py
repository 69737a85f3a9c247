"""Pairs of small programs, written by hand: every tensor at the address that a test states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from etdev.program import Blob
from etdev.program import model as m
from etdev.validator import Correspondence, ValidationReport, Violation, validate_link

FLOAT, LONG, BOOL, BYTE = m.ScalarType.FLOAT, m.ScalarType.LONG, m.ScalarType.BOOL, m.ScalarType.BYTE
SIZE = 4096
"""Bytes of each planned buffer."""


@dataclass
class Half:
    """Builder of a method, instruction by instruction."""

    name: str = "forward"
    values: list[m.Value] = field(default_factory=list)
    calls: list[m.Instruction] = field(default_factory=list)
    operators: list[m.Operator] = field(default_factory=list)
    delegates: list[m.BackendDelegate] = field(default_factory=list)
    delegate_inputs: dict[int, int] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    size: int = SIZE

    # Values

    def value(self, value: m.Value) -> int:
        """Add a value."""
        self.values.append(value)
        return len(self.values) - 1

    def tensor(
        self,
        *sizes: int,
        at: int | None = None,
        buffer: int = 1,
        dtype: m.ScalarType = FLOAT,
        order: tuple[int, ...] | None = None,
        dynamic: bool = False,
        data: int = 0,
        name: str | None = None,
    ) -> int:
        """Add a tensor, at an offset if it has one."""
        dynamism = m.TensorShapeDynamism.DYNAMIC_BOUND if dynamic else m.TensorShapeDynamism.STATIC
        return self.value(
            m.Tensor(
                dtype,
                sizes,
                order or tuple(range(len(sizes))),
                dynamism,
                data_buffer_idx=data,
                allocation_info=None if at is None else m.AllocationDetails(buffer, at),
                extra_tensor_info=None if name is None else m.ExtraTensorInfo(fully_qualified_name=name),
            )
        )

    def input(self, *sizes: int, at: int | None = None, dtype: m.ScalarType = FLOAT, dynamic: bool = False) -> int:
        """Add an input; without an offset, the caller brings its memory."""
        self.inputs.append(self.tensor(*sizes, at=at, dtype=dtype, dynamic=dynamic))
        return self.inputs[-1]

    def integer(self, number: int) -> int:
        """Add a number."""
        return self.value(m.Int(number))

    def integers(self, *numbers: int) -> int:
        """Add a list of numbers."""
        return self.value(m.IntList(tuple(self.value(m.Int(number)) for number in numbers)))

    def list(self, *tensors: int) -> int:
        """Add a list of tensors."""
        return self.value(m.TensorList(tensors))

    def truth(self, value: bool) -> int:
        """Add a truth value."""
        return self.value(m.Bool(value))

    # Instructions

    def kernel(self, operator: str, *args: int) -> int:
        """Add a call with just these arguments; return the last one."""
        name, _, overload = operator.partition(".")
        found = m.Operator(name, overload)
        if found not in self.operators:
            self.operators.append(found)
        self.calls.append(m.KernelCall(self.operators.index(found), args))
        return args[-1]

    def op(self, operator: str, *args: int) -> int:
        """Add a call of an ``out`` variant of ATen, whose output comes last."""
        return self.kernel(f"aten::{operator}", *args, args[-1])

    def copy(self, to: int, of: int) -> int:
        """Add ``copy_``."""
        return self.kernel("aten::copy_", to, of, self.truth(False), to)

    def view(self, of: int, out: int) -> int:
        """Add ``et_view``, with the sizes of the output."""
        tensor = self.values[out]
        assert isinstance(tensor, m.Tensor)
        return self.kernel("executorch_prim::et_view.default", of, self.integers(*tensor.sizes), out)

    def view_copy(self, of: int, out: int) -> int:
        """Add ``view_copy``, with the sizes of the output."""
        tensor = self.values[out]
        assert isinstance(tensor, m.Tensor)
        return self.op("view_copy.out", of, self.integers(*tensor.sizes), out)

    def move(self, origin: int, to: int) -> None:
        """Add ``MoveCall``."""
        self.calls.append(m.MoveCall(origin, to))

    def jump_if_false(self, condition: int, to: int = 0) -> int:
        """Add ``JumpFalseCall``; return its position, for :meth:`land`."""
        self.calls.append(m.JumpFalseCall(condition, to))
        return len(self.calls) - 1

    def jump(self) -> int:
        """Add an unconditional jump; return its position."""
        return self.jump_if_false(self.truth(False))

    def land(self, jump: int) -> None:
        """Set the destination of a jump to the next instruction."""
        found = self.calls[jump]
        assert isinstance(found, m.JumpFalseCall)
        self.calls[jump] = m.JumpFalseCall(found.cond_value_index, len(self.calls))

    def delegate(self, inputs: Collection[int], outputs: Collection[int], *, data: int = 0) -> None:
        """Add a delegate call."""
        place = m.BackendDelegateDataReference(m.DataLocation.INLINE, data)
        self.delegates.append(m.BackendDelegate("MyBackend", place))
        self.delegate_inputs[len(self.calls)] = len(inputs)
        self.calls.append(m.DelegateCall(len(self.delegates) - 1, (*inputs, *outputs)))

    def plan(self) -> m.ExecutionPlan:
        """Return the method."""
        return m.ExecutionPlan(
            name=self.name,
            values=tuple(self.values),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            chains=(m.Chain(tuple(self.calls)),),
            operators=tuple(self.operators),
            delegates=tuple(self.delegates),
            non_const_buffer_sizes=(0, self.size, self.size, self.size),
        )


DATA = bytes(range(256)) * 8
OFFSETS = (0, 0, 64, 128, 256, 1024)
"""Offsets in the data at which each constant and each initial value begins."""


def program(*halves: Half, data: bytes = DATA) -> m.Program:
    """Return a program of these methods."""
    return m.Program(
        tuple(half.plan() for half in halves),
        backend_delegate_data=(Blob(b"one"), Blob(b"other")),
        segments=(m.Segment(0, Blob(data)), m.Segment(len(data), Blob(DATA))),
        constant_segment=m.SubsegmentOffsets(0, OFFSETS),
        mutable_data_segments=(m.SubsegmentOffsets(1, OFFSETS),),
    )


def validate(
    before: Half | tuple[Half, ...],
    after: Half | tuple[Half, ...],
    gone: Collection[int] = (),
    new: Collection[int] = (),
    *,
    data: bytes = DATA,
    moved: Mapping[int, int] | None = None,
    shared: Collection[str] = (),
    foreign: bool = False,
) -> ValidationReport:
    """Validate a link of two methods, or of two programs.

    The first has instructions that are ``gone``, the second has ``new`` ones. The others correspond in their order,
    unless ``moved`` says otherwise.
    """
    befores, afters = (item if isinstance(item, tuple) else (item,) for item in (before, after))
    links = {}
    for one, other in zip(befores, afters, strict=True):
        kept = [position for position in range(len(one.calls)) if position not in gone]
        there = [position for position in range(len(other.calls)) if position not in new]
        pairs = dict(zip(kept, there, strict=True)) if moved is None else moved
        links[one.name] = Correspondence(pairs, one.delegate_inputs)
    return validate_link(program(*befores), program(*afters, data=data), links, shared_state=shared, foreign=foreign)


def only(report: ValidationReport) -> Violation:
    """Return the only violation."""
    assert report.violations, report
    return report.violations[0]
