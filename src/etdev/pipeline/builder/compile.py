"""Compilation of a target to its object program, or reuse of the object program of an earlier build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from etdev.config.tables.schemes import Pt2e
from etdev.errors import LoadError, ProgramError
from etdev.pipeline.builder.summary import describe_methods, describe_split_state
from etdev.pipeline.cache import Cache, Entry, FileAccess, Output, Reads, Watch, object_facts
from etdev.pipeline.cache.import_closure import imported_files
from etdev.pipeline.project import Project
from etdev.pipeline.project.backend_options import option_files
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.places import object_files, object_place, record_place, sidecar_place
from etdev.pipeline.project.progress import StageClock
from etdev.pipeline.project.runtime_contents import runtime_files
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.notes import LINKED_AGAIN
from etdev.pipeline.results.result import Failure, MethodResult, Part
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.emit import ObjectProgram, emit_object, merge_objects, read_object
from etdev.pipeline.stages.etrecord import read_delegates
from etdev.pipeline.stages.known_outputs import KnownOutputs
from etdev.pipeline.stages.lower import lower_model, untiled
from etdev.pipeline.stages.model_digest import digest_of_model
from etdev.pipeline.stages.models import Models
from etdev.program.sidecar import read_sidecar
from etdev.runtime.stock import StockRuntime

_SHOWN_FILES = 3


class Record(Part):
    """Facts about a target, found by the stages up to emission.

    A build that reuses the object program skips these stages, and reads the facts from this record.
    """

    methods: tuple[MethodResult, ...]
    scheme: str | None
    """The quantization scheme that was applied; None if the target is not quantized."""
    outputs: dict[str, int]
    """Number of outputs of each method."""
    notes: tuple[str, ...]
    split_state: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """An object program, compiled by this build or reused from an earlier one."""

    objects: ObjectProgram
    record: Record
    reads: Reads
    """Files, folders and packages that the object program was made from."""
    outputs: Mapping[str, Output]
    """The object program's files, with their digests at the time of writing."""
    models: tuple[ExportedModel, ExportedModel] | None = None
    """The float model and the lowered model, for verification; None if the build does not verify its targets."""


@dataclass(frozen=True)
class CompiledMethod:
    """One method of a target, compiled separately from the other methods."""

    method: str
    path: Path
    """Path of the method's object program; the sidecar is next to it."""
    record: Record
    model: str
    """Digest of the float model that the method belongs to."""
    reads: Reads
    """Files, folders and packages that the method was made from."""
    changed: tuple[str, ...]
    """Input files that changed during the build. The method may be compiled from the old or the new content."""
    seconds: Mapping[str, float]
    """Duration of each stage in seconds, by stage name."""


@dataclass(frozen=True)
class BuildSession:
    """State shared by all targets of one build."""

    project: Project
    options: BuildOptions
    user: UserCode
    cache: Cache
    watch: Watch
    runtime: StockRuntime | None
    """The runtime that runs programs for verification; None if nothing is verified."""
    models: Models
    modelled: FileAccess
    """Files that this session has read so far to load, export or lower the models of its targets."""

    @contextmanager
    def record_model_reads(self) -> Iterator[None]:
        """Inside the block, record the files that are read, as inputs of this target and of all later targets.

        They are inputs of later targets, too, because these targets may use the models that are made in the block.
        """
        before = set(self.user.modules().values())
        with self.watch.into(self.modelled):
            yield
            new = {str(path) for path in self.user.modules().values() if path not in before}
            self.modelled.files.update(new)  # Later targets use models that were made from these files.


def compile_method(session: BuildSession, name: str, method: str, folder: Path) -> CompiledMethod:
    """Compile one method of a target to an object program in a folder."""
    clock = StageClock(f"{name} {method}", session.options.progress)
    path = folder / f"{method}.object.pte"
    with session.record_model_reads():
        record, _ = _emitted(session, name, (method,), path, clock)
        model = digest_of_model(session.models.prepare(name, clock)[0])
    reads = _reads(session, name)
    return CompiledMethod(method, path, record, model, reads, tuple(sorted(session.cache.changed)), clock.seconds)


def compile_target(
    session: BuildSession, name: str, clock: StageClock, folder: Path, parts: Sequence[CompiledMethod] = ()
) -> Compiled:
    """Return the object program of a target, compiled now or reused from an earlier build.

    New files are written to ``folder``. Unchanged files of an earlier build stay in the target's folder. If the
    target's methods were compiled one by one, ``parts`` are the compiled methods, and this function merges them.
    """
    path = folder / object_place(session.project, name).name
    if parts:
        with session.record_model_reads():
            return _kept(session, name, _merged(session, name, parts, path, clock))
    found = _reused(session, name, path) if session.options.cache else None
    if found is None:
        with session.record_model_reads():
            compiled = _compiled(session, name, path, clock)
        return _kept(session, name, compiled)
    facts = object_facts(session.project, name)
    with session.record_model_reads():  # Another target may use the models that this block loads.
        known = KnownOutputs(session.cache.reference(session.project, name, facts, found.reads))
        return replace(found, models=_models(session, name, found.record, clock, known))


