"""Loading of one method or all methods of a program into planned memory."""

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
    """Load one method. Planned buffers come from ``memory``, or are allocated on their devices through the registry.

    Without ``registry``, the process's registry is used. Raises :class:`~etdev.runtime.errors.PlannedBufferError` and
    others, after releasing everything allocated until then.
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
    """All methods of a program. A context manager.

    With ``shared`` they use the same planned buffers, each of the size that the largest method needs, as
    ``executorch.runtime.Runtime`` does. They then share the state that the file puts at the same place. Otherwise each
    method has its own memory and state.
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
        """Return a method. Raises :class:`~etdev.errors.UsageError` with the existing names if it is unknown."""
        return self.methods[self.program.method(name).name]

    def execute(self, name: str, inputs: Sequence[Any]) -> tuple[Output, ...]:
        """Run a method."""
        return self.method(name).execute(inputs)

    def reset(self) -> None:
        """Reset all state."""
        for planned in self._planned:
            planned.clear()
        for method in self.methods.values():
            method.start()

    def close(self) -> None:
        """Release everything. A second call has no effect."""
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
    """Load all methods of a program or a file. Raises as :func:`load_method` does.

    ``device_map`` assigns devices to those of the program, unless ``registry`` is given.
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
    """Return settings with all registered executors, unless some are given."""
    found = registered_executors() if executors is None else executors
    return Settings(poison=poison, bounds=bounds or Bounds(), inplace=inplace, executors=found)


def _allocate(plans: Sequence[m.ExecutionPlan], registry: Registry, settings: Settings) -> PlannedMemory:
    sizes = buffer_sizes(plans, HOST)
    total, most = sum(sizes.values()), settings.bounds.memory
    names = ", ".join(repr(plan.name) for plan in plans)
    if total > most:
        raise RunError(
            f"the planned buffers of {names} are {total} bytes, and at most {most} are taken",
            hint="raise the limit if the file is to be trusted",
        )
    return PlannedMemory(sizes, registry, f"method {names}")
