"""Loading of one or all methods of a program, with memory for their planned buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from etdev.devices import HOST
from etdev.program import Program, read
from etdev.program import model as m
from etdev.program.analysis.inplace import DEFAULT
from etdev.runtime.allocator import Registry
from etdev.runtime.device_map import NO_MAP, DeviceMap, default_registry, registry_for
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.delegates import executors as registered_executors
from etdev.runtime.interpreter.kernels import InPlaceTable
from etdev.runtime.interpreter.settings import Bounds, ExecutorFactory, Settings
from etdev.runtime.loaded import Method
from etdev.runtime.memory import MemoryManager
from etdev.runtime.owners import MoveOnly
from etdev.runtime.planned import PlannedMemory, buffer_sizes, given_memory

if TYPE_CHECKING:
    from etdev.runtime.loaded import Output

__all__ = ["LoadedProgram", "Method", "Settings", "load_method", "load_program"]


def load_method(
    program: Program,
    name: str = "forward",
    *,
    registry: Registry | None = None,
    memory: MemoryManager | None = None,
    poison: bool = True,
    executors: Mapping[str, ExecutorFactory] | None = None,
    inplace: InPlaceTable = DEFAULT,
    bounds: Bounds | None = None,
) -> Method:
    """Load one method. Use the planned buffers in ``memory`` if it is given; otherwise allocate buffers.

    The default ``registry`` is that of the process. Raises :class:`~etdev.runtime.errors.PlannedBufferError` if a
    planned buffer cannot be allocated or initialized. After an error, all memory that was already allocated is freed.
    """
    registry = registry or default_registry()
    settings = _settings(poison, executors, inplace, bounds)
    plan = program.method(name)
    if memory is not None:
        memories = given_memory(plan, memory, registry, HOST)
        return Method(program, plan, memories, registry=registry, settings=settings)
    planned = _allocate([plan], registry, settings)
    try:
        method = Method(program, plan, planned.memories, registry=registry, settings=settings)
    except BaseException:
        planned.close()
        raise
    method.own(planned)
    return method


class LoadedProgram(MoveOnly):
    """A program with all methods loaded; a context manager.

    With ``shared``, all methods use the same planned buffers, as in ``executorch.runtime.Runtime``. Each buffer has the
    size that the largest method needs. State with the same buffer and offset in the file is shared between methods.
    Without ``shared``, each method has its own memory and state.
    """

    def __init__(self, program: Program, *, registry: Registry, settings: Settings, shared: bool = True) -> None:
        self.program, self.registry = program, registry
        self._planned: list[PlannedMemory] = []
        self.methods: dict[str, Method] = {}
        plans = program.execution_plan
        try:
            for group in [plans] if shared else [(plan,) for plan in plans]:
                self._load(group, settings)
        except BaseException:
            self.close()
            raise

    def _load(self, plans: Sequence[m.ExecutionPlan], settings: Settings) -> None:
        planned = _allocate(plans, self.registry, settings)
        self._planned.append(planned)
        for plan in plans:
            self.methods[plan.name] = Method(
                self.program, plan, planned.memories, registry=self.registry, settings=settings
            )
        names = [plan.name for plan in plans]
        state = [found for name in names for found in self.methods[name].state()]
        for name in names:
            self.methods[name].spare(state)

    def method(self, name: str) -> Method:
        """Return a method. Raises :class:`~etdev.errors.UsageError` for an unknown name."""
        return self.methods[self.program.method(name).name]

    def execute(self, name: str, inputs: Sequence[Any]) -> tuple[Output, ...]:
        """Run a method, with the same parameters and result as :meth:`Method.execute`."""
        return self.method(name).execute(inputs)

    def reset(self) -> None:
        """Reset the state of all methods."""
        for planned in self._planned:
            planned.clear()
        for method in self.methods.values():
            method.start()

    def close(self) -> None:
        """Unload all methods and free their planned buffers; a second call has no effect."""
        for method in self.methods.values():
            method.close()
        for planned in self._planned:
            planned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_program(
    program: Program | Path,
    device_map: DeviceMap = NO_MAP,
    *,
    registry: Registry | None = None,
    shared: bool = True,
    poison: bool = True,
    executors: Mapping[str, ExecutorFactory] | None = None,
    inplace: InPlaceTable = DEFAULT,
    bounds: Bounds | None = None,
) -> LoadedProgram:
    """Load all methods of a program or of a program file. Raises the errors of :func:`load_method`.

    By default, ``registry`` is created from ``device_map``. If this map is empty, the registry is that of the process.
    """
    return LoadedProgram(
        read(program) if isinstance(program, Path) else program,
        registry=registry or (registry_for(device_map) if device_map else default_registry()),
        settings=_settings(poison, executors, inplace, bounds),
        shared=shared,
    )


def _settings(
    poison: bool, executors: Mapping[str, ExecutorFactory] | None, inplace: InPlaceTable, bounds: Bounds | None
) -> Settings:
    """Return the interpreter's settings; by default, with all registered executors."""
    found = registered_executors() if executors is None else executors
    return Settings(poison=poison, bounds=bounds or Bounds(), inplace=inplace, executors=found)


def _allocate(plans: Sequence[m.ExecutionPlan], registry: Registry, settings: Settings) -> PlannedMemory:
    sizes = buffer_sizes(plans, HOST)
    total, most = sum(sizes.values()), settings.bounds.memory
    names = ", ".join(repr(plan.name) for plan in plans)
    if total > most:
        raise RunError(
            f"the planned buffers of {names} need {total} bytes, but `Bounds.memory` allows only {most} bytes",
            hint="raise `Bounds.memory` if you trust the file",
        )
    return PlannedMemory(sizes, registry, f"method {names}")
