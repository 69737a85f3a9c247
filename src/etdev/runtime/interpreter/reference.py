"""Executor of the reference backend, whose delegates are nested programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etdev.program import parse
from etdev.runtime.errors import RunError
from etdev.runtime.interpreter.settings import DelegateContext
from etdev.runtime.interpreter.tensors import RunTensor
from etdev.runtime.loaded import Method
from etdev.runtime.owners import MoveOnly
from etdev.runtime.planned import PlannedMemory, buffer_sizes

BACKEND = "EtdevReferenceBackend"
"""Name of the backend in program files."""
_METHOD = "forward"
_DEEPEST = 8
"""Maximum nesting depth of delegates."""


class ReferenceExecutor(MoveOnly):
    """Executor of a delegate that is a nested program; loads the program on the delegate's device."""

    def __init__(self, context: DelegateContext) -> None:
        settings = replace(context.settings, depth=context.settings.depth + 1)
        if settings.depth > _DEEPEST:
            raise RunError(f"delegates of {context.id!r} are nested more than {_DEEPEST} levels deep")
        program = parse(context.data)
        plan = program.method(_METHOD)
        what = f"the program of the delegate {context.id!r}"
        sizes = buffer_sizes([plan], context.device)
        if sum(sizes.values()) > settings.bounds.memory:
            raise RunError(
                f"{what} needs {sum(sizes.values())} bytes of planned memory, "
                f"but `Bounds.memory` allows only {settings.bounds.memory} bytes"
            )
        self._memory = PlannedMemory(sizes, context.registry, what)
        self._inputs = len(plan.inputs)
        try:
            self._method = Method(
                program,
                plan,
                self._memory.memories,
                registry=context.registry,
                settings=settings,
                home=context.device,
            )
        except BaseException:
            self._memory.close()
            raise

    @property
    def input_count(self) -> int:
        """Number of inputs of the nested program."""
        return self._inputs

    def execute(self, arguments: Sequence[RunTensor | int | float | bool | None]) -> None:
        """Run the nested program."""
        self._method.execute_on_device(arguments)

    def finish(self) -> None:
        """Do nothing, because :meth:`execute` returns only after all work is done."""

    def reset(self) -> None:
        """Reset the state of the nested program."""
        self._memory.clear()
        self._method.start()

    def close(self) -> None:
        """Unload the nested program."""
        self._method.close()
        self._memory.close()
