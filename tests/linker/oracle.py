"""Reference for what a program computes, without any code of the linker: byte by byte, with names instead of numbers.

Memory is as the runtime has it: one block of bytes per planned buffer, values that refer to tensors, tensors that point
to bytes. A byte holds a number that stands for a computed content. A kernel is an unknown function: its results depend
on the operator, its arguments and every byte that it reads. Two programs with equal traces compute the same, whatever
the kernels are.

Sources: ``runtime/executor/method.cpp``, ``kernels/prim_ops`` of executorch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etdev.devices import HOST, Device
from etdev.program import model as m
from etdev.program.constants import constant_data
from etdev.program.devices import delegate_device

TO_DEVICE, TO_HOST = "et_copy::_h2d_copy", "et_copy::_d2h_copy"
IDENTITIES = {
    TO_DEVICE,
    TO_HOST,
    "aten::view_copy",
    "aten::alias_copy",
    "aten::detach_copy",
    "aten::unsqueeze_copy",
    "aten::squeeze_copy",
}
"""Copies: the output has the bytes of the input."""
ROWS = 4
"""Maximum number of rows of a dynamic tensor, whatever its sizes: its current rows are so many quarters of them."""
_MOST_CONDITIONS = 30
"""Limit on conditions on data in one call; all further ones are true, which leaves loops."""


class OracleError(AssertionError):
    """Error for a program that would crash the runtime."""


@dataclass(frozen=True)
class Call:
    """One call of a method: the seeds of its inputs, and the values of its conditions."""

    method: str = "forward"
    seed: int = 0
    decisions: tuple[bool, ...] = ()


@dataclass
class _Tensor:
    """Tensor while the program runs."""

    memory: list[int] | None
    """Memory with its bytes; ``None`` for a tensor without address."""
    start: int
    capacity: int
    dynamic: bool
    external: bool = False
    """True if the caller brings its memory."""
    rows: int = ROWS
    device: Device = HOST
    sizes: tuple[int, ...] = ()
    """Largest sizes."""

    @property
    def nbytes(self) -> int:
        return self.capacity * self.rows // ROWS if self.dynamic else self.capacity

    def size(self, dim: int) -> int:
        return self.rows if self.dynamic and not dim else self.sizes[dim]

    def read(self) -> tuple[int, ...]:
        if not self.nbytes:
            return ()
        if self.memory is None:
            raise OracleError("a tensor without an address is read")
        found = tuple(self.memory[self.start : self.start + self.nbytes])
        if len(found) < self.nbytes:
            raise OracleError("a tensor reaches beyond its buffer")
        return found

    def write(self, content: Sequence[int], at: int = 0) -> None:
        if not content:
            return
        if self.memory is None:
            raise OracleError("a tensor without an address is written")
        begin = self.start + at
        if begin + len(content) > min(self.start + self.nbytes, len(self.memory)):
            raise OracleError("a tensor is written beyond its end")
        self.memory[begin : begin + len(content)] = content


@dataclass
class Trace:
    """Events of one call."""

    outputs: list[tuple[int, ...]] = field(default_factory=list)
    kernels: list[int] = field(default_factory=list)
    """All operands of each kernel that ran and of each condition, sorted. Copies without arithmetic are left out."""
    effects: list[int] = field(default_factory=list)
    """The same for conditions, and for calls whose effects may exceed their outputs, in the order of execution."""


@dataclass
class Machine:
    """Loaded program. ``shared``: all methods have the same buffers, as in ``executorch.runtime.Runtime``.

    ``named``: tensors (method, value index) with bytes of their own under a name, for an object program whose methods
    share state. ``inputs``: per method, how many arguments of each delegate's call are inputs. ``placed``: every tensor
    must be on the device where it is read and written; in an object program all are on the host. ``lent``: per method,
    the positions of outputs for which the caller brings memory.
    """

    program: m.Program
    shared: bool = False
    placed: bool = True
    named: Mapping[tuple[str, int], str] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    lent: Mapping[str, Collection[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._buffers: dict[Any, list[int]] = {}
        self._methods = {plan.name: self._load(plan) for plan in self.program.execution_plan}

    def _load(self, plan: m.ExecutionPlan) -> list[Any]:
        values: list[Any] = []
        for index, value in enumerate(plan.values):
            if isinstance(value, m.Tensor):
                values.append(self._tensor(plan, index, value))
            elif isinstance(value, m.Int):
                values.append(value.int_val)
            elif isinstance(value, m.Bool):
                values.append(value.bool_val)
            else:
                values.append(value)
        return values

    def _tensor(self, plan: m.ExecutionPlan, index: int, value: m.Tensor) -> _Tensor:
        unbounded = value.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
        size = 0 if unbounded else value.nbytes
        dynamic = value.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_BOUND
        tensor = _Tensor(None, 0, size, dynamic, device=value.device, sizes=value.sizes)
        if value.allocation_info and plan.buffer_device(value.allocation_info.memory_id) != value.device:
            raise OracleError("a tensor and its buffer are on different devices")
        place = value.allocation_info
        name = self.named.get((plan.name, index))
        if name is not None:
            tensor.memory = self._buffers.setdefault(name, [0] * size)
        elif place is not None:
            key = place.memory_id if self.shared else (plan.name, place.memory_id)
            memory = self._buffers.setdefault(key, [])
            memory += [0] * (plan.non_const_buffer_sizes[place.memory_id] - len(memory))
            tensor.memory, tensor.start = memory, place.memory_offset
            if place.memory_offset + size > plan.non_const_buffer_sizes[place.memory_id]:
                raise OracleError("a tensor does not lie in its buffer")
        elif value.is_constant:
            data = constant_data(self.program, value)
            tensor.memory = [_number("constant", byte) for byte in (range(size) if data is None else bytes(data))]
        else:
            tensor.external = True
        if place is not None and value.data_buffer_idx:
            tensor.write([_number("initial", value.data_buffer_idx, byte) for byte in range(size)])
        return tensor

    def run(self, *calls: Call) -> list[Trace]:
        """Make some calls in order."""
        return [
            _Run(
                self.program.method(call.method),
                self._methods[call.method],
                call,
                self.inputs.get(call.method, {}),
                self.lent.get(call.method, ()),
                placed=self.placed,
            ).run()
            for call in calls
        ]


class _Run:
    """One call."""

    def __init__(
        self,
        plan: m.ExecutionPlan,
        values: list[Any],
        call: Call,
        inputs: Mapping[int, int],
        lent: Collection[int],
        *,
        placed: bool,
    ) -> None:
        self._plan, self._values, self._call, self._placed = plan, values, call, placed
        self._inputs, self._lent = inputs, {plan.outputs[position]: [0] for position in lent}
        self._trace = Trace()
        self._asked = 0
        self._freed: list[tuple[_Tensor, list[int] | None, int]] = []

    def run(self) -> Trace:
        self._set_inputs()
        for chain in self._plan.chains:
            at = 0
            while at < len(chain.instructions):
                at = self._step(chain.instructions[at], at)
        self._trace.outputs = [
            self._values[index].read() for index in self._plan.outputs if isinstance(self._values[index], _Tensor)
        ]
        self._check_ends()
        self._trace.kernels.sort()
        for tensor, memory, start in reversed(self._freed):  # In the next call, the tensor has its memory again.
            tensor.memory, tensor.start = memory, start
        return self._trace

    def _set_inputs(self) -> None:
        for position, index in enumerate(self._plan.inputs):
            tensor = self._values[index]
            if isinstance(tensor, _Tensor):
                tensor.rows = _number(self._call.seed, "rows") % (ROWS + 1) if tensor.dynamic else ROWS
                if tensor.external:
                    tensor.memory, tensor.start = [0] * tensor.capacity, 0
                tensor.write([_number(self._call.seed, position, byte) for byte in range(tensor.nbytes)])
        for index in self._plan.outputs:
            tensor, declared = self._values[index], self._plan.values[index]
            # The file determines whose memory it is, whatever tensor the value refers to by now.
            unplanned = isinstance(declared, m.Tensor) and declared.allocation_info is None and not declared.is_constant
            if isinstance(tensor, _Tensor) and unplanned and index not in self._plan.inputs:
                tensor.memory, tensor.start = [0] * tensor.capacity, 0
                if index in self._lent:
                    self._lent[index] = tensor.memory

    def _check_ends(self) -> None:
        """Check that outputs are where the file says, and in the memory that the caller brought."""
        for index in self._plan.outputs:
            tensor, declared = self._values[index], self._plan.values[index]
            if isinstance(declared, m.Tensor) and isinstance(tensor, _Tensor) and tensor.device != declared.device:
                raise OracleError("an output is not on its device")
            if index in self._lent and tensor.memory is not self._lent[index]:
                raise OracleError("an output is not in the memory of the caller")

    def _step(self, call: m.Instruction, at: int) -> int:
        match call:
            case m.KernelCall():
                operator = self._plan.operators[call.op_index]
                self._check_devices(operator.name, call.args)
                self._kernel(operator, call.args)
            case m.DelegateCall():
                split = self._inputs[call.delegate_index]
                self._check_delegate(self._plan.delegates[call.delegate_index], call.args, split)
                self._compute(("delegate", call.delegate_index), call.args[:split], self._tensors(call.args[split:]))
            case m.MoveCall():
                self._values[call.move_to] = self._values[call.move_from]
            case m.JumpFalseCall():
                if not self._condition(call.cond_value_index):
                    return call.destination_instruction
            case m.FreeCall():
                freed = self._values[call.value_index]
                self._freed.append((freed, freed.memory, freed.start))
                freed.memory = None
        return at + 1

    def _condition(self, index: int) -> bool:
        value = self._values[index]
        if isinstance(value, bool):
            return value
        self._record(_number("condition", value.read()), effects=True)
        self._asked += 1
        if self._asked > _MOST_CONDITIONS or not self._call.decisions:
            return True
        return self._call.decisions[self._asked % len(self._call.decisions)]

    def _check_devices(self, name: str, args: tuple[int, ...]) -> None:
        """Check that a kernel of the host gets only host tensors, and a copy one tensor of each side."""
        places = [tensor.device.is_host for tensor in self._tensors(args[:2])]
        if name in (TO_DEVICE, TO_HOST):
            if places != [name == TO_DEVICE, name == TO_HOST]:
                raise OracleError("a copy does not go from the host to a device, or back")
        elif name != "aten::sym_size" and not all(tensor.device.is_host for tensor in self._tensors(args)):
            raise OracleError("a kernel of the host gets a tensor on a device")

    def _check_delegate(self, delegate: m.BackendDelegate, args: tuple[int, ...], inputs: int) -> None:
        """Check that all arguments of a delegate are on its device; outputs may overlap inputs only if it says so."""
        device = delegate_device(delegate) if self._placed else HOST
        if any(tensor.device != device for tensor in self._tensors(args)):
            raise OracleError("a delegate gets a tensor that is not on its device")
        for out in self._tensors(args[inputs:]):
            for other in self._tensors(args[:inputs]):
                overlap = other.memory is out.memory and other.memory is not None
                overlap &= other.start < out.start + out.nbytes and out.start < other.start + other.nbytes
                if overlap and self._placed and delegate.id != "EtdevReferenceBackend":
                    raise OracleError("a delegate writes over what it reads")

    # Kernels

    def _kernel(self, operator: m.Operator, args: tuple[int, ...]) -> None:
        match operator.name:
            case "executorch_prim::et_view":
                self._view(*args)
            case "executorch_prim::et_copy_index":
                self._copy_index(*args)
            case "executorch_prim::add" | "executorch_prim::sub" | "executorch_prim::eq" | "executorch_prim::ge":
                self._arithmetic(operator.name.partition("::")[2], *args)
            case "aten::sym_size":
                self._values[args[2]] = self._values[args[0]].size(self._values[args[1]])
            case "aten::index_put_" | "my::update":
                self._update(operator, args)
            case "aten::empty":
                pass
            case _ if not self._moves_bytes(operator, args):
                self._compute((operator.name, operator.overload), *self._split(args))

    def _moves_bytes(self, operator: m.Operator, args: tuple[int, ...]) -> bool:
        """Execute a copy. The link may remove it, so its only trace are the bytes that it writes."""
        source, out = self._values[args[0]], self._values[args[-1]]
        match operator.name:
            case "aten::copy_":
                source.write(self._values[args[1]].read())
            case "aten::cat" if len(args) == 4:
                parts = [part.read() for part in self._tensors(args[:1])]
                out.write(tuple(byte for part in parts for byte in part))
            case "aten::slice_copy":
                start = self._values[args[2]]
                out.write(source.read()[start : start + out.nbytes])
            case "aten::permute_copy":
                rows, columns = self._plan.values[args[0]].sizes
                out.write([source.read()[row * columns + column] for column in range(columns) for row in range(rows)])
            case "aten::split_with_sizes_copy":
                rest = source.read()
                for part in self._tensors(args[-1:]):
                    part.write(rest[: part.nbytes])
                    rest = rest[part.nbytes :]
            case name if name in IDENTITIES:
                out.rows = source.rows
                out.write(source.read())
            case _:
                return False
        return True

    def _view(self, of: int, _: int, out: int) -> None:
        source, tensor = self._values[of], self._values[out]
        if source.capacity > tensor.capacity:
            raise OracleError("a view is larger than it may be")
        tensor.rows, tensor.memory, tensor.start = source.rows, source.memory, source.start

    def _copy_index(self, to: int, of: int, index: int) -> None:
        tensor, row, number = self._values[to], self._values[of].read(), self._values[index]
        self._record(_number("copy_index", number, row), effects=True)
        tensor.rows = number + 1
        tensor.write(row, number * len(row))

    def _arithmetic(self, name: str, one: int, other: int, out: int) -> None:
        a, b = self._values[one], self._values[other]
        self._values[out] = {"add": a + b, "sub": a - b, "eq": a == b, "ge": a >= b}[name]

    def _update(self, operator: m.Operator, args: tuple[int, ...]) -> None:
        """Change some of the bytes of the first argument."""
        tensor = self._values[args[0]]
        before, key = tensor.read(), self._key(operator.name, args[:-1])
        self._record(key, effects=operator.name.startswith("my::"))
        tensor.write([_number(key, i) if (key >> (i // 4 % 16)) & 1 else byte for i, byte in enumerate(before)])

    def _split(self, args: tuple[int, ...]) -> tuple[tuple[int, ...], list[_Tensor]]:
        """Return the arguments of an ``out`` variant, and its outputs."""
        last = self._values[args[-1]]
        if isinstance(last, _Tensor):
            return args[:-2], [last]
        count = 1 if isinstance(self._values[args[-2]], m.TensorList) else len(last.items)
        return args[: -1 - count], self._tensors(args[-1:])

    def _compute(self, operator: object, args: tuple[int, ...], outs: list[_Tensor]) -> None:
        """Write every output, with bytes that depend on everything that is read."""
        key = self._key(operator, args)
        self._record(key, effects=self._has_effects(operator))
        rows = [item.rows for item in self._tensors(args) if item.dynamic]
        for number, out in enumerate(outs):
            out.rows = max(rows, default=ROWS) if out.dynamic else ROWS
            out.write([_number(key, number, byte) for byte in range(out.nbytes)])

    def _record(self, key: int, *, effects: bool) -> None:
        self._trace.kernels.append(key)
        if effects:
            self._trace.effects.append(key)

    def _has_effects(self, operator: object) -> bool:
        """Return whether the order of such calls is an effect: those of unknown operators and unknown backends."""
        match operator:
            case ("delegate", int(index)):
                return self._plan.delegates[index].id not in ("EtdevReferenceBackend", "XnnpackBackend")
            case (str(name), _):
                return not name.startswith(("aten::", "dim_order_ops::", "quantized_decomposed::", "et_copy::"))
        return True

    def _key(self, operator: object, args: tuple[int, ...]) -> int:
        return _number(operator, *(self._content(index) for index in args))

    def _content(self, index: int) -> object:
        value = self._values[index]
        if isinstance(value, _Tensor):
            return value.rows, value.read()
        if isinstance(value, m.IntList | m.TensorList | m.OptionalTensorList):
            return tuple(self._content(item) if item >= 0 else None for item in value.items)
        return value

    def _tensors(self, args: Sequence[int]) -> list[_Tensor]:
        found = []
        for index in args:
            value = self._values[index]
            if isinstance(value, _Tensor):
                found.append(value)
            elif isinstance(value, m.TensorList | m.OptionalTensorList):
                found += self._tensors([item for item in value.items if item >= 0])
        return found


def _number(*parts: object) -> int:
    """Return a number that stands for a content; only equal contents have equal numbers."""
    return hash(parts)
