"""Execution of a method: its values, and a loop over its instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etdev.devices import HOST, Device
from etdev.errors import EtdevError
from etdev.program import model as m
from etdev.program.analysis.effects import instruction_name, operator_name
from etdev.program.devices import delegate_device
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.handlers import HANDLERS
from etdev.runtime.interpreter.kernels import InPlaceTable, KernelRun, resolve
from etdev.runtime.interpreter.poison import Poison
from etdev.runtime.interpreter.precision import full_precision
from etdev.runtime.interpreter.settings import Bounds, DelegateExecutor
from etdev.runtime.interpreter.tensors import ForeignMemoryError, RunTensor, scratch

if TYPE_CHECKING:
    import torch

_Action = Callable[[], int]
"""A function that runs one instruction and returns the position of the next one."""


class Machine:
    """Values of a loaded method, and the code that executes its instructions.

    ``home`` is the device of the method's kernels and tensors. It is the host by default. For the program of a
    delegate, it is the delegate's device.
    """

    def __init__(
        self,
        plan: m.ExecutionPlan,
        *,
        home: Device = HOST,
        torch_device: str = "cpu",
        delegates: Mapping[int, DelegateExecutor],
        table: InPlaceTable,
        bounds: Bounds,
    ) -> None:
        self.plan, self.home, self.torch_device = plan, home, torch_device
        self.values: list[Any] = []
        self.known_sizes: dict[Any, int] = {}
        """Maps the operator and operands of a kernel call to the size of the results in bytes."""
        self.poison: Poison | None = None
        self._delegates, self._table, self._bounds = delegates, table, bounds
        self._descriptions: list[str] = []
        self._actions: list[_Action] = []
        for chain in plan.chains:
            base = len(self._actions)
            for number, call in enumerate(chain.instructions):
                self._descriptions.append(f"instruction {base + number} ({instruction_name(plan, call)})")
                with self._naming(base + number):
                    self._actions.append(self._action(call, base + number, base))

    # Execution

    def run(self) -> None:
        """Run the method from its first instruction to its end."""
        with full_precision(self.torch_device):
            self._run()

    def _run(self) -> None:
        at, steps, before = 0, 0, 0
        if self.poison:
            self.poison.between(None, 0)
        while at < len(self._actions):
            steps += 1
            if steps > self._bounds.steps:
                raise RunError(
                    f"the method did not end within {self._bounds.steps} instructions; "
                    f"it is at {self._descriptions[at]}",
                    where=f"method {self.plan.name!r}",
                    hint="check the method's loops, or raise `Bounds.steps`",
                )
            if self.poison:
                self.poison.between(before, at + 1)
            before = at + 1
            with self._naming(at):
                at = self._actions[at]()
        if self.poison:
            self.poison.between(before, len(self._actions) + 1)

    @contextmanager
    def _naming(self, position: int) -> Iterator[None]:
        """Add the instruction's location to each error in the block."""
        try:
            yield
        except EtdevError as error:
            if error.where is None:
                error.where = f"method {self.plan.name!r}, {self._descriptions[position]}"
            raise
        except Exception as error:
            text = str(error).partition("\n")[0]
            raise RunError(
                f"{type(error).__name__}: {text}", where=f"method {self.plan.name!r}, {self._descriptions[position]}"
            ) from error

    def _action(self, call: m.Instruction, position: int, base: int) -> _Action:
        if isinstance(call, m.JumpFalseCall):
            ways = position + 1, base + call.destination_instruction
            return lambda: ways[not self._truth(call.cond_value_index)]
        do = self._effect(call)

        def step() -> int:
            do()
            return position + 1

        return step

    def _effect(self, call: m.KernelCall | m.DelegateCall | m.MoveCall | m.FreeCall) -> Callable[[], None]:
        match call:
            case m.KernelCall():
                return self._kernel(call)
            case m.DelegateCall():
                return lambda: self._delegate(call)
            case m.MoveCall():
                return lambda: self.values.__setitem__(call.move_to, self.values[call.move_from])
            case m.FreeCall():
                return lambda: self._free(call.value_index)

    def _kernel(self, call: m.KernelCall) -> Callable[[], None]:
        operator = self.plan.operators[call.op_index]
        handle = HANDLERS.get(operator_name(operator))
        if handle is not None:
            found = handle
            return lambda: found(self, call.args)
        kernel = resolve(operator)
        if kernel is None:
            raise RunError(
                f"the interpreter has no kernel for the operator {operator_name(operator)!r}",
                hint="run the program in the stock runtime, with your custom kernels",
            )
        return KernelRun(self, call, kernel, self._table)

    def _delegate(self, call: m.DelegateCall) -> None:
        device = delegate_device(self.plan.delegates[call.delegate_index])
        executor = self._delegates[call.delegate_index]
        arguments = [self.values[index] for index in call.args]
        for index, argument in zip(call.args, arguments, strict=True):
            if isinstance(argument, RunTensor) and argument.device != device:
                raise RunError(
                    f"the delegate runs on {device}, but its argument, value {index}, is on {argument.device}",
                    hint="link the program again: it lacks a copy to the device",
                )
        inputs = [item for item in arguments[: executor.input_count] if isinstance(item, RunTensor)]
        for out in arguments[executor.input_count :]:
            if not isinstance(out, RunTensor):
                raise RunError("an output of the delegate is not a tensor")
            self._writable(out)
            if self.poison and out.memory and not any(out.overlaps(tensor) for tensor in inputs):
                self.poison.overwrite(out.memory, out.offset, out.offset + out.nbytes)
        executor.execute(arguments)

    def _truth(self, index: int) -> bool:
        value = self.values[index]
        if isinstance(value, RunTensor):
            return bool(self.read(value).all())
        if not isinstance(value, bool):
            raise RunError(f"value {index} is {value!r}, but a condition must be a bool")
        return value

    def _free(self, index: int) -> None:
        value = self.values[index]
        if isinstance(value, RunTensor) and value.declared.allocation_info is None and not value.constant:
            value.memory = None

    # Access to values, for kernels and handlers

    def tensor(self, index: int) -> RunTensor:
        """Return the tensor with this value index. Raise :class:`RunError` if the value is not a tensor."""
        value = self.values[index]
        if not isinstance(value, RunTensor):
            raise RunError(f"value {index} is not a tensor")
        return value

    def tensors_of(self, index: int) -> list[RunTensor]:
        """Return the tensors in a value, which is a tensor or a list of tensors."""
        value = self.values[index]
        if isinstance(value, RunTensor):
            return [value]
        if isinstance(value, m.TensorList | m.OptionalTensorList):
            return [
                item for number in value.items if number >= 0 and isinstance(item := self.values[number], RunTensor)
            ]
        return []

    def number(self, index: int) -> int | float | bool:
        """Return the number with this value index. Raise :class:`RunError` if the value is not a number."""
        value = self.values[index]
        if not isinstance(value, int | float | bool):
            raise RunError(f"value {index} is not a number")
        return value

    def integers(self, index: int) -> list[int]:
        """Return the list of integers with this value index. Raise :class:`RunError` for a value of another type."""
        value = self.content(index)
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise RunError(f"value {index} is not a list of integers")
        return value

    def content(self, index: int) -> Any:
        """Return a value as an argument for PyTorch's functions."""
        value = self.values[index]
        match value:
            case RunTensor():
                return self.read(value)
            case m.IntList():
                return [self.values[item] for item in value.items]
            case m.TensorList():
                return [self.read(self.tensor(item)) for item in value.items]
            case m.OptionalTensorList():
                return [
                    self.read(item) if number >= 0 and isinstance(item := self.values[number], RunTensor) else None
                    for number in value.items
                ]
            case m.DoubleList() | m.BoolList():
                return list(value.items)
            case _:
                return value

    def read(self, tensor: RunTensor) -> torch.Tensor:
        """Return the content of a tensor; raise an error if the tensor is on another device."""
        try:
            return tensor.view(self.home)
        except ForeignMemoryError:
            raise self._foreign(tensor, "reads") from None

    def write(self, tensor: RunTensor, content: torch.Tensor, *, convert: bool = False) -> None:
        """Write the content to a tensor of the same sizes, and fill the tensor's unused planned bytes with poison."""
        import torch

        self._writable(tensor)
        if content.dtype != tensor.dtype and not (convert or torch.can_cast(content.dtype, tensor.dtype)):
            raise RunError(f"the result has dtype {content.dtype}, which does not fit the output {tensor.describe()}")
        try:
            tensor.write(self.home, content)
        except ForeignMemoryError:
            raise self._foreign(tensor, "writes") from None
        self._poison_rest(tensor)

    def make_room(self, tensor: RunTensor, sizes: Sequence[int]) -> None:
        """Resize an output to the sizes of its result; allocate memory if the output's size is unbounded."""
        self._writable(tensor)
        sizes = tuple(sizes)
        if any(size < 0 for size in sizes):
            raise RunError(f"{list(sizes)} are not valid sizes")
        tensor.resize(sizes)
        if tensor.capacity is None and (tensor.memory is None or tensor.memory.size < tensor.nbytes):
            if tensor.nbytes > self._bounds.memory:
                raise RunError(
                    f"{tensor.describe()} needs {tensor.nbytes} bytes, "
                    f"but `Bounds.memory` allows only {self._bounds.memory} bytes"
                )
            tensor.place(scratch(tensor.nbytes, self.home, self.torch_device))

    def _writable(self, tensor: RunTensor) -> None:
        if tensor.constant:
            raise RunError(f"{tensor.describe()} is a constant, so the program must not write to it")

    def _poison_rest(self, tensor: RunTensor) -> None:
        if self.poison is None or tensor.is_static or tensor.memory is None:
            return
        end = min(tensor.offset + (tensor.capacity or 0), tensor.memory.size)
        if tensor.offset + tensor.nbytes < end:
            self.poison.overwrite(tensor.memory, tensor.offset + tensor.nbytes, end)

    def _foreign(self, tensor: RunTensor, verb: str) -> RunError:
        return ForeignMemoryError(
            f"the instruction runs on {self.home}, but {verb} {tensor.describe()} on {tensor.device}",
            hint="link the program again: it lacks a copy between the devices",
        )


def is_known(operator: m.Operator) -> bool:
    """Return True if the interpreter can run an operator."""
    return operator_name(operator) in HANDLERS or resolve(operator) is not None
