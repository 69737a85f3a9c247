"""Loaded methods, which can be called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from etdev.devices import HOST, Device
from etdev.errors import EtdevError, LinkError
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_inputs
from etdev.program.devices import delegate_device
from etdev.runtime.allocator import Registry
from etdev.runtime.constants import Constants, initial_bytes
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.calls import Inputs, Outputs
from etdev.runtime.interpreter.machine import Machine
from etdev.runtime.interpreter.poison import Poison, State
from etdev.runtime.interpreter.settings import DelegateContext, DelegateExecutor, Settings, load_executor
from etdev.runtime.interpreter.tensors import Memory, RunTensor
from etdev.runtime.meta import MethodMeta
from etdev.runtime.owners import MoveOnly
from etdev.runtime.planned import BufferKey, PlannedMemory, buffer_error, placed

if TYPE_CHECKING:
    import torch

    from etdev.runtime.tensors import DeviceTensor

    Output = torch.Tensor | DeviceTensor | int | float | bool | str | None


class Method(MoveOnly):
    """A method that is loaded into planned buffers; its state persists from call to call.

    ``memories`` are the planned buffers, which the caller owns. The caller must close the method before the buffers. If
    loading fails, all parts that were already loaded are released.
    """

    def __init__(
        self,
        program: Program,
        plan: m.ExecutionPlan,
        memories: Mapping[BufferKey, Memory],
        *,
        registry: Registry,
        settings: Settings,
        home: Device = HOST,
    ) -> None:
        self.meta = MethodMeta(plan)
        self._program, self._plan, self._memories = program, plan, memories
        self._registry, self._settings, self.home = registry, settings, home
        self._owned: PlannedMemory | None = None
        self._closing = ExitStack()
        with ExitStack() as unwinding:
            unwinding.callback(self._closing.close)
            constants = Constants(program, plan, home, registry)
            self._closing.callback(constants.close)
            self._constants = constants.memories
            self._delegates = self._load_delegates()
            self._machine = Machine(
                plan,
                home=home,
                torch_device=registry.get(home.type).torch_device(home.index),
                delegates=self._delegates,
                table=settings.inplace,
                bounds=settings.bounds,
            )
            self._machine.poison = self._poison() if settings.poison else None
            self._inputs = Inputs(self._machine)
            self._outputs = Outputs(self._machine, registry)
            self.start()
            unwinding.pop_all()

    @property
    def name(self) -> str:
        """Name of the method."""
        return self._plan.name

    def declared_input(self, position: int) -> m.Value | None:
        """Return the file's description of an input; None if there is no input at this position."""
        return self._plan.values[self._plan.inputs[position]] if position < len(self._plan.inputs) else None

    def declared_output(self, position: int) -> m.Value | None:
        """Return the file's description of an output; None if there is no output at this position."""
        return self._plan.values[self._plan.outputs[position]] if position < len(self._plan.outputs) else None

    def execute(self, inputs: Sequence[Any]) -> tuple[Output, ...]:
        """Run the method; inputs and outputs are tensors and plain values.

        A tensor that the file places on a device is a :class:`~etdev.runtime.tensors.DeviceTensor`. All other tensors
        are host tensors.
        """
        self._inputs.set(inputs)
        given = self._outputs.prepare()
        try:
            self._machine.run()
            found = self._outputs.take(given)
            for executor in self._delegates.values():
                executor.finish()
            return found
        except BaseException:
            self._outputs.drop(given)
            raise

    def execute_on_device(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        """Run the method as the program of a delegate.

        ``arguments`` are the inputs, followed by the outputs. All tensors must be on ``home``, the device of this
        method.
        """
        count = len(self._plan.inputs)
        self._inputs.bind(arguments[:count], arguments[count:])
        self._outputs.direct(arguments[count:])
        self._machine.run()
        self._outputs.deliver(arguments[count:])
        for executor in self._delegates.values():
            executor.finish()

    def start(self) -> None:
        """Restore all values from the file. The caller must first fill the planned buffers with zeros."""
        self._machine.values = [self._value(index, value) for index, value in enumerate(self._plan.values)]
        self._inputs.begin()
        self._outputs.begin()
        for executor in self._delegates.values():
            executor.reset()
        for index, tensor in self._plan.tensors():
            if tensor.has_initial_value:
                self._write_initial(index, tensor)

    def state(self) -> list[State]:
        """Return the byte ranges of state, which keep their content between calls; empty if poison is disabled."""
        return self._machine.poison.state() if self._machine.poison else []

    def spare(self, state: Iterable[State]) -> None:
        """Exclude byte ranges from poison, because they are the state of another method in the same memory."""
        if self._machine.poison:
            self._machine.poison.spare(state)

    def own(self, memory: PlannedMemory) -> None:
        """Become the owner of the planned buffers, so that :meth:`close` frees them and :meth:`reset` clears them."""
        self._owned = memory

    def reset(self) -> None:
        """Reset all state to its initial values."""
        if self._owned is not None:
            self._owned.clear()
        self.start()

    def close(self) -> None:
        """Release everything that the method owns; a second call has no effect."""
        self._closing.close()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _value(self, index: int, value: m.Value) -> Any:
        match value:
            case m.Tensor():
                return self._tensor(index, value)
            case m.Int() | m.Bool() | m.Double() | m.String() | m.Null():
                return m.plain_value(value)
            case _:
                return value

    def _tensor(self, index: int, tensor: m.Tensor) -> RunTensor:
        device = placed(tensor.device, self.home)
        if tensor.is_constant:
            if device != self.home:
                raise RunError(
                    f"value {index} is a constant on {device}, but all constants are loaded on {self.home}",
                    where=f"method {self.name!r}",
                    hint="link the program again: it lacks a copy to the device",
                )
            found = RunTensor(index, tensor, device)
            found.place(self._constants[index])
            return found
        found = RunTensor(index, tensor, device)
        place = tensor.allocation_info
        if place is not None:
            buffer = self._buffer(place.memory_id)
            if buffer.device != device:
                raise RunError(
                    f"{found.describe()} is declared on {device}, but is in planned buffer {place.memory_id} on "
                    f"{buffer.device}",
                    where=f"method {self.name!r}",
                    hint="link the program again",
                )
            found.place(buffer, place.memory_offset)
        return found

    def _buffer(self, index: int) -> Memory:
        return self._memories[placed(self._plan.buffer_device(index), self.home), index]

    def _write_initial(self, index: int, tensor: m.Tensor) -> None:
        found = self._machine.tensor(index)
        place, memory = tensor.allocation_info, found.memory
        assert place is not None
        assert memory is not None
        assert memory.allocator is not None
        data = initial_bytes(self._program, index, tensor)
        try:
            memory.allocator.copy_host_to_device(found.start, data.view, len(data), memory.device.index)
        except EtdevError as error:
            what = f"method {self.name!r} cannot be loaded: value {index} cannot be initialized"
            buffer = place.memory_id
            raise buffer_error(what, buffer, memory.device, memory.size, self._registry, error) from error

    def _load_delegates(self) -> dict[int, DelegateExecutor]:
        calls = {call.delegate_index for call in self._plan.instructions if isinstance(call, m.DelegateCall)}
        found: dict[int, DelegateExecutor] = {}
        for index in sorted(calls):
            delegate = self._plan.delegates[index]
            context = DelegateContext(
                id=delegate.id,
                data=self._program.delegate_data(delegate),
                compile_specs=delegate.compile_specs,
                device=delegate_device(delegate),
                registry=self._registry,
                settings=self._settings,
            )
            found[index] = load_executor(context, self._settings.executors)
            self._closing.callback(found[index].close)
        return found

    def _poison(self) -> Poison:
        """Return the poison for this method; raise :class:`RunError` if the method's memory cannot be analyzed."""
        inputs = dict(delegate_inputs(self._program, self._plan))
        for position, call in enumerate(flow_graph(self._plan).instructions):
            if isinstance(call, m.DelegateCall):
                inputs[position] = self._delegates[call.delegate_index].input_count
        try:
            found = method_memory(self._plan, inputs)
        except LinkError as error:
            raise RunError(error.message, where=error.where, hint=error.hint) from error
        buffers = range(1, len(self._plan.non_const_buffer_sizes))
        return Poison(found, [None, *(self._buffer(index) for index in buffers)])
