"""Inputs and outputs of calls of a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etdev.devices import HOST
from etdev.errors import EtdevError, UsageError
from etdev.program import model as m
from etdev.runtime.allocator import DistantAllocator, Registry
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.layout import torch_dtype
from etdev.runtime.interpreter.poison import fill
from etdev.runtime.interpreter.tensors import Memory, RunTensor, dense_in, scratch
from etdev.runtime.memory import DeviceMemoryBuffer

if TYPE_CHECKING:
    from etdev.runtime.interpreter.values import Values

Given = dict[int, DeviceMemoryBuffer]
"""Maps the position of an output to the device memory that was allocated for this output."""


class Inputs:
    """Inputs of a loaded method."""

    def __init__(self, machine: Values) -> None:
        self._machine, self._plan = machine, machine.plan
        self._own: list[Any] = []

    def begin(self) -> None:
        """Record the method's input tensors, because move instructions can replace them in the list of values."""
        self._own = [self._machine.values[index] for index in self._plan.inputs]

    def set(self, inputs: Sequence[Any]) -> None:
        """Set the inputs to the caller's values: host tensors, device tensors and plain values."""
        self._check_count(inputs)
        for position, (index, given) in enumerate(zip(self._plan.inputs, inputs, strict=True)):
            own = self._own[position]
            where = f"input {position} of method {self._plan.name!r}"
            if isinstance(own, RunTensor):
                self._machine.values[index] = own
                self._set_tensor(own, given, where)
            else:
                self._machine.values[index] = self._number(index, given, where)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Set the inputs to the arguments of a delegate call; copy each input tensor that overlaps an output."""
        self._check_count(inputs)
        for position, (index, given) in enumerate(zip(self._plan.inputs, inputs, strict=True)):
            own = self._own[position]
            where = f"input {position} of method {self._plan.name!r}"
            if not isinstance(own, RunTensor):
                self._machine.values[index] = self._number(index, given, where)
                continue
            if not isinstance(given, RunTensor):
                raise RunError(f"{where} must be a tensor, but is {given!r}")
            self._machine.values[index] = own
            covered = any(isinstance(out, RunTensor) and out.overlaps(given) for out in outputs)
            self._take(own, self._aside(given) if covered else given, where)

    def _aside(self, tensor: RunTensor) -> RunTensor:
        copy = RunTensor(tensor.value, tensor.declared, tensor.device)
        copy.sizes = tensor.sizes
        copy.place(scratch(tensor.nbytes, self._machine.home, self._machine.torch_device))
        copy.write(self._machine.home, tensor.view(self._machine.home))
        return copy

    def _set_tensor(self, own: RunTensor, given: Any, where: str) -> None:
        if own.device != HOST:
            if not hasattr(given, "as_run_tensor"):
                raise UsageError(
                    f"{where} must be on {own.device}, but is a {type(given).__name__} on the host",
                    hint="upload it: `DeviceTensor.upload(tensor, device)`",
                )
            self._take(own, given.as_run_tensor(), where)
            return
        if not hasattr(given, "data_ptr"):
            raise UsageError(f"{where} must be a tensor, but is a {type(given).__name__}")
        wanted = torch_dtype(own.declared.scalar_type)
        if given.dtype != wanted or given.device.type != "cpu":
            raise UsageError(f"{where} must be {wanted} on the host, but is {given.dtype} on {given.device}")
        dense = dense_in(given.detach(), own.dim_order) if given.dim() == len(own.sizes) else given
        caller = RunTensor(own.value, m.Tensor(own.declared.scalar_type, tuple(given.shape), own.dim_order), own.device)
        caller.place(Memory.of(dense))
        self._take(own, caller, where)

    def _take(self, own: RunTensor, given: RunTensor, where: str) -> None:
        """Copy the tensor ``given`` to the planned memory of the input ``own``.

        An input without planned memory uses the memory of ``given``, or new memory if the dimension orders differ.
        """
        declared = own.declared
        if given.device != own.device:
            raise RunError(f"{where} must be on {own.device}, but is on {given.device}")
        if given.declared.scalar_type is not declared.scalar_type:
            raise RunError(f"{where} must be {declared.scalar_type.name}, but is {given.declared.scalar_type.name}")
        try:
            own.resize(given.sizes)
        except RunError as error:
            raise RunError(error.message, where=where) from None
        if declared.allocation_info is None and given.dim_order == own.dim_order:
            assert given.memory is not None
            own.place(given.memory, given.offset)
            return
        if declared.allocation_info is None:
            own.place(scratch(own.nbytes, own.device, self._machine.torch_device))
        allocator = own.memory.allocator if own.memory else None
        if isinstance(allocator, DistantAllocator) and own.dim_order == given.dim_order:
            allocator.copy_on_device(own.start, given.start, own.nbytes, own.device.index)
        else:
            own.write(own.device, given.view(own.device))

    def _number(self, index: int, given: Any, where: str) -> Any:
        declared = self._plan.values[index]
        kinds: dict[type, tuple[type, ...]] = {
            m.Int: (int,),
            m.Bool: (bool,),
            m.Double: (int, float),
            m.String: (str,),
            m.Null: (int, float, bool, type(None)),
        }
        if not isinstance(given, kinds.get(type(declared), ())):
            raise UsageError(f"{where} must be a {type(declared).__name__}, but is {given!r}")
        return given

    def _check_count(self, inputs: Sequence[Any]) -> None:
        if len(inputs) != len(self._plan.inputs):
            raise UsageError(f"method {self._plan.name!r} takes {len(self._plan.inputs)} inputs, but got {len(inputs)}")


class Outputs:
    """Outputs of a loaded method."""

    def __init__(self, machine: Values, registry: Registry) -> None:
        self._machine, self._registry = machine, registry
        self._plan = machine.plan
        self._callers: dict[int, RunTensor] = {}
        """Maps the position of an output to its tensor, for outputs without planned memory."""

    def begin(self) -> None:
        """Record the outputs that have no planned memory, except constants and inputs."""
        inputs = set(self._plan.inputs)
        self._callers = {
            position: tensor
            for position, index in enumerate(self._plan.outputs)
            if isinstance(tensor := self._machine.values[index], RunTensor)
            and tensor.declared.allocation_info is None
            and not tensor.constant
            and index not in inputs
        }

    def prepare(self) -> Given:
        """Allocate memory for the outputs that :meth:`begin` recorded, except outputs of unbounded size."""
        given: Given = {}
        for position, tensor in self._callers.items():
            if tensor.capacity is None:
                tensor.memory = None
                continue
            if tensor.device == HOST:
                tensor.place(scratch(tensor.capacity, HOST, "cpu"))
            else:
                tensor.place(self._on_device(given, position, tensor))
            self._poison(tensor, tensor.capacity)
        return given

    def _on_device(self, given: Given, position: int, tensor: RunTensor) -> Memory:
        device, size = tensor.device, tensor.capacity or 0
        try:
            given[position] = DeviceMemoryBuffer.create(size, device.type, device.index, registry=self._registry)
        except BaseException as error:
            self.drop(given)
            if isinstance(error, EtdevError):
                error.where = f"output {position} of method {self._plan.name!r}, in the caller's memory"
            raise
        return Memory(device, given[position].data(), size, allocator=given[position].allocator)

    def drop(self, given: Given) -> None:
        """Free the device memory that was allocated for outputs."""
        for buffer in given.values():
            buffer.close()

    def take(self, given: Given) -> tuple[Any, ...]:
        """Return the outputs; the caller becomes the owner of the device memory that was allocated for them."""
        from etdev.runtime.tensors import DeviceTensor

        found: list[Any] = []
        for position, index in enumerate(self._plan.outputs):
            value = self._machine.values[index]
            if not isinstance(value, RunTensor):
                found.append(value)
            elif value.device == HOST:
                found.append(self._machine.read(value).clone())
            else:
                memory = value.memory
                if memory is None or memory.allocator is None:
                    raise RunError(f"output {position} has no memory: {value.describe()}")
                owned = given.get(position)
                if owned is not None and value is not self._callers.get(position):
                    owned.close()
                    owned = None
                found.append(
                    DeviceTensor(
                        memory.allocator,
                        value.device,
                        value.start,
                        value.declared.scalar_type,
                        value.sizes,
                        value.dim_order,
                        owned,
                        writable=memory.writable,
                    )
                )
        return tuple(found)

    def direct(self, targets: Sequence[Any]) -> None:
        """Let each output without planned memory use the memory of its target.

        If the target does not fit, the output gets new memory. ``targets`` are the output arguments of the call.
        """
        self._check(targets)
        for position, tensor in self._callers.items():
            target: RunTensor = targets[position]
            capacity = target.nbytes if target.capacity is None else target.capacity
            fits = tensor.capacity is not None and tensor.capacity <= capacity
            if fits and target.memory is not None and target.dim_order == tensor.dim_order:
                tensor.place(target.memory, target.offset)
            elif tensor.capacity is not None:
                tensor.place(scratch(tensor.capacity, tensor.device, self._machine.torch_device))

    def deliver(self, targets: Sequence[Any]) -> None:
        """Copy each output to its target, unless the output is already in the target's memory.

        ``targets`` are the output arguments of the call.
        """
        for target, index in zip(targets, self._plan.outputs, strict=True):
            value = self._machine.tensor(index)
            if target.declared.scalar_type is not value.declared.scalar_type:
                raise RunError(f"the delegate returns {value.describe()}, but its caller expects {target.describe()}")
            target.resize(value.sizes)
            in_place = target.memory is value.memory and target.offset == value.offset
            if not (in_place and target.dim_order == value.dim_order):
                target.write(self._machine.home, self._machine.read(value))

    def _check(self, targets: Sequence[Any]) -> None:
        if len(targets) != len(self._plan.outputs):
            raise RunError(f"the delegate has {len(self._plan.outputs)} outputs, but its call has {len(targets)}")
        for target in targets:
            if not isinstance(target, RunTensor):
                raise RunError("an output of a delegate call is not a tensor")

    def _poison(self, tensor: RunTensor, size: int) -> None:
        if self._machine.poison and tensor.memory is not None:
            fill(tensor.memory, tensor.offset, tensor.offset + size)
