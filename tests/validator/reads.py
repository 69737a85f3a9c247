"""Content that each instruction of a program reads, byte by byte, to judge whether a mutant on devices differs.

The machine does no arithmetic, refuses nothing, and shares no code with linker, validator or interpreter. Memory is as
the file plans it: each buffer is on the device that the table says, and starts with zeros. A byte holds a number that
stands for a computed content; a kernel is an unknown function. Code reads and writes memory of its own device. From
another device it reads unique bytes, and its writes to there are lost. A copy uses the devices that its two tensors
state. Dynamic tensors have their largest sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from etdev.devices import HOST, Device, parse_device
from etdev.program import model as m

Content: TypeAlias = NDArray[np.int64]
Reads: TypeAlias = "Mapping[tuple[int, str, int], tuple[int, ...]]"
"""Call, method and instruction → a number for each content that it read. Outputs are instruction -1."""

_ZERO = 0
_TO_DEVICE, _TO_HOST = "et_copy::_h2d_copy", "et_copy::_d2h_copy"


@dataclass(frozen=True)
class Call:
    """One call of a method: the seed of its inputs, and the ways of its conditions in order."""

    method: str
    seed: int
    decisions: tuple[bool, ...] = (True,)


@dataclass
class _Tensor:
    """Tensor while the program runs."""

    memory: Content | None
    device: Device
    """Device of the memory."""
    tag: Device
    """Device that the tensor states."""
    start: int
    nbytes: int

    @property
    def inside(self) -> bool:
        return self.memory is not None and self.start >= 0 and self.start + self.nbytes <= len(self.memory)

    def write(self, at: Device, content: Content) -> None:
        """Write as code that runs on a device."""
        if at == self.device and self.inside:
            assert self.memory is not None
            self.memory[self.start : self.start + self.nbytes] = np.resize(content, self.nbytes)


def read_by_instructions(
    program: m.Program,
    calls: Sequence[Call],
    delegate_inputs: Mapping[str, Sequence[int]],
    names: Mapping[str, Sequence[int]],
) -> Reads:
    """Return the content that every instruction reads in some calls, made in order on one state.

    ``delegate_inputs``: per method and delegate, how many arguments are inputs. ``names``: per method and position, the
    name of the instruction there.
    """
    methods = {plan.name: _Method(program, plan, delegate_inputs[plan.name]) for plan in program.execution_plan}
    found: dict[tuple[int, str, int], list[int]] = {}
    for number, call in enumerate(calls):
        for position, what in methods[call.method].run(call):
            name = names[call.method][position] if position >= 0 else position
            found.setdefault((number, call.method, name), []).append(what)
    return {key: tuple(each) for key, each in found.items()}


class _Method:
    """Loaded method, with memory of its own."""

    def __init__(self, program: m.Program, plan: m.ExecutionPlan, delegate_inputs: Sequence[int]) -> None:
        self._plan, self._delegate_inputs = plan, delegate_inputs
        self._buffers = {
            index: np.full(size, _ZERO, dtype=np.int64) for index, size in enumerate(plan.non_const_buffer_sizes)
        }
        table = {
            entry.buffer_idx: Device(entry.device_type, entry.device_index) for entry in plan.non_const_buffer_device
        }
        self._devices = {index: table.get(index, HOST) for index in self._buffers}
        self._values = [self._load(index, value) for index, value in enumerate(plan.values)]
        self._found: list[tuple[int, int]] = []
        self._at = 0

    def _load(self, index: int, value: m.Value) -> Any:
        match value:
            case m.Tensor():
                return self._tensor(index, value)
            case m.Int():
                return value.int_val
            case m.Bool():
                return value.bool_val
            case _:
                return value

    def _tensor(self, index: int, value: m.Tensor) -> _Tensor:
        tag, place, size = value.device, value.allocation_info, value.nbytes
        if place is not None:
            tensor = _Tensor(
                self._buffers[place.memory_id], self._devices[place.memory_id], tag, place.memory_offset, size
            )
            if value.data_buffer_idx:
                tensor.write(tensor.device, _made(size, "initial", value.data_buffer_idx))
            return tensor
        if value.is_constant:
            return _Tensor(_made(size, "constant", value.data_buffer_idx, value.is_external), HOST, tag, 0, size)
        return _Tensor(None, tag, tag, 0, size)

    def run(self, call: Call) -> list[tuple[int, int]]:
        """Return position and content read of each instruction that ran; outputs at the end."""
        self._found = []
        self._set_inputs(call.seed)
        instructions = [each for chain in self._plan.chains for each in chain.instructions]
        decisions = list(call.decisions) * len(instructions)
        self._at = 0
        while self._at < len(instructions):
            instruction = instructions[self._at]
            if isinstance(instruction, m.JumpFalseCall):
                value = self._values[instruction.cond_value_index]
                truth = value if isinstance(value, bool) else decisions.pop(0)
                self._note("condition", self._content(instruction.cond_value_index, HOST))
                self._at = self._at + 1 if truth else instruction.destination_instruction
                continue
            self._step(instruction)
            self._at += 1
        for position, index in enumerate(self._plan.outputs):
            tensor = self._values[index]
            where = tensor.tag if isinstance(tensor, _Tensor) else HOST
            self._found.append((-1, _number("output", position, self._content(index, where))))
        return self._found

    def _set_inputs(self, seed: int) -> None:
        """Set the inputs: in the caller's memory where a tensor says so, else in planned memory on the host."""
        for index in {*self._plan.inputs, *self._plan.outputs}:
            tensor, declared = self._values[index], self._plan.values[index]
            if isinstance(declared, m.Tensor) and declared.allocation_info is None and not declared.is_constant:
                tensor.memory, tensor.start = np.full(tensor.nbytes, _ZERO, dtype=np.int64), 0
        for position, index in enumerate(self._plan.inputs):
            tensor, declared = self._values[index], self._plan.values[index]
            if isinstance(declared, m.Tensor):
                by = HOST if declared.allocation_info is not None else tensor.tag
                tensor.write(by, _made(tensor.nbytes, "input", seed, position))

    def _step(self, call: m.Instruction) -> None:
        match call:
            case m.KernelCall():
                self._kernel(self._plan.operators[call.op_index], call.args)
            case m.DelegateCall():
                split = self._delegate_inputs[call.delegate_index]
                delegate = self._plan.delegates[call.delegate_index]
                self._compute(_device(delegate), delegate.processed, call.args[:split], call.args[split:])
            case m.MoveCall():
                self._values[call.move_to] = self._values[call.move_from]
            case _:
                pass

    def _kernel(self, operator: m.Operator, args: tuple[int, ...]) -> None:
        name = operator.name
        if name in (_TO_DEVICE, _TO_HOST):
            self._copy(args, to_device=name == _TO_DEVICE)
        elif name == "executorch_prim::et_view":
            of, out = self._values[args[0]], self._values[args[2]]
            self._values[args[2]] = _Tensor(of.memory, of.device, out.tag, of.start, out.nbytes)
        elif name.startswith("executorch_prim::"):
            self._values[args[-1]] = _number(name, *(self._content(index, HOST) for index in args[:-1]))
        elif name == "aten::sym_size":
            tensor = self._plan.values[args[0]]
            assert isinstance(tensor, m.Tensor)
            self._values[args[-1]] = tensor.sizes[self._values[args[1]]]
        elif name == "aten::copy_":
            self._compute(HOST, (name, operator.overload), args[1:-1], args[:1])
        elif name.endswith("_"):
            self._compute(HOST, (name, operator.overload), args[:-1], args[:1])
        else:
            outs = len(self._listed(args[-1:]))
            repeated = 1 if isinstance(self._plan.values[args[-2]], m.TensorList) else outs
            self._compute(HOST, (name, operator.overload), args[: -1 - repeated], args[-1:])

    def _copy(self, args: tuple[int, ...], *, to_device: bool) -> None:
        """Copy between the host and the device that the device's tensor states."""
        source, out = self._values[args[0]], self._values[args[1]]
        host, other = (source, out) if to_device else (out, source)
        content = self._read(source, HOST if to_device else source.tag)
        self._note("copy", _number(content.tobytes()))
        if host.tag == HOST and other.tag != HOST:
            out.write(out.tag if to_device else HOST, content)

    def _compute(self, at: Device, what: object, inputs: Iterable[int], outs: Iterable[int]) -> None:
        key = _number(what, *(self._content(index, at) for index in inputs))
        self._note(key)
        for number, out in enumerate(self._listed(outs)):
            out.write(at, _made(out.nbytes, key, number))

    def _note(self, *what: object) -> None:
        self._found.append((self._at, _number(*what)))

    def _content(self, index: int, at: Device) -> object:
        value = self._values[index]
        match value:
            case _Tensor():
                return _number(self._read(value, at).tobytes())
            case m.IntList() | m.TensorList() | m.OptionalTensorList():
                return tuple(self._content(item, at) if item >= 0 else None for item in value.items)
            case _:
                return value

    def _read(self, tensor: _Tensor, at: Device) -> Content:
        """Read as code that runs on a device; inaccessible content is unlike any other."""
        if at != tensor.device or not tensor.inside:
            return _made(tensor.nbytes, "garbage", self._at, len(self._found))
        assert tensor.memory is not None
        return tensor.memory[tensor.start : tensor.start + tensor.nbytes]

    def _listed(self, values: Iterable[int]) -> list[_Tensor]:
        found = []
        for index in values:
            value = self._values[index]
            if isinstance(value, _Tensor):
                found.append(value)
            elif isinstance(value, m.TensorList | m.OptionalTensorList):
                found += self._listed(item for item in value.items if item >= 0)
        return found


def _device(delegate: m.BackendDelegate) -> Device:
    """Return the device of a delegate."""
    specs = [spec.value for spec in delegate.compile_specs if spec.key == "target_device"]
    return parse_device(specs[0].decode()) if specs else HOST


def _made(size: int, *what: object) -> Content:
    """Return bytes that stand for a content: unlike those of other contents, and never zero."""
    return (_number(*what) >> 1) + np.arange(1, size + 1, dtype=np.int64)


def _number(*parts: object) -> int:
    return hash(parts)
