"""Object programs written by hand or at random: every tensor has an address of its own, kernels are functions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from etdev.devices import TARGET_DEVICE
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.sidecar import MethodNotes, Sidecar, StateNote
from linker.oracle import Call

SIZES = (16, 32, 32, 64, 128)
"""Bytes of tensors."""


class Method:
    """A method that grows instruction by instruction. Its methods give the value index of what they add."""

    def __init__(self, name: str = "forward") -> None:
        self.name = name
        self.values: list[m.Value] = []
        self.calls: list[m.Instruction] = []
        self.operators: list[m.Operator] = []
        self.delegates: list[m.BackendDelegate] = []
        self.delegate_inputs: dict[int, int] = {}
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.state: dict[int, str] = {}
        self.end = 0

    # Values

    def value(self, value: m.Value) -> int:
        """Any value."""
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, nbytes: int, *, dynamic: bool = False, planned: bool = True, **more: object) -> int:
        """Bytes with an address of their own; the outermost of two dimensions may be dynamic."""
        place = m.AllocationDetails(1, self.end) if planned else None
        if planned:
            self.end = (self.end + nbytes + 127) // 64 * 64
        dynamism = m.TensorShapeDynamism.DYNAMIC_BOUND if dynamic else m.TensorShapeDynamism.STATIC
        sizes = (4, nbytes // 4)
        return self.value(
            m.Tensor(m.ScalarType.BYTE, sizes, (0, 1), dynamism, allocation_info=place, **more)  # type: ignore[arg-type]
        )

    def input(self, nbytes: int, **more: bool) -> int:
        """An input."""
        self.inputs.append(self.tensor(nbytes, **more))
        return self.inputs[-1]

    def constant(self, nbytes: int, number: int = 1) -> int:
        """A constant; equal numbers are equal data."""
        return self.tensor(nbytes, planned=False, data_buffer_idx=number)

    def buffer(self, nbytes: int, name: str, *, initial: int = 0) -> int:
        """State of that name."""
        info = m.ExtraTensorInfo(fully_qualified_name=name)
        index = self.tensor(nbytes, data_buffer_idx=initial, extra_tensor_info=info)
        self.state[index] = name
        return index

    def like(self, value: int, *, planned: bool = True) -> int:
        """A tensor of that shape, dynamic if that one is."""
        tensor = self.at(value)
        dynamic = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_BOUND
        out = self.tensor(tensor.nbytes, dynamic=dynamic, planned=planned)
        self.values[out] = replace(self.at(out), sizes=tensor.sizes, dim_order=tensor.dim_order)
        return out

    def at(self, value: int) -> m.Tensor:
        """The tensor of that index."""
        tensor = self.values[value]
        assert isinstance(tensor, m.Tensor)
        return tensor

    # Instructions

    def kernel(self, operator: str, *args: int) -> None:
        """A call with just these arguments."""
        name, _, overload = operator.partition(".")
        found = m.Operator(name, overload)
        if found not in self.operators:
            self.operators.append(found)
        self.calls.append(m.KernelCall(self.operators.index(found), args))

    def op(self, *args: int, nbytes: int = 32, dynamic: bool = False, name: str = "aten::mm.out") -> int:
        """An ``out`` variant with one new output."""
        out = self.tensor(nbytes, dynamic=dynamic)
        self.kernel(name, *args, out, out)
        return out

    def several(self, *args: int, nbytes: Sequence[int] = (32, 16)) -> list[int]:
        """An operator with several outputs, which end as a list."""
        outs = [self.tensor(size) for size in nbytes]
        self.kernel("aten::topk.values", *args, *outs, self.value(m.TensorList(tuple(outs))))
        return outs

    def split(self, of: int, nbytes: Sequence[int] = (16, 16)) -> list[int]:
        """An operator whose output is a list."""
        outs = [self.tensor(size) for size in nbytes]
        lists = [self.value(m.TensorList(tuple(outs))) for _ in range(2)]
        self.kernel("aten::split_copy.Tensor_out", of, *lists)
        return outs

    def cat(self, *parts: int, nbytes: int = 64) -> int:
        """An operator that takes a list."""
        return self.op(self.value(m.TensorList(parts)), nbytes=nbytes, name="aten::cat.out")

    def view(self, of: int, name: str = "aten::view_copy.out") -> int:
        """A copy that keeps every byte."""
        out = self.like(of)
        if name == "aten::view_copy.out":
            sizes = self.value(m.IntList(tuple(self.value(m.Int(size)) for size in self.at(of).sizes)))
            self.kernel(name, of, sizes, out, out)
        else:
            self.kernel(name, of, out, out)
        return out

    def flat(self, of: int) -> int:
        """A view in one dimension."""
        out = self.like(of)
        self.values[out] = replace(self.at(out), sizes=(self.at(of).nbytes,), dim_order=(0,))
        self.kernel("aten::view_copy.out", of, self.numbers(self.at(of).nbytes), out, out)
        return out

    def numbers(self, *numbers: int) -> int:
        """A list of integers."""
        return self.value(m.IntList(tuple(self.value(m.Int(number)) for number in numbers)))

    def vector(self, nbytes: int) -> int:
        """A tensor of one dimension."""
        out = self.tensor(nbytes)
        self.values[out] = replace(self.at(out), sizes=(nbytes,), dim_order=(0,))
        return out

    def put_together(self, *parts: int) -> int:
        """``cat`` of tensors of one dimension."""
        out = self.vector(sum(self.at(part).nbytes for part in parts))
        self.kernel("aten::cat.out", self.value(m.TensorList(parts)), self.value(m.Int(0)), out, out)
        return out

    def cut_out(self, of: int, start: int, end: int) -> int:
        """``slice_copy`` of a tensor of one dimension."""
        out = self.vector(end - start)
        numbers = [self.value(m.Int(number)) for number in (0, start, end, 1)]
        self.kernel("aten::slice_copy.Tensor_out", of, *numbers, out, out)
        return out

    def turn(self, of: int) -> int:
        """``permute_copy`` of a tensor of two dimensions."""
        out = self.like(of)
        self.values[out] = replace(self.at(out), sizes=self.at(of).sizes[::-1])
        self.kernel("aten::permute_copy.out", of, self.numbers(1, 0), out, out)
        return out

    def cut_up(self, of: int, *nbytes: int) -> list[int]:
        """``split_with_sizes_copy`` of a tensor of one dimension."""
        outs = [self.vector(size) for size in nbytes]
        lists = [self.value(m.TensorList(tuple(outs))) for _ in range(2)]
        self.kernel("aten::split_with_sizes_copy.out", of, self.numbers(*nbytes), self.value(m.Int(0)), *lists)
        return outs

    def alias(self, of: int, nbytes: int, at: int = 0) -> int:
        """A tensor that lies in another one, without any instruction, as a planner leaves a static view."""
        place = self.at(of).allocation_info
        assert place is not None
        index = self.tensor(nbytes, planned=False)
        inside = m.AllocationDetails(place.memory_id, place.memory_offset + at)
        self.values[index] = replace(self.at(index), allocation_info=inside)
        return index

    def et_view(self, of: int, out: int | None = None) -> int:
        """A view that is set at run time."""
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

    def move(self, origin: int, to: int) -> None:
        """Make a value another tensor."""
        self.calls.append(m.MoveCall(origin, to))

    def delegate(
        self, *args: int, nbytes: Sequence[int] = (32,), device: str | None = None, backend: str = "MyBackend"
    ) -> list[int]:
        """A delegate call with new outputs, on a device of its own."""
        outs = [self.tensor(size) for size in nbytes]
        specs = () if device is None else (m.CompileSpec(TARGET_DEVICE, device.encode()),)
        data = m.BackendDelegateDataReference(m.DataLocation.INLINE, 0)
        self.delegates.append(m.BackendDelegate(backend, data, specs))
        self.delegate_inputs[len(self.calls)] = len(args)
        self.calls.append(m.DelegateCall(len(self.delegates) - 1, (*args, *outs)))
        return outs

    # Control flow

    def cond(self, condition: int, then: Callable[[], Sequence[int]], other: Callable[[], Sequence[int]]) -> list[int]:
        """A branch, as it is emitted: both sides move what they compute to new values."""
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
        """A branch with an operator on each side: what it gives, and what each side computes."""
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
        """A counted loop, as ``map`` and ``scan`` are emitted. Gives the counter."""
        counter, one, limit = (self.value(m.Int(number)) for number in (0, 1, times))
        done = self.value(m.Bool(False))
        start = len(self.calls)
        yield counter
        self.kernel("executorch_prim::add.Scalar", counter, one, counter)
        self.kernel("executorch_prim::eq.Scalar", counter, limit, done)
        self.calls.append(m.JumpFalseCall(done, start))
        self.kernel("executorch_prim::sub.Scalar", counter, limit, counter)

    def repeat_while_false(self, condition: int, start: int) -> None:
        """Jump back to an instruction."""
        self.calls.append(m.JumpFalseCall(condition, start))

    # The whole

    def plan(self) -> m.ExecutionPlan:
        """The method."""
        return m.ExecutionPlan(
            name=self.name,
            values=tuple(self.values),
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            chains=(m.Chain(tuple(self.calls)),),
            operators=tuple(self.operators),
            delegates=tuple(self.delegates),
            non_const_buffer_sizes=(0, self.end),
        )

    def notes(self) -> MethodNotes:
        """What the sidecar says of it."""
        state = tuple(StateNote(value, name, initialized=False) for value, name in sorted(self.state.items()))
        return MethodNotes(dict(self.delegate_inputs), state)


@dataclass(frozen=True)
class Object:
    """An object program with its sidecar."""

    program: m.Program
    sidecar: Sidecar
    named: Mapping[tuple[str, int], str]
    """The state: (method, value index) → name."""

    @property
    def inputs(self) -> dict[str, Mapping[int, int]]:
        """By method: index of each delegate, of which there is one for each call → how many arguments are inputs."""
        return {name: dict(enumerate(notes.delegate_inputs.values())) for name, notes in self.sidecar.methods.items()}


def program(*methods: Method) -> Object:
    """A program of these methods, with data for every constant and initial value that they may name."""
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
    """A program of one method with fields of the method replaced."""
    return replace(found, execution_plan=(replace(found.execution_plan[0], **changes),))  # type: ignore[arg-type]


# At random

_VIEWS = ("aten::view_copy.out", "aten::view_copy.out", "aten::alias_copy.out", "aten::detach_copy.out")
_OPERATORS = ("aten::add.out", "aten::mul.out", "aten::relu.out", "my::fused.out")


class _Drawn:
    """A method drawn statement by statement. Only what is defined on every path is used."""

    def __init__(
        self,
        draw: st.DrawFn,
        name: str,
        names: Sequence[str],
        *,
        initial: bool = True,
        delegates: bool = True,
        devices: Sequence[str] = (),
    ) -> None:
        self.draw, self.delegates, self.devices = draw, delegates, devices
        self.method = method = Method(name)
        self.state: list[int] = []
        self.known: list[int] = []
        for state in draw(st.lists(st.sampled_from(names), unique=True, max_size=2)):
            # The same name has the same size in every method.
            data = draw(st.sampled_from((0, 0, 1, 2))) if initial else 0
            self.state.append(method.buffer(SIZES[names.index(state)], state, initial=data))
        for _ in range(draw(st.integers(1, 3))):
            planned = draw(st.sampled_from((True, True, True, False)))
            self.known.append(
                method.input(self.size(), dynamic=draw(st.sampled_from((False, False, True))), planned=planned)
            )
        constants = [method.constant(self.size(), draw(st.integers(1, 4))) for _ in range(draw(st.integers(0, 1)))]
        self.known += constants
        self.unwritable = set(constants)
        """Values that may be constants, which nobody writes."""
        self.budget = draw(st.integers(2, 16))
        self.block(0)
        some = st.sampled_from([*self.known, *self.state])
        method.outputs = [
            value for value in draw(st.lists(some, min_size=1, max_size=3)) if method.at(value).allocation_info
        ]

    def size(self) -> int:
        return self.draw(st.sampled_from(SIZES))

    def some(self) -> int:
        """A value, most often one of the last."""
        recent = self.known[-3:]
        return self.draw(st.sampled_from([*recent, *recent, *self.known, *self.state]))

    def block(self, depth: int) -> None:
        kinds = [self.op, self.view] * 6
        kinds += [self.several, self.split, self.cat, self.et_view, self.unknown, self.alias]
        kinds += [self.put_together, self.cut_out, self.cut_up] * 2 + [self.turn]
        if self.delegates:
            kinds += [self.delegate] * (12 if self.devices else 1)
        if self.state:
            kinds += [self.copy, self.update, self.copy]
        if depth < 3:
            kinds += [lambda: self.cond(depth)] * 4 + [lambda: self.counted(depth), lambda: self.carried(depth)]
        for _ in range(self.draw(st.integers(1, 6))):
            if self.budget <= 0:
                break
            self.budget -= 1
            self.draw(st.sampled_from(kinds))()

    def add(self, *values: int) -> None:
        self.known += values

    def op(self) -> None:
        args = [self.some() for _ in range(self.draw(st.integers(1, 2)))]
        dynamic = any(self.method.at(value).shape_dynamism for value in args)
        name = self.draw(st.sampled_from(_OPERATORS))
        if not dynamic and self.draw(st.booleans()):
            out = self.method.like(args[0])
            self.method.kernel(name, *args, out, out)
            self.add(out)
            return
        dynamic = dynamic and self.draw(st.booleans())
        if dynamic:  # Only the operator itself says how large what it computes is.
            name, args = "aten::nonzero.out", args[:1]
        self.add(self.method.op(*args, nbytes=self.size(), dynamic=dynamic, name=name))

    def view(self) -> None:
        self.add(self.method.view(self.some(), self.draw(st.sampled_from(_VIEWS))))

    def several(self) -> None:
        self.add(*self.method.several(self.some(), nbytes=[self.size() for _ in range(2)]))

    def split(self) -> None:
        self.add(*self.method.split(self.some(), [self.size() for _ in range(self.draw(st.integers(1, 3)))]))

    def cat(self) -> None:
        self.add(self.method.cat(*(self.some() for _ in range(self.draw(st.integers(1, 3)))), nbytes=self.size()))

    def some_flat(self) -> int | None:
        """A static value, in one dimension, that can be cut into quarters."""
        of = self.some()
        if self.method.at(of).shape_dynamism or self.method.at(of).nbytes % 16:
            return None
        return of if len(self.method.at(of).sizes) == 1 else self.method.flat(of)

    def put_together(self) -> None:
        parts = [self.some_flat() for _ in range(self.draw(st.integers(1, 3)))]
        found = [part for part in parts if part is not None]
        if found:
            self.add(*found, self.method.put_together(*found))

    def cut_out(self) -> None:
        of = self.some_flat()
        if of is not None:
            whole = self.method.at(of).nbytes
            start = self.draw(st.sampled_from([0, whole // 2, whole // 4]))
            self.add(self.method.cut_out(of, start, self.draw(st.sampled_from([whole, start + whole // 4]))))

    def turn(self) -> None:
        constants = [value for value in self.known if self.method.at(value).is_constant]
        of = self.draw(st.sampled_from([*constants, self.some()]))
        if not self.method.at(of).shape_dynamism and len(self.method.at(of).sizes) == 2:
            self.add(self.method.turn(of))

    def cut_up(self) -> None:
        of = self.some_flat()
        if of is not None:
            whole = self.method.at(of).nbytes
            self.add(*self.method.cut_up(of, whole // 4, whole // 4, whole // 2))

    def et_view(self) -> None:
        of = self.some()
        self.add(self.method.et_view(of))
        if of in self.unwritable:
            self.unwritable.add(self.known[-1])

    def delegate(self) -> None:
        self.add(*self.delegated([self.size() for _ in range(self.draw(st.integers(1, 2)))]))

    def delegated(self, nbytes: Sequence[int]) -> list[int]:
        if not self.devices:
            return self.method.delegate(self.some(), nbytes=nbytes)
        args = [self.some() for _ in range(self.draw(st.integers(1, 3)))]
        device = self.draw(st.sampled_from((*self.devices, *self.devices, None)))
        backend = self.draw(st.sampled_from(("MyBackend", "EtdevReferenceBackend")))
        return self.method.delegate(*args, nbytes=nbytes, device=device, backend=backend)

    def alias(self) -> None:
        """Of a static tensor that a kernel has written in its own place."""
        written = {call.args[-1] for call in self.method.calls if isinstance(call, m.KernelCall)}
        fitting = [
            value
            for value in self.known
            if value in written and self.method.at(value).allocation_info and not self.method.at(value).shape_dynamism
        ]
        if fitting:
            of = self.draw(st.sampled_from(fitting))
            whole = self.method.at(of).nbytes
            size = self.draw(st.sampled_from([size for size in {whole, *SIZES} if size <= whole]))
            self.add(self.method.alias(of, size, self.draw(st.sampled_from((0, whole - size)))))

    def unknown(self) -> None:
        """An operator that changes what it gets, of which the linker knows nothing."""
        to = self.draw(st.sampled_from([value for value in self.known if value not in self.unwritable]))
        self.method.kernel("my::update", to, self.some(), self.method.value(m.Bool(False)))

    def copy(self) -> None:
        to = self.draw(st.sampled_from(self.state))
        if self.devices and self.draw(st.booleans()):
            (out,) = self.delegated([self.method.at(to).nbytes])
            self.add(out)
            self.method.copy(to, out)
            return
        if self.draw(st.booleans()):
            out = self.method.like(to)
            self.method.kernel(self.draw(st.sampled_from(_OPERATORS)), to, self.some(), out, out)
            self.add(out)
            self.method.copy(to, out)
            return
        self.method.copy(to, self.method.op(self.some(), nbytes=self.method.at(to).nbytes))

    def update(self) -> None:
        self.method.update(self.draw(st.sampled_from(self.state)), self.some())

    def cond(self, depth: int) -> None:
        before = list(self.known)
        count = self.draw(st.integers(1, 2))
        sizes: list[int] = []

        def side() -> list[int]:
            self.known = list(before)
            self.block(depth + 1)
            if not sizes:
                found = [self.some() for _ in range(count)]
                sizes.extend(found)
                return found
            others.extend(self.matching(value) for value in sizes)
            return others

        others: list[int] = []
        merged = self.method.cond(self.some(), side, side)
        for value, *ways in zip(merged, sizes, others, strict=True):
            if self.unwritable.intersection(ways):
                self.unwritable.add(value)
        self.known = [*before, *merged]

    def matching(self, value: int) -> int:
        """A value of that shape: one that is there, or a new one."""
        wanted = self.method.at(value)
        fitting = [
            other
            for other in [*self.known, *self.state]
            if (self.method.at(other).sizes, self.method.at(other).shape_dynamism)
            == (wanted.sizes, wanted.shape_dynamism)
        ]
        if fitting and self.draw(st.booleans()):
            return self.draw(st.sampled_from(fitting))
        out = self.method.like(value)
        self.method.kernel("aten::mm.out", self.some(), out, out)
        return out

    def counted(self, depth: int) -> None:
        """What ``scan`` becomes: a carried tensor and rows that are put together."""
        method, times = self.method, self.draw(st.integers(1, 4))
        carry = method.tensor(self.size())
        method.copy(carry, method.op(self.some(), nbytes=method.at(carry).nbytes))
        rows = method.tensor(64, dynamic=True)
        before = [*self.known, carry]
        with method.loop(times) as counter:
            self.known = list(before)
            self.block(depth + 1)
            method.copy(carry, method.op(self.some(), carry, nbytes=method.at(carry).nbytes))
            method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(self.some(), nbytes=16), counter)
        self.known = [*before, rows]

    def carried(self, depth: int) -> None:
        """A loop that nobody emits today: what it carries is moved from round to round."""
        method = self.method
        first = self.some()
        carry = method.like(first)
        method.move(first, carry)
        self.unwritable.add(carry)
        before = [*self.known, carry]
        start = len(method.calls)
        self.known = list(before)
        self.block(depth + 1)
        method.move(self.matching(carry), carry)
        method.repeat_while_false(self.some(), start)
        self.known = before


@st.composite
def objects(
    draw: st.DrawFn,
    *,
    most_methods: int = 1,
    initial: bool = True,
    delegates: bool = True,
    devices: Sequence[str] = (),
) -> Object:
    """Object programs; ``initial``: state may have initial values; with ``devices`` most of what they do is there."""
    drawn = [
        _Drawn(draw, f"m{index}", "abc", initial=initial, delegates=delegates, devices=devices)
        for index in range(draw(st.integers(1, most_methods)))
    ]
    return program(*(item.method for item in drawn))


@st.composite
def calls(draw: st.DrawFn, methods: Sequence[str]) -> list[Call]:
    """A few calls, one after the other."""
    call = st.builds(
        Call, st.sampled_from(methods), st.integers(0, 100), st.lists(st.booleans(), max_size=6).map(tuple)
    )
    return draw(st.lists(call, min_size=1, max_size=4))
