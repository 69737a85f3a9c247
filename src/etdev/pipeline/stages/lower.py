"""Stage *lower*: runs the partitioners in the config's order, then chooses forms for ops outside delegates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from etdev import backends
from etdev.backends.base import Backend, ChangesLowering, OptionError, RecordsDelegates, RewritesPrograms
from etdev.backends.devices import placed_specs
from etdev.errors import MissingRequirementError
from etdev.linker.planners import get_planner
from etdev.pipeline.project import Project
from etdev.pipeline.project.backend_options import backend_options, check_option_files
from etdev.pipeline.project.requirements import import_package, require_packages
from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.project.usable_forms import usable_forms
from etdev.pipeline.stages.artifacts import ExportedModel, LoweredModel, ReplacedOps
from etdev.pipeline.stages.candidates import choose_forms
from etdev.pipeline.stages.delegation import summarize_delegation
from etdev.pipeline.stages.edge_passes import needed_passes
from etdev.pipeline.stages.lower_errors import translated_lowering
from etdev.pipeline.stages.quantize.ends import with_quantized_ends
from etdev.pipeline.stages.ranges import fixed_ranges
from etdev.pipeline.stages.rejections import noted_rejections

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_LOWERING = RLock()
"""A lock that is held while programs are lowered, because lowering changes functions of ExecuTorch and torch."""


def lower_model(
    project: Project,
    exported: ExportedModel,
    target: str,
    methods: Sequence[str] | None = None,
    place: Path | None = None,
) -> LoweredModel:
    """Lower the given methods, or all methods if ``methods`` is None.

    Run the target's partitioners, and apply forms to ops outside delegates.

    ``place`` is the final path of the object program. Lowering may emit object programs to compare their memory. If it
    does, emission moves the files of the chosen object program to ``place``.

    Raises :class:`~etdev.errors.LowerError` if a backend fails, with the backend's name in the message. Raises
    :class:`~etdev.errors.MissingRequirementError` for a backend that is not installed.
    """
    steps = [_backend(project, target, index) for index in range(len(project.config.targets[target].partitioners))]
    import_package("executorch.exir")
    from executorch.exir import to_edge_transform_and_lower

    given = with_quantized_ends(project, exported, target, list(methods or exported.methods))
    programs = {name: given.methods[name].program for name in methods or exported.methods}
    names = [backend.name for backend in steps]
    with _LOWERING, translated_lowering(project, target, names, exported), ExitStack() as stack:
        partitioners, backend_of = _partitioners(project, target, steps, programs)
        stack.enter_context(noted_rejections(backend_of))
        recorded = [
            stack.enter_context(backend.recording(_all_options(project, target, backend)))
            for backend in dict.fromkeys(steps)
            if isinstance(backend, RecordsDelegates)
        ]
        for change in _changes(steps, programs.values()):
            stack.enter_context(change)
        manager = to_edge_transform_and_lower(
            programs,
            partitioner=partitioners,
            constant_methods=dict(given.constants) or None,
            compile_config=next((step.compile_config() for step in steps if isinstance(step, RewritesPrograms)), None),
            generate_etrecord=project.config.targets[target].etrecord,
        )
        for name in programs:
            manager._edge_programs[name] = _rewritten(project, target, steps, manager.exported_program(name))
    lines = SourceLines(project.loaded.root) if backend_of else None
    delegations = tuple(summarize_delegation(name, manager.exported_program(name), lines) for name in programs)
    stateful = frozenset(name for name in programs if manager.exported_program(name).graph_signature.buffers_to_mutate)
    lowered = LoweredModel(
        manager,
        delegations,
        stateful,
        tuple(ReplacedOps(name, {}) for name in programs),
        records={digest: record for records in recorded for digest, record in records.items()},
        lines=lines,
    )
    forms = usable_forms(project, target)
    if not forms:
        return lowered
    return choose_forms(project, exported, target, lowered, forms, place)


def _changes(steps: Iterable[Backend], programs: Iterable[ExportedProgram]) -> Iterator[AbstractContextManager[None]]:
    """Yield context managers for lowering. They change functions of ExecuTorch and torch, and tables of programs."""
    yield needed_passes()
    for backend in dict.fromkeys(steps):
        if isinstance(backend, ChangesLowering):
            yield backend.lowering()
    for program in programs:
        yield fixed_ranges(program)
        yield _kept_tables(program)


def untiled(project: Project, target: str, lowered: LoweredModel) -> Iterator[str]:
    """Yield a note on each method that is not tiled although the config asks for tiling."""
    settings = project.config.targets[target]
    if settings.memory.tiling != "always":
        return
    for item in lowered.replaced:
        if item.tiling is not None and item.tiling.tiled:
            continue
        if settings.lowering == "stock":
            reason = '`lowering` is "stock"'
        elif "tiling" not in usable_forms(project, target):
            reason = "the kernels of the target's runtime do not allow it"
        elif item.tiling is None:
            reason = "no other form of its ops outside of delegates is known"
        else:
            reason = "no tiles of its ops outside of delegates need less memory"
        yield f'`memory.tiling` is "always", but method {item.method!r} is not tiled: {reason}'


def _partitioners(
    project: Project, target: str, steps: Sequence[Backend], methods: Iterable[str]
) -> tuple[dict[str, list[Any]], dict[int, str]]:
    """Return the partitioners of each method, and a dict from each partitioner's ``id`` to the name of its backend."""
    found: dict[str, list[Any]] = {method: [] for method in methods}
    backend_of: dict[int, str] = {}
    for method, partitioners in found.items():
        for index, backend in enumerate(steps):
            if (partitioner := _make(project, target, index, method)) is not None:
                partitioners.append(partitioner)
                backend_of[id(partitioner)] = backend.name
    return found, backend_of


