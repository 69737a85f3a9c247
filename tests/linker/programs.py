"""Object programs written by hand: every tensor has its own address, and kernels are functions."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, starmap

from etdev.devices import TARGET_DEVICE
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.sidecar import MethodNotes, Sidecar, StateNote

SIZES = (16, 32, 32, 64, 128)
"""Sizes of tensors in bytes."""


class Method:
    """Builder of a method, instruction by instruction. Its methods return the value index of what they add."""

    def __init__(self, name: str = "forward") -> None:
        self.name = name
        self.values: list[m.Value] = []
        self.calls: list[m.Instruction] = []
        self.cuts: list[int] = []
        """Positions at which a chain ends, in order. No jump leads past one."""
        self.operators: list[m.Operator] = []
        self.delegates: list[m.BackendDelegate] = []
        self.delegate_inputs: dict[int, int] = {}
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.state: dict[int, str] = {}
        self.end = 0

    # Values

    def value(self, value: m.Value) -> int:
        """Add a value."""
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, nbytes: int, *, dynamic: bool = False, planned: bool = True, **more: object) -> int:
        """Add a tensor with its own address; the outermost of two dimensions may be dynamic."""
        place = m.AllocationDetails(1, self.end) if planned else None
        if planned:
            self.end = (self.end + nbytes + 127) // 64 * 64
        dynamism = m.TensorShapeDynamism.DYNAMIC_BOUND if dynamic else m.TensorShapeDynamism.STATIC
        sizes = (4, nbytes // 4)
        return self.value(
            m.Tensor(m.ScalarType.BYTE, sizes, (0, 1), dynamism, allocation_info=place, **more)  # type: ignore[arg-type]
        )

    def input(self, nbytes: int, **more: bool) -> int:
        """Add an input."""
        self.inputs.append(self.tensor(nbytes, **more))
        return self.inputs[-1]

    def constant(self, nbytes: int, number: int = 1) -> int:
        """Add a constant; equal numbers are equal data."""
        return self.tensor(nbytes, planned=False, data_buffer_idx=number)

    def buffer(self, nbytes: int, name: str, *, initial: int = 0) -> int:
        """Add state of that name."""
        info = m.ExtraTensorInfo(fully_qualified_name=name)
        index = self.tensor(nbytes, data_buffer_idx=initial, extra_tensor_info=info)
        self.state[index] = name
        return index

    def like(self, value: int, *, planned: bool = True) -> int:
        """Add a tensor of the same shape, dynamic if the other one is."""
        tensor = self.at(value)
        dynamic = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_BOUND
        out = self.tensor(tensor.nbytes, dynamic=dynamic, planned=planned)
        self.values[out] = replace(self.at(out), sizes=tensor.sizes, dim_order=tensor.dim_order)
        return out

    def at(self, value: int) -> m.Tensor:
        """Return the tensor of that index."""
        tensor = self.values[value]
        assert isinstance(tensor, m.Tensor)
        return tensor

    # Instructions

    def kernel(self, operator: str, *args: int) -> None:
        """Add a call with just these arguments."""
        name, _, overload = operator.partition(".")
        found = m.Operator(name, overload)
        if found not in self.operators:
            self.operators.append(found)
        self.calls.append(m.KernelCall(self.operators.index(found), args))

    def op(self, *args: int, nbytes: int = 32, dynamic: bool = False, name: str = "aten::mm.out") -> int:
        """Add an ``out`` variant with one new output."""
        out = self.tensor(nbytes, dynamic=dynamic)
        self.kernel(name, *args, out, out)
        return out

    def several(self, *args: int, nbytes: Sequence[int] = (32, 16)) -> list[int]:
        """Add an operator with several outputs, which end as a list."""
        outs = [self.tensor(size) for size in nbytes]
        self.kernel("aten::topk.values", *args, *outs, self.value(m.TensorList(tuple(outs))))
        return outs

    def split(self, of: int, nbytes: Sequence[int] = (16, 16)) -> list[int]:
        """Add an operator whose output is a list."""
        outs = [self.tensor(size) for size in nbytes]
        lists = [self.value(m.TensorList(tuple(outs))) for _ in range(2)]
        self.kernel("aten::split_copy.Tensor_out", of, *lists)
        return outs

    def cat(self, *parts: int, nbytes: int = 64) -> int:
        """Add an operator that takes a list."""
        return self.op(self.value(m.TensorList(parts)), nbytes=nbytes, name="aten::cat.out")

    def view(self, of: int, name: str = "aten::view_copy.out") -> int:
        """Add a copy that keeps every byte."""
        out = self.like(of)
        if name == "aten::view_copy.out":
            sizes = self.value(m.IntList(tuple(self.value(m.Int(size)) for size in self.at(of).sizes)))
            self.kernel(name, of, sizes, out, out)
        else:
            self.kernel(name, of, out, out)
        return out

    def flat(self, of: int) -> int:
        """Add a view in one dimension."""
        out = self.like(of)
        self.values[out] = replace(self.at(out), sizes=(self.at(of).nbytes,), dim_order=(0,))
        self.kernel("aten::view_copy.out", of, self.numbers(self.at(of).nbytes), out, out)
        return out

    def numbers(self, *numbers: int) -> int:
        """Add a list of integers."""
        return self.value(m.IntList(tuple(self.value(m.Int(number)) for number in numbers)))

    def vector(self, nbytes: int) -> int:
        """Add a tensor of one dimension."""
        out = self.tensor(nbytes)
        self.values[out] = replace(self.at(out), sizes=(nbytes,), dim_order=(0,))
        return out

    def put_together(self, *parts: int) -> int:
        """Add a ``cat`` of tensors of one dimension."""
        out = self.vector(sum(self.at(part).nbytes for part in parts))
        self.kernel("aten::cat.out", self.value(m.TensorList(parts)), self.value(m.Int(0)), out, out)
        return out

    def cut_out(self, of: int, start: int, end: int) -> int:
        """Add a ``slice_copy`` of a tensor of one dimension."""
        out = self.vector(end - start)
        numbers = [self.value(m.Int(number)) for number in (0, start, end, 1)]
        self.kernel("aten::slice_copy.Tensor_out", of, *numbers, out, out)
        return out

    def turn(self, of: int) -> int:
        """Add a ``permute_copy`` of a tensor of two dimensions."""
        out = self.like(of)
        self.values[out] = replace(self.at(out), sizes=self.at(of).sizes[::-1])
        self.kernel("aten::permute_copy.out", of, self.numbers(1, 0), out, out)
        return out

    def cut_up(self, of: int, *nbytes: int) -> list[int]:
        """Add a ``split_with_sizes_copy`` of a tensor of one dimension."""
        outs = [self.vector(size) for size in nbytes]
        lists = [self.value(m.TensorList(tuple(outs))) for _ in range(2)]
        self.kernel("aten::split_with_sizes_copy.out", of, self.numbers(*nbytes), self.value(m.Int(0)), *lists)
        return outs

    def alias(self, of: int, nbytes: int, at: int = 0) -> int:
        """Add a tensor inside another one, without any instruction, as a planner leaves a static view."""
        place = self.at(of).allocation_info
        assert place is not None
        index = self.tensor(nbytes, planned=False)
        inside = m.AllocationDetails(place.memory_id, place.memory_offset + at)
        self.values[index] = replace(self.at(index), allocation_info=inside)
        return index

    def et_view(self, of: int, out: int | None = None) -> int:
        """Add a view that is set at run time."""
        out = self.like(of, planned=False) if out is None else out
        sizes = self.value(m.IntList(tuple(self.value(m.Int(size)) for size in self.at(of).sizes)))
        self.kernel("executorch_prim::et_view.default", of, sizes, out)
        return out

    def copy(self, to: int, of: int) -> None:
        """Write all of a tensor."""
        self.kernel("aten::copy_", to, of, self.value(m.Bool(False)), to)

    def update(self, to: int, of: int) -> None:
        """Write some of a tensor."""
        self.kernel("aten::index_put_", to, of, to)

    def size(self, of: int, dim: int = 0) -> int:
        """Add a number: the size of a dimension."""
        number = self.value(m.Int(0))
        self.kernel("aten::sym_size.int", of, self.value(m.Int(dim)), number)
        return number

    def at_least(self, number: int, limit: int) -> int:
        """Add a truth value: whether a number reaches a limit."""
        found = self.value(m.Bool(False))
        self.kernel("executorch_prim::ge.Scalar", number, self.value(m.Int(limit)), found)
        return found

    def free(self, value: int) -> None:
        """Free the memory of a tensor."""
        self.calls.append(m.FreeCall(value))

    def move(self, origin: int, to: int) -> None:
        """Make a value refer to another tensor."""
        self.calls.append(m.MoveCall(origin, to))

    def delegate(
        self,
        *args: int,
        nbytes: Sequence[int] = (32,),
        device: str | None = None,
        backend: str = "MyBackend",
        dynamic: Collection[int] = (),
    ) -> list[int]:
        """Add a delegate call with new outputs, on its own device; ``dynamic``: numbers of those whose sizes vary."""
        outs = [self.tensor(size, dynamic=number in dynamic) for number, size in enumerate(nbytes)]
        specs = () if device is None else (m.CompileSpec(TARGET_DEVICE, device.encode()),)
        data = m.BackendDelegateDataReference(m.DataLocation.INLINE, 0)
        self.delegates.append(m.BackendDelegate(backend, data, specs))
        self.delegate_inputs[len(self.calls)] = len(args)
        self.calls.append(m.DelegateCall(len(self.delegates) - 1, (*args, *outs)))
        return outs

    # Control flow

    def cond(self, condition: int, then: Callable[[], Sequence[int]], other: Callable[[], Sequence[int]]) -> list[int]:
        """Add a branch as it is emitted: both sides move their results to new values."""
        start = len(self.calls)
        self.calls.append(m.JumpFalseCall(condition, 0))
        ours = then()
        merged = [self.like(value) for value in ours]
        for value, to in zip(ours, merged, strict=True):
            self.move(value, to)
        middle = len(self.calls)
        self.calls.append(m.JumpFalseCall(self.value(m.Bool(False)), 0))
        self.calls[start] = m.JumpFalseCall(condition, len(self.calls))
        theirs = other()
        for value, to in zip(theirs, merged, strict=True):
            self.move(value, to)
        self.calls[middle] = m.JumpFalseCall(self._jump(middle), len(self.calls))
        return merged

    def branches(self, data: int) -> tuple[int, int, int]:
        """Add a branch with an operator on each side; return its result, and the result of each side."""
        sides: list[int] = []

        def side() -> list[int]:
            sides.append(self.op(data))
            return sides[-1:]

        (merged,) = self.cond(data, side, side)
        one, other = sides
        return merged, one, other

    def _jump(self, at: int) -> int:
        call = self.calls[at]
        assert isinstance(call, m.JumpFalseCall)
        return call.cond_value_index

    @contextmanager
    def loop(self, times: int) -> Iterator[int]:
        """Add a counted loop, as ``map`` and ``scan`` are emitted. Yield the counter."""
        counter, one, limit = (self.value(m.Int(number)) for number in (0, 1, times))
        done = self.value(m.Bool(False))
        start = len(self.calls)
        yield counter
        self.kernel("executorch_prim::add.Scalar", counter, one, counter)
        self.kernel("executorch_prim::eq.Scalar", counter, limit, done)
        self.calls.append(m.JumpFalseCall(done, start))
        self.kernel("executorch_prim::sub.Scalar", counter, limit, counter)

    def repeat_while_false(self, condition: int, start: int) -> None:
        """Add a jump back to an instruction."""
        self.calls.append(m.JumpFalseCall(condition, start))

    # The whole

    def plan(self) -> m.ExecutionPlan:
        """Return the method."""
        return m.ExecutionPlan(
            name=self.name,
            values=tuple(self.values),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            chains=tuple(starmap(self._chain, pairwise((0, *self.cuts, len(self.calls))))),
            operators=tuple(self.operators),
            delegates=tuple(self.delegates),
            non_const_buffer_sizes=(0, self.end),
        )

    def _chain(self, start: int, end: int) -> m.Chain:
        calls = (
            replace(call, destination_instruction=call.destination_instruction - start)
            if isinstance(call, m.JumpFalseCall)
            else call
            for call in self.calls[start:end]
        )
        return m.Chain(tuple(calls))

    def notes(self) -> MethodNotes:
        """Return its notes in the sidecar."""
        state = tuple(StateNote(value, name, initialized=False) for value, name in sorted(self.state.items()))
        return MethodNotes(dict(self.delegate_inputs), state)


@dataclass(frozen=True)
class Object:
    """Object program with its sidecar."""

    program: m.Program
    sidecar: Sidecar
    named: Mapping[tuple[str, int], str]
    """State: (method, value index) → name."""

    @property
    def inputs(self) -> dict[str, Mapping[int, int]]:
        """Return, by method: index of each delegate (one per call) → how many arguments are inputs."""
        return {name: dict(enumerate(notes.delegate_inputs.values())) for name, notes in self.sidecar.methods.items()}


def program(*methods: Method) -> Object:
    """Return a program of these methods, with data for every constant and initial value that they may name."""
    data = Blob(random.Random(0).randbytes(1024))
    found = m.Program(
        tuple(method.plan() for method in methods),
        backend_delegate_data=(Blob(b"delegate"),),
        segments=(m.Segment(0, data), m.Segment(1024, data)),
        constant_segment=m.SubsegmentOffsets(0, (0, 0, 128, 256, 384)),
        mutable_data_segments=(m.SubsegmentOffsets(1, (0, 0, 128, 256, 384)),),
    )
    sidecar = Sidecar({method.name: method.notes() for method in methods})
    return Object(
        found, sidecar, {(method.name, value): name for method in methods for value, name in method.state.items()}
    )


def foreign(found: m.Program, **changes: object) -> m.Program:
    """Return a program of one method with fields of the method replaced."""
    return replace(found, execution_plan=(replace(found.execution_plan[0], **changes),))  # type: ignore[arg-type]
