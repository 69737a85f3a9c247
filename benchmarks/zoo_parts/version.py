"""One version of ExecuTorch: ``python -m zoo_parts.version`` answers requests, a JSON object on each line.

It imports the packages once for all models.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from architectures import BY_NAME, random_inputs

from etdev import compat
from zoo_parts import outputs, plain, steps


class Worker:
    """Questions that the process answers."""

    def __init__(self) -> None:
        import torch  # noqa: F401 - the runtime is linked against its libraries

        self._library = importlib.import_module(compat.runtime_module())
        importlib.import_module("executorch.kernels.quantized")
        self._library._unsafe_reset_threadpool(1)
        self._call: Callable[[], Any] | None = None
        self._alive: Any = None

    def version(self) -> str | None:
        """Return the version of ExecuTorch."""
        return compat.installed()

    def build(self, model: str, backend: str, folder: str) -> dict[str, Any]:
        """Build a model by hand and with etdev; return bytes of planned memory of both, and etdev's file."""
        from etdev.program import read
        from etdev.program.footprint import planned_memory

        by_hand = Path(folder) / "plain.pte"
        plain.write_plain(plain.lower(plain.export(model), backend), plain.DEFAULTS, by_hand)
        built = steps.build_step(model, backend, [], Path(folder))
        memory = [sum(planned_memory(read(path)).values()) for path in (by_hand, built.path)]
        return {"plain": memory[0], "etdev": memory[1], "file": str(built.path)}

    def run(self, model: str, file: str, saved: str) -> None:
        """Save the outputs of a file, and those of eager PyTorch."""
        import torch

        method = self._method(file)
        found = [
            value.clone()
            for call in range(outputs.calls_of(model))
            for value in method(random_inputs(BY_NAME[model], call))
        ]
        torch.save({"outputs": found, "eager": outputs.eager_outputs(model)}, saved)

    def load(self, model: str, file: str) -> float:
        """Load a file for :meth:`time`; return the processor time of a call in seconds."""
        method, inputs = self._method(file), random_inputs(BY_NAME[model], 0)
        self._call = lambda: method(inputs)
        self._call()  # Packs weights, and touches memory.
        return self.time(1)

    def time(self, repeats: int) -> float:
        """Return the processor time of a call in seconds."""
        assert self._call is not None
        begin = process_time()
        for _ in range(repeats):
            self._call()
        return (process_time() - begin) / repeats

    def _method(self, file: str) -> Any:
        self._alive = self._library._load_program(file)
        return self._alive.load_method("forward")


def main() -> None:
    """Answer until the input ends."""
    from etdev.pipeline.project.quiet import quiet_libraries

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Libraries print to standard output, too.
    with quiet_libraries():
        worker = Worker()
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = {"answer": getattr(worker, request.pop("ask"))(**request)}
            except Exception as error:  # noqa: BLE001 - it is the answer
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