def require_backends(project: Project, target: str) -> None:
    """Raise an error early if a backend, the planner or a package of the target is missing or does not work."""
    require_packages(project, [target], "building")
    for index in range(len(project.config.targets[target].partitioners)):
        _backend(project, target, index)
    check_option_files(project, target)
    planner = project.config.targets[target].memory.planner
    if ":" not in planner:
        try:
            get_planner(planner)
        except MissingRequirementError as error:
            error.where = project.where("targets", target, "memory", "planner")
            raise


def _backend(project: Project, target: str, index: int) -> Backend:
    step = project.config.targets[target].partitioners[index]
    backend = backends.get(step.backend)
    availability = backend.availability()
    if not availability.available:
        raise MissingRequirementError(
            f"the backend {backend.name!r} cannot be used here: {availability.reason}",
            where=project.where("targets", target, "partitioners", index, "backend"),
            hint=availability.remedy,
        )
    return backend


def _make(project: Project, target: str, index: int, method: str) -> Any | None:
    backend = _backend(project, target, index)
    step = project.config.targets[target].partitioners[index]
    options = backend_options(project, target, index)
    try:
        return backend.partitioner(options, placed_specs(backend, step.device, step.compile_specs), method)
    except OptionError as error:
        error.where = project.where("targets", target, "partitioners", index, "options", *error.path)
        raise
    except ImportError as error:
        raise MissingRequirementError(
            f"the backend {backend.name!r} is installed but cannot be imported: {error}",
            where=project.where("targets", target, "partitioners", index, "backend"),
            hint=f"reinstall the packages that it needs: {backend.availability().reason}",
        ) from error


def _rewritten(project: Project, target: str, steps: Sequence[Backend], program: ExportedProgram) -> ExportedProgram:
    """Let the backends without delegates replace ops in a lowered program, and return the result."""
    for index, backend in enumerate(steps):
        if isinstance(backend, RewritesPrograms):
            program = backend.rewrite(program, backend_options(project, target, index))
    return program


def _all_options(project: Project, target: str, backend: Backend) -> list[Any]:
    """Return a list with the options of each partitioner of the target that uses ``backend``."""
    steps = enumerate(project.config.targets[target].partitioners)
    return [backend_options(project, target, index) for index, step in steps if step.backend == backend.name]


@contextmanager
def _kept_tables(program: ExportedProgram) -> Iterator[None]:
    """During the block, replace the exported program's tables of buffers with copies.

    ExecuTorch 1.4.1 and 1.5.1 remove buffers and constants from these tables if delegates own them. The next target
    lowers the same export and needs the full tables.
    """
    tables: Any = program._state_dict, program._constants
    program._state_dict, program._constants = map(dict, tables)
    try:
        yield
    finally:
        program._state_dict, program._constants = tables