def _models(
    session: BuildSession, name: str, record: Record, clock: StageClock, known: KnownOutputs
) -> tuple[ExportedModel, ExportedModel] | None:
    """Return the float model and the lowered model of a target whose object program is reused.

    Return None if the build does not verify its targets.
    """
    if not session.options.verify:
        return None
    return remembering(session.models.prepare_unexported(name, record.outputs, clock, known), known)


def remembering(
    models: tuple[ExportedModel, ExportedModel], known: KnownOutputs
) -> tuple[ExportedModel, ExportedModel]:
    """Return the two models. If the second is quantized, return a copy of it that has the outputs in ``known``.

    Verification looks up outputs in that copy, and adds the outputs that it computes itself.
    """
    float_model, reference = models
    if reference is not float_model:
        reference = replace(reference)
        reference.known.include(known)
    return float_model, reference


def keep_reference(project: Project, name: str, cache: Cache, reference: ExportedModel, reads: Reads) -> None:
    """Store the quantized model's outputs in the cache if this run computed outputs that the cache lacks."""
    if reference.scheme is not None and reference.known.has_new and not cache.changed:
        facts = object_facts(project, name)
        cache.keep_reference(project, name, facts, reads, reference.known.content())


def find_record(project: Project, name: str, cache: Cache) -> tuple[Record, Reads] | None:
    """Return the record and the reads that the cache has for a quantized target's object program.

    Return None if the target is not quantized, or if the cache lacks the object program.
    """
    if project.config.targets[name].quantize is None:
        return None
    entry = cache.find(project, name, "object", object_facts(project, name))
    try:
        return None if entry is None else (Record.model_validate_json(entry.record), entry.reads)
    except ValidationError:
        return None


def declared_files(project: Project) -> Iterator[Path]:
    """Yield the model files that the config names, and all files in the model folders that it names."""
    model = project.config.model
    for key in ("weights", "pt2", "hf"):
        if getattr(model, key) is not None:
            yield from _contents(project.loaded.resolve("model", key))
    for index in range(len(model.inputs)):
        yield from _contents(project.loaded.resolve("model", "inputs", index))


def _contents(path: Path) -> Iterable[Path]:
    """Return the file at a path, or every file in the folder at a path.

    Return nothing for a path that does not exist. Such a path is the name of a model on the hub.
    """
    if path.is_dir():
        return sorted(item for item in path.rglob("*") if item.is_file())
    return [path] if path.is_file() else []


def _reused(session: BuildSession, name: str, staged: Path) -> Compiled | None:
    """Return the target's object program from the cache; None if the cache lacks it.

    Restore the program's files to the folder of ``staged``, unless the target's folder already contains these files.
    """
    project, cache = session.project, session.cache
    entry = cache.find(project, name, "object", object_facts(project, name))
    if entry is None:
        return None
    path = object_place(project, name)
    if not cache.is_in_place(entry, path.parent):
        path = staged
        if not cache.restore(entry, path.parent):
            return None
    try:
        objects = ObjectProgram(read_object(path), read_sidecar(sidecar_place(path)), path)
        if project.config.targets[name].etrecord:
            read_delegates(record_place(path))
        record = Record.model_validate_json(entry.record)
    except (ProgramError, OSError, ValidationError):
        return None
    record = record.model_copy(update={"notes": (*record.notes, LINKED_AGAIN)})
    return Compiled(objects, record, entry.reads, entry.outputs)


def _compiled(session: BuildSession, name: str, path: Path, clock: StageClock) -> Compiled:
    record, objects = _emitted(session, name, None, path, clock)
    models = remembering(session.models.prepare(name, clock), KnownOutputs())
    outputs = session.cache.outputs(object_files(session.project, name, path.parent))
    return Compiled(objects, record, Reads(), outputs, models)


def _emitted(
    session: BuildSession, name: str, methods: Sequence[str] | None, path: Path, clock: StageClock
) -> tuple[Record, ObjectProgram]:
    """Lower and emit the given methods of a target, or all methods if ``methods`` is None."""
    project = session.project
    _, reference = session.models.prepare(name, clock)
    with clock.stage("lower"):
        lowered = lower_model(project, reference, name, methods, path)
    record = Record(
        methods=describe_methods(lowered, reference),
        scheme=reference.scheme,
        outputs=dict(reference.outputs),
        notes=(
            *session.models.notes,
            *reference.notes,
            *_undeclared(session),
            *untiled(project, name, lowered),
        ),
        split_state=tuple(describe_split_state(project, lowered, reference)),
    )
    with clock.stage("emit"):
        return record, emit_object(project, lowered, reference, name, path)


