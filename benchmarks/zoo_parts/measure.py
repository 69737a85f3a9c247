"""Measure one model on one backend: ``python -m zoo_parts.measure MODEL BACKEND KEY PAIRS all|final FILE``.

A process of its own for each, which gives all memory back, and may crash.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from architectures import REAL_SIZES

from zoo_parts import latency, outputs, plain, process, steps
from zoo_parts.result import Backend, File, Latency, Process, Result, Step, Tuned

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager

    from etdev.runtime.stock import StockRuntime

_WRONG = 1e-3
"""Relative error from which on a file counts as wrong; what rounding gives is far below."""


class Measurement:
    """The result of one model as it grows. Its files lie in ``folder``."""

    def __init__(
        self, model: str, backend: Backend, key: str, folder: Path, runtime: StockRuntime, *, final_only: bool
    ) -> None:
        self.result = Result(key=key, model=model, backend=backend)
        self._model, self._backend, self._folder, self._runtime = model, backend, folder, runtime
        self._final_only = final_only or model in {architecture.name for architecture in REAL_SIZES}

    def run(self, pairs: int) -> Result:
        """Everything; what fails is a trouble of the result."""
        begin = monotonic()
        if self._try("plain ExecuTorch", self._measure_plain):
            if not self._final_only:
                self._try("etdev relink", self._measure_relinked)
            if self._try("etdev", self._measure_steps):
                self._try("process", self._measure_process)
                if pairs:
                    self._try("latency", lambda: self._measure_latency(pairs))
        self._add(seconds=round(monotonic() - begin, 1))
        return self.result

    def _try(self, name: str, part: Callable[[], None]) -> bool:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - it is the result
            self._add(troubles=(*self.result.troubles, f"{name}: {_one_line(error)}"))
            return False
        return True

    def _add(self, **found: Any) -> None:
        self.result = self.result.model_copy(update=found)

    def _measure_plain(self) -> None:
        self._expected = outputs.eager_outputs(self._model)
        edge = plain.lower(plain.export(self._model), self._backend)
        self._plain = self._folder / "plain.pte"
        plain.write_plain(edge, plain.DEFAULTS, self._plain)
        self._plain_outputs = outputs.outputs_of(self._plain, self._model, self._runtime)
        self._add(plain=File(**_sizes(self._plain), error=self._error(self._plain_outputs)))
        if not self._final_only:
            self._add(tuned=self._measure_tuned(edge))

    def _measure_tuned(self, edge: EdgeProgramManager) -> Tuned:
        """Of the files that settings of ExecuTorch's give, the plain one among them, the smallest that is right.

        Only what would be the smallest is run.
        """
        assert self.result.plain is not None
        failed: dict[str, str] = {}
        best, chosen = self.result.plain, "defaults"
        for name, settings in plain.TUNED.items():
            path = self._folder / "tuned.pte"
            try:
                plain.write_plain(edge, settings, path)
                file = File(**_sizes(path))
                if file.cost(self.result.plain) >= best.cost(self.result.plain):
                    continue
                error = self._error(outputs.outputs_of(path, self._model, self._runtime))
            except Exception as trouble:  # noqa: BLE001 - it is the result
                failed[name] = _one_line(trouble)
                continue
            if error > _WRONG:
                failed[name] = f"wrong outputs: relative error {error:.1e}"
            else:
                best, chosen = file.model_copy(update={"error": error}), name
        return Tuned(**dict(best), settings=chosen, failed=failed)

    def _measure_steps(self) -> None:
        found: list[Step] = []
        known: dict[bytes, outputs.Outputs] = {}
        for name, settings in list(steps.measured_steps())[-1 if self._final_only else 0 :]:
            built = steps.build_step(self._model, self._backend, settings, self._folder / "etdev")
            content = sha256(built.object.read_bytes()).digest()
            if content not in known:
                known[content] = outputs.outputs_of(built.object, self._model, self._runtime)
            before = known[content]
            after = outputs.outputs_of(built.path, self._model, self._runtime)
            found.append(
                Step(
                    **_sizes(built.path),
                    error=self._error(after),
                    name=name,
                    lower_bound=built.lower_bound,
                    identical=outputs.same_bits(before, after),
                    as_plain=outputs.same_bits(self._plain_outputs, after),
                )
            )
            self._built = built.path
            self._add(steps=tuple(found))

    def _measure_relinked(self) -> None:
        from etdev.errors import UnlinkableError
        from etdev.pipeline.relink import relink

        path = self._folder / "relinked.pte"
        try:
            relink(self._plain, path)
        except UnlinkableError as error:
            self._add(overlap=_one_line(error))
            return
        found = outputs.outputs_of(path, self._model, self._runtime)
        identical = outputs.same_bits(self._plain_outputs, found)
        self._add(relinked=_sizes(path)["memory"], relinked_identical=identical)

    def _measure_process(self) -> None:
        found = [process.peak(self._model, path) for path in (None, self._plain, self._built)]
        self._add(process=Process(runtime=found[0], plain=found[1], etdev=found[2]))

    def _measure_latency(self, pairs: int) -> None:
        first, second = latency.time_pairs(self._model, self._plain, self._built, pairs)
        self._add(latency=Latency(plain=tuple(first), etdev=tuple(second)))

    def _error(self, found: outputs.Outputs) -> float:
        return outputs.relative_error(found, self._expected, outputs.calls_of(self._model))


def _sizes(path: Path) -> dict[str, int]:
    """Return the fields of a :class:`File`."""
    from etdev.program import read
    from etdev.program.footprint import planned_memory

    program = read(path)
    return {
        "memory": sum(planned_memory(program).values()),
        "size": path.stat().st_size,
        "instructions": sum(len(chain.instructions) for plan in program.execution_plan for chain in plan.chains),
    }


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"


def main() -> None:
    """Entry of the process."""
    from etdev.pipeline.project.quiet import quiet_libraries
    from etdev.runtime.stock import StockRuntime

    model, backend, key, pairs, steps_of, file = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, StockRuntime() as runtime, quiet_libraries():
        measurement = Measurement(model, backend, key, Path(folder), runtime, final_only=steps_of == "final")  # type: ignore[arg-type]
        result = measurement.run(int(pairs))
    Path(file).write_text(result.model_dump_json(indent=1) + "\n")


if __name__ == "__main__":
    main()
