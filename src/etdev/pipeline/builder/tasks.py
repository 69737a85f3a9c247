"""Tasks of build workers. A task builds a whole target or compiles a single method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etdev import backends
from etdev.backends.base import CompilesApart
from etdev.backends.devices import placed_specs
from etdev.devices import TARGET_DEVICE
from etdev.pipeline.cache import Cache, object_facts
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions


@dataclass(frozen=True, slots=True)
class Task:
    """A unit of work for one worker."""

    target: str
    method: str | None = None
    """The method to compile; None to build the whole target."""

    @property
    def shown(self) -> str:
        """Name of the task in the progress display."""
        return self.target if self.method is None else f"{self.target} {self.method}"


def workers_wanted(project: Project, options: BuildOptions) -> int:
    """Return the number of workers that may run at the same time."""
    return options.jobs or project.config.run.jobs


def plan_tasks(project: Project, names: Sequence[str], options: BuildOptions, cache: Cache) -> list[Task]:
    """Return the first tasks of a build: for each target, one task for the whole target or one for each method.

    The methods of a target are compiled separately if there are more workers than targets, if this does not change the
    result, and if the build cannot reuse an object program from the cache. The target is then built after its methods.
    """
    spare = workers_wanted(project, options) > len(names)
    tasks: list[Task] = []
    for name in names:
        apart = spare and _comes_apart(project, name) and not (options.cache and _is_compiled(project, name, cache))
        tasks += [Task(name, method) for method in project.config.methods] if apart else [Task(name)]
    return tasks


def needs_the_machine(project: Project, name: str) -> bool:
    """Return True if other work on this machine would change the target's results.

    This is so if a check measures times, or if the program uses a device.
    """
    target = project.config.targets[name]
    return target.budget.latency is not None or any(
        TARGET_DEVICE in placed_specs(backends.get(step.backend), step.device, step.compile_specs)
        for step in target.partitioners
    )


def _comes_apart(project: Project, name: str) -> bool:
    """Return True if the target's methods can be compiled one by one with the same result."""
    target = project.config.targets[name]
    return (
        len(project.config.methods) > 1
        and project.config.model.pt2 is None
        and not target.etrecord  # The ETRecord is of the whole program.
        and not needs_the_machine(project, name)
        and all(_compiles_apart(step.backend) for step in target.partitioners)
    )


def _compiles_apart(name: str) -> bool:
    backend = backends.get(name)
    return isinstance(backend, CompilesApart) and backend.methods_apart


def _is_compiled(project: Project, name: str, cache: Cache) -> bool:
    return cache.find(project, name, "object", object_facts(project, name)) is not None