def _merged(
    session: BuildSession, name: str, parts: Sequence[CompiledMethod], path: Path, clock: StageClock
) -> Compiled:
    """Merge separately compiled methods of a target into one object program.

    ``parts`` are the methods in the config's order.
    """
    project = session.project
    _require_one_model(project, name, parts)
    reads = Reads()
    for part in parts:
        both = reads.files.keys() & part.reads.files.keys()
        session.cache.changed |= {*part.changed, *(one for one in both if reads.files[one] != part.reads.files[one])}
        reads = reads.joined(part.reads)
    clock.include([part.seconds for part in parts])
    with clock.stage("emit"):
        objects = merge_objects({part.method: part.path for part in parts}, path)
        outputs = session.cache.outputs(object_files(project, name, path.parent))
    record = parts[0].record.model_copy(
        update={
            "methods": tuple(method for part in parts for method in part.record.methods),
            "notes": tuple(dict.fromkeys(note for part in parts for note in part.record.notes)),
            "split_state": tuple(dict.fromkeys(one for part in parts for one in part.record.split_state)),
        }
    )
    return Compiled(objects, record, reads, outputs, _models(session, name, record, clock, KnownOutputs()))


def _require_one_model(project: Project, name: str, parts: Sequence[CompiledMethod]) -> None:
    """Raise :class:`~etdev.errors.LoadError` unless all methods come from models with the same weights.

    Each method was compiled in its own process, and each process loaded the model itself.
    """
    other = next((part for part in parts if part.model != parts[0].model), None)
    if other is not None:
        raise LoadError(
            f"the methods {parts[0].method!r} and {other.method!r} of {name!r} were compiled in two processes, "
            "and the models of these processes have different weights",
            where=project.where("model"),
            hint="set a seed for each random generator in the model's code (torch is seeded already), or build "
            "without `-j`",
        )


def _kept(session: BuildSession, name: str, compiled: Compiled) -> Compiled:
    """Store a compiled target in the cache, unless a file changed during the build.

    Return the compiled target with all files, folders and packages that it was made from.
    """
    project, cache = session.project, session.cache
    reads = compiled.reads.joined(_reads(session, name))
    if not cache.changed:
        entry = Entry(
            level="object",
            project=project.name,
            target=name,
            facts=object_facts(project, name),
            reads=reads,
            outputs=dict(compiled.outputs),
            record=compiled.record.model_dump_json(),
        )
        cache.keep(entry, compiled.objects.path.parent)
    return replace(compiled, reads=reads)


def _reads(session: BuildSession, name: str) -> Reads:
    """Return the files, folders and packages that a target's object program is made from."""
    project, user = session.project, session.user
    roots = list(_roots(project, name))
    modules = imported_files(roots, user.modules())
    session.cache.note_changed(project, user.stale())
    return session.cache.reads(
        project,
        [*modules, *declared_files(project), *option_files(project, name)],
        session.modelled,
        absent=user.missing(),
        packages=user.packages(roots),
    )


def _roots(project: Project, name: str) -> Iterator[str]:
    """Yield the names of the modules that the config imports for the stages before the link."""
    config = project.config
    yield from config.project.imports
    entries = [config.model.entry, config.constants if isinstance(config.constants, str) else None]
    scheme = config.quantize[wanted] if (wanted := config.targets[name].quantize) is not None else None
    if isinstance(scheme, Pt2e):
        given = scheme.calibration
        entries += given.values() if isinstance(given, dict) else [given]
    yield from (entry.partition(":")[0] for entry in entries if entry is not None)


def _undeclared(session: BuildSession) -> Iterator[str]:
    """Yield a note on files that the project's code reads although the config does not name these files."""
    project = session.project
    declared = {str(path) for path in declared_files(project)}
    for target in project.config.targets:
        declared.update(map(str, (*option_files(project, target), *runtime_files(project, target))))
    names = sorted(
        str(Path(name).relative_to(project.loaded.root))
        for name in session.modelled.files
        if not name.endswith(".py") and name not in declared and Path(name).is_relative_to(project.loaded.root)
    )
    if names:
        more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
        yield (
            f"the project's code reads {', '.join(names[:_SHOWN_FILES])}{more}: etdev notices changes of them. Name "
            "files that native code opens in `model.inputs`, because etdev does not see that"
        )
