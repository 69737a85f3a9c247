"""Worker processes for the check *accuracy*, which run several samples of a metric in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

from etdev.execution.workers import keeps_state
from etdev.pipeline.project import Project
from etdev.program import Program
from etdev.runtime.orchestrator import Orchestrator
from etdev.runtime.pool import ProgramPool, ProgramSource
from etdev.verification.subject import BuiltTarget


@dataclass
class Jobs:
    """A context manager that starts worker processes for the program when the metric first calls ``run.map``."""

    source: ProgramSource
    count: int
    obstacle: str | None = None
    """Reason why the program cannot run on several workers; None if it can."""
    _pool: ProgramPool | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def active(self) -> bool:
        """True if worker processes run the samples, False if this process runs them."""
        return self.count > 1 and self.obstacle is None

    @property
    def effect(self) -> str:
        """Text on the effect of ``--jobs``, to be appended to the check's summary."""
        if self.count <= 1:
            return ""
        if self._pool is not None:
            return f", on {self.count} workers"
        return f"; --jobs has no effect: {self.obstacle or 'the metric does not call `run.map`'}"

    def map(self, method: str, samples: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Run a method on each sample, and return an iterator over the outputs, in order."""
        if self._pool is None:
            orchestrator = self._open.enter_context(Orchestrator(self.count, "process"))
            self._pool = self._open.enter_context(ProgramPool(orchestrator, self.source))
        return (outputs for _, outputs in self._pool.map(method, samples))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)


def jobs_for(built: BuiltTarget, program: Program, *, alone: bool) -> Jobs:
    """Return the workers for a target's metric.

    ``alone`` is True if only the replay can run the program. In this case, the workers are not used.
    """
    project: Project = built.project
    imports = project.config.project.imports
    source = ProgramSource(
        built.path.absolute(),
        "stock",
        shared=project.config.model.share_state,
        data=tuple(path.absolute() for path in built.data),
        imports=tuple(imports),
        path=(project.base("project", "imports"),) if imports else (),
    )
    if alone:
        return Jobs(source, built.jobs, "the replay runs the program in one process")
    if any(keeps_state(program, plan) for plan in program.execution_plan):
        return Jobs(source, built.jobs, "the program keeps state from call to call")
    return Jobs(source, built.jobs)
