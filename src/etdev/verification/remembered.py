"""A runtime that does not repeat calls whose outputs are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from etdev.execution.runtimes import Runtime
from etdev.pipeline.stages.known_outputs import KnownOutputs, key_of_call


class RememberedCalls:
    """A runtime for a single file. It remembers outputs, so that a call that several checks make runs only once.

    Only calls on initial state are remembered. Such a call resets the state of all methods. A repeated call is skipped,
    and returns the remembered outputs. If the next call continues from the state of a skipped call, the skipped call
    runs first.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known = KnownOutputs()
        self._skipped: tuple[str, Sequence[Any]] | None = None
        """Method and inputs of the last call if that call was skipped; otherwise None."""

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Load the file, as :meth:`Runtime.load` does. Every load must be of the same file."""
        self._skipped = None
        return self._runtime.load(file, shared=shared, data=data)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Return the outputs of a call, as :meth:`Runtime.call` does."""
        skipped, self._skipped = self._skipped, None
        if not fresh:
            if skipped is not None:
                self._runtime.call(*skipped, fresh=True)
            return self._runtime.call(method, inputs)
        key = key_of_call(method, tuple(inputs))
        found = self._known.find(key)
        if found is not None:
            self._skipped = method, inputs
            return tuple(found.outputs)
        outputs = self._runtime.call(method, inputs, fresh=True)
        self._known.add(key, outputs, ())
        return outputs
