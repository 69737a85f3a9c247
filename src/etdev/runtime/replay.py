"""The interpreter with the interface of the stock runtime, so that checks can use the two in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from etdev.errors import EtdevError, ExitCode
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.inplace import DEFAULT
from etdev.program.data_files.joined import read_joined
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import NO_MAP, DeviceMap, default_registry, registry_for
from etdev.runtime.interpreter.delegates import executors
from etdev.runtime.interpreter.kernels import InPlaceTable
from etdev.runtime.interpreter.machine import is_known
from etdev.runtime.interpreter.settings import Bounds, ExecutorFactory
from etdev.runtime.loaded import Method
from etdev.runtime.method import LoadedProgram, load_program
from etdev.runtime.owners import MoveOnly
from etdev.runtime.stock import ProgramFailureError
from etdev.runtime.tensors import DeviceTensor


class ReplayRuntime(MoveOnly):
    """A runtime that executes programs with the interpreter, in their planned buffers; a context manager.

    Devices come from ``registry`` or ``device_map``. Callers pass and receive host tensors; this class copies them to
    devices and back. A program that fails raises :class:`~etdev.runtime.stock.ProgramFailureError`, as in the stock
    runtime. If this machine lacks a requirement, the original :class:`~etdev.errors.EtdevError` is raised.
    """

    def __init__(
        self,
        device_map: DeviceMap = NO_MAP,
        *,
        registry: Registry | None = None,
        poison: bool = True,
        executors: Mapping[str, ExecutorFactory] | None = None,
        inplace: InPlaceTable = DEFAULT,
        bounds: Bounds | None = None,
    ) -> None:
        self.registry = registry or (registry_for(device_map) if device_map else default_registry())
        self._poison, self._executors, self._inplace, self._bounds = poison, executors, inplace, bounds
        self._loaded: LoadedProgram | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unload the program and free its memory; a second call has no effect."""
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def load(self, file: Path | Program, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load a program and its data files, and return the names of its methods.

        With ``shared``, all methods use the same memory. Otherwise each method has its own memory.
        """
        self.close()
        try:
            self._loaded = load_program(
                file if isinstance(file, Program) else read_joined(file, data),
                registry=self.registry,
                shared=shared,
                poison=self._poison,
                executors=self._executors,
                inplace=self._inplace,
                bounds=self._bounds,
            )
        except EtdevError as error:
            raise _failure(error) from error
        return tuple(sorted(self._loaded.methods))

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Call a method and return host tensors and plain values; if ``fresh``, first reset all state."""
        if self._loaded is None:
            raise ProgramFailureError("no program is loaded")
        try:
            if fresh:
                self._loaded.reset()
            return self._call(self._loaded.method(method), inputs)
        except EtdevError as error:
            raise _failure(error) from error

    def _call(self, method: Method, inputs: Sequence[Any]) -> tuple[Any, ...]:
        uploaded: list[DeviceTensor] = []
        try:
            given = [self._input(method, position, value, uploaded) for position, value in enumerate(inputs)]
            return tuple(self._output(method, position, out) for position, out in enumerate(method.execute(given)))
        finally:
            for tensor in uploaded:
                tensor.close()

    def _input(self, method: Method, position: int, value: Any, uploaded: list[DeviceTensor]) -> Any:
        declared = method.declared_input(position)
        if not isinstance(declared, m.Tensor) or not hasattr(value, "data_ptr"):
            return value
        if declared.device.is_host:
            # A method may write to an input without planned memory. The caller's tensor must keep its content.
            return value.clone() if declared.allocation_info is None else value
        with _placed(f"input {position} of method {method.name!r}", None):
            uploaded.append(
                DeviceTensor.upload(value, declared.device, registry=self.registry, dim_order=declared.dim_order)
            )
        return uploaded[-1]

    def _output(self, method: Method, position: int, output: Any) -> Any:
        if not isinstance(output, DeviceTensor):
            return output
        with output, _placed(f"output {position} of method {method.name!r}", method.declared_output(position)):
            return output.to_host()


def missing_executors(program: Program) -> tuple[str, ...]:
    """Return the backends that a program calls but that have no executor."""
    used = {
        plan.delegates[call.delegate_index].id
        for plan in program.execution_plan
        for call in plan.instructions
        if isinstance(call, m.DelegateCall)
    }
    return tuple(sorted(used - executors().keys()))


def missing_kernels(program: Program) -> tuple[str, ...]:
    """Return the operators that a program calls but that the interpreter cannot compute."""
    used = {
        plan.operators[call.op_index]
        for plan in program.execution_plan
        for call in plan.instructions
        if isinstance(call, m.KernelCall)
    }
    return tuple(sorted(operator_name(operator) for operator in used if not is_known(operator)))


@contextmanager
def _placed(what: str, planned: m.Value | None) -> Iterator[None]:
    """Set the location of each error in the block to ``what``, followed by the memory of the value ``planned``."""
    try:
        yield
    except EtdevError as error:
        place = planned.allocation_info if isinstance(planned, m.Tensor) else None
        error.where = f"{what}, " + (f"in planned buffer {place.memory_id}" if place else "in the caller's memory")
        raise


def _failure(error: EtdevError) -> Exception:
    return error if error.exit_code is ExitCode.ENVIRONMENT else ProgramFailureError(str(error))
