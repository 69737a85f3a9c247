"""From a target's settings to its object program: the one of an earlier build, or one that is made now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from etdev.config.models import Pt2eXnnpack
from etdev.errors import LoadError, ProgramError
from etdev.pipeline.artifacts import ExportedModel, LoweredModel
from etdev.pipeline.cache import Cache, FileAccess, Output, Reads, Watch, object_facts
from etdev.pipeline.etrecord import read_delegates
from etdev.pipeline.finished import LINKED_AGAIN
from etdev.pipeline.import_closure import imported_files
from etdev.pipeline.inputs import Signature
from etdev.pipeline.known_outputs import KnownOutputs
from etdev.pipeline.lower import lower_model
from etdev.pipeline.model_digest import digest_of_model
from etdev.pipeline.models import Models
from etdev.pipeline.objects import ObjectProgram, emit_object, find_common, merge_objects
from etdev.pipeline.options import BuildOptions
from etdev.pipeline.places import object_files, object_place, record_place, sidecar_place
from etdev.pipeline.progress import StageClock
from etdev.pipeline.project import Project, says_share_state
from etdev.pipeline.result import MethodResult
from etdev.pipeline.summary import describe_methods
from etdev.pipeline.usercode import UserCode
from etdev.program import read
from etdev.program.sidecar import read_sidecar

_SHOWN_FILES = 3


class Record(BaseModel):
    """What a build says of the stages up to emission, which a later one does not run again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: tuple[MethodResult, ...]
    scheme: str | None
    """The quantization scheme that was applied."""
    outputs: dict[str, int]
    """Number of outputs of each method."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Compiled:
    """An object program, made now or by an earlier build."""

    objects: ObjectProgram
    record: Record
    signatures: Mapping[str, Signature]
    models: tuple[ExportedModel, ExportedModel] | None
    """The float model and the one that was lowered; None if nobody asks for them."""
    notes: tuple[str, ...]
    reads: Reads
    """What it was made from."""
    outputs: Mapping[str, Output]
    """Its files, as they were when they were written."""


@dataclass(frozen=True)
class Part:
    """One method of a target, compiled by itself."""

    method: str
    path: Path
    """Its object program, with the sidecar beside it."""
    record: Record
    model: str
    """Digest of the model that it is a method of."""
    reads: Reads
    """What it was made from."""
    changed: tuple[str, ...]
    """Files of which nobody knows what was read, by path relative to the config's folder."""
    seconds: Mapping[str, float]
    """Per stage."""


@dataclass(frozen=True)
class BuildSession:
    """What all targets of a build share."""

    project: Project
    options: BuildOptions
    user: UserCode
    cache: Cache
    watch: Watch
    models: Models
    modelled: FileAccess
    """What was read while models were loaded, exported and lowered, for whatever target."""

    @contextmanager
    def record_model_reads(self) -> Iterator[None]:
        """What is read in the block, models are made from."""
        before = set(self.user.modules().values())
        with self.watch.into(self.modelled):
            yield
            new = {str(path) for path in self.user.modules().values() if path not in before}
            self.modelled.files.update(new)  # Whichever target they were imported for, another uses what came of it.


def compile_method(session: BuildSession, name: str, method: str, folder: Path) -> Part:
    """One method of a target as an object program in a folder."""
    clock = StageClock(f"{name} {method}", session.options.progress)
    path = folder / f"{method}.object.pte"
    with session.record_model_reads():
        record, _ = _emitted(session, name, (method,), path, clock)
        model = digest_of_model(session.models.prepare(name, clock)[0])
    reads = _reads(session, name)
    return Part(method, path, record, model, reads, tuple(sorted(session.cache.changed)), clock.seconds)


def compile_target(
    session: BuildSession, name: str, clock: StageClock, folder: Path, parts: Sequence[Part] = ()
) -> Compiled:
    """The object program of a target, of all its methods if those were compiled already.

    Its files are made in ``folder``, unless the ones of an earlier build that stand at their places are the same.
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
    objects, record, reads, outputs = found
    facts = object_facts(session.project, name, session.cache.digests)
    models, verify = session.models, session.options.verify
    with session.record_model_reads():  # Another target may go on with the models that are loaded here.
        known = KnownOutputs(session.cache.reference(session.project, name, facts, reads))
        prepared = remembering(models.prepare_unexported(name, record.outputs, clock, known), known) if verify else None
        signatures = prepared[1].signatures if prepared else models.signatures(clock)
    notes = (*record.notes, LINKED_AGAIN)
    return Compiled(objects, record, signatures, prepared, notes, reads, outputs)


def remembering(
    models: tuple[ExportedModel, ExportedModel], known: KnownOutputs
) -> tuple[ExportedModel, ExportedModel]:
    """Return the float model and the one that is lowered; the latter's outputs are remembered if it is quantized."""
    float_model, reference = models
    return (float_model, reference if reference is float_model else replace(reference, known=known))


def keep_reference(project: Project, name: str, cache: Cache, reference: ExportedModel, reads: Reads) -> None:
    """Keep the outputs of a quantized model in the cache if it has computed some that were not known."""
    if reference.known is not None and reference.known.has_new and not cache.changed:
        facts = object_facts(project, name, cache.digests)
        cache.keep_reference(project, name, facts, reads, reference.known.content())


def find_record(project: Project, name: str, cache: Cache) -> tuple[Record, Reads] | None:
    """Return what a build says of a quantized target's object program, if one now would give the same."""
    if project.config.targets[name].quantize is None:
        return None
    entry = cache.find(project, name, "object", object_facts(project, name, cache.digests))
    try:
        return None if entry is None else (Record.model_validate_json(entry.record), entry.reads)
    except ValidationError:
        return None


def declared_files(project: Project) -> Iterator[Path]:
    """Files that the config says the model is made of; of folders, all that is in them."""
    model = project.config.model
    for key in ("weights", "pt2", "hf"):
        if getattr(model, key) is not None:
            yield from _contents(project.loaded.resolve("model", key))
    for index in range(len(model.inputs)):
        yield from _contents(project.loaded.resolve("model", "inputs", index))


def _contents(path: Path) -> Iterable[Path]:
    """A file, or every file in a folder; nothing for what is no path: a model on the hub has a pinned commit."""
    if path.is_dir():
        return sorted(item for item in path.rglob("*") if item.is_file())
    return [path] if path.is_file() else []


def _reused(
    session: BuildSession, name: str, staged: Path
) -> tuple[ObjectProgram, Record, Reads, Mapping[str, Output]] | None:
    """The target's object program if a build now would give the same one; at ``staged`` if it is not at its place."""
    project, cache = session.project, session.cache
    entry = cache.find(project, name, "object", object_facts(project, name, cache.digests))
    if entry is None:
        return None
    path = object_place(project, name)
    if not cache.is_in_place(entry, path.parent):
        path = staged
        if not cache.restore(entry, path.parent):
            return None
    try:
        objects = ObjectProgram(path, read(path), read_sidecar(sidecar_place(path)))
        if project.config.targets[name].etrecord:
            read_delegates(record_place(path))
        return objects, Record.model_validate_json(entry.record), entry.reads, entry.outputs
    except (ProgramError, OSError, ValidationError):
        return None


def _compiled(session: BuildSession, name: str, path: Path, clock: StageClock) -> Compiled:
    record, objects = _emitted(session, name, None, path, clock)
    models = remembering(session.models.prepare(name, clock), KnownOutputs())
    outputs = session.cache.outputs(object_files(session.project, name, path.parent))
    return Compiled(objects, record, models[1].signatures, models, record.notes, Reads(), outputs)


def _emitted(
    session: BuildSession, name: str, methods: Sequence[str] | None, path: Path, clock: StageClock
) -> tuple[Record, ObjectProgram]:
    """All methods of a target, or some, as an object program."""
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
            *_split_state(project, lowered, reference),
        ),
    )
    with clock.stage("emit"):
        return record, emit_object(project, lowered, reference, name, path)


def _merged(session: BuildSession, name: str, parts: Sequence[Part], path: Path, clock: StageClock) -> Compiled:
    """The methods of a target that were compiled one by one, in the config's order."""
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
        }
    )
    known = KnownOutputs()
    models = (
        remembering(session.models.prepare_unexported(name, record.outputs, clock, known), known)
        if session.options.verify
        else None
    )
    signatures = models[1].signatures if models else session.models.signatures(clock)
    return Compiled(objects, record, signatures, models, record.notes, reads, outputs)


def _require_one_model(project: Project, name: str, parts: Sequence[Part]) -> None:
    """Each process has made the model for itself.

    Raises :class:`~etdev.errors.LoadError` if they have made different ones.
    """
    other = next((part for part in parts if part.model != parts[0].model), None)
    if other is not None:
        raise LoadError(
            f"the methods {parts[0].method!r} and {other.method!r} of {name!r} were compiled in two processes, whose "
            "models do not have the same weights",
            where=project.where("model"),
            hint="seed what is random where the model is made (torch is seeded already), or build without `-j`",
        )


def _kept(session: BuildSession, name: str, compiled: Compiled) -> Compiled:
    """With what it was made from; the cache has it if that is known."""
    project, cache = session.project, session.cache
    reads = compiled.reads.joined(_reads(session, name))
    if not cache.changed:
        facts = object_facts(project, name, cache.digests)
        folder = compiled.objects.path.parent
        cache.keep(project, name, "object", facts, reads, folder, compiled.outputs, compiled.record.model_dump_json())
    return replace(compiled, reads=reads)


def _reads(session: BuildSession, name: str) -> Reads:
    """What an object program was made from."""
    project, user = session.project, session.user
    roots = list(_roots(project, name))
    modules = imported_files(roots, user.modules())
    session.cache.note_changed(project, user.stale())
    return session.cache.reads(
        project,
        sorted(modules),
        list(declared_files(project)),
        session.modelled,
        absent=user.missing(),
        packages=user.packages(roots),
    )


def _roots(project: Project, name: str) -> Iterator[str]:
    """Modules that the config names for what comes before the link."""
    config = project.config
    yield from config.project.imports
    entries = [config.model.entry, config.constants if isinstance(config.constants, str) else None]
    scheme = config.quantize[wanted] if (wanted := config.targets[name].quantize) is not None else None
    if isinstance(scheme, Pt2eXnnpack):
        given = scheme.calibration
        entries += given.values() if isinstance(given, dict) else [given]
    yield from (entry.partition(":")[0] for entry in entries if entry is not None)


def _split_state(project: Project, lowered: LoweredModel, exported: ExportedModel) -> Iterator[str]:
    """State that methods share in the model and not in the program, unless the config says that it is meant so."""
    if says_share_state(project):
        return
    for name, methods in find_common(lowered, exported).items():
        yield (
            f"{', '.join(methods)} each have a {name} of their own, which is one buffer in the model: what one method "
            "does to it, the others do not see; set `model.share_state`: true shares it, false keeps it so"
        )


def _undeclared(session: BuildSession) -> Iterator[str]:
    """Files that the model's code reads and the config does not name."""
    project = session.project
    declared = {str(path) for path in declared_files(project)}
    names = sorted(
        str(Path(name).relative_to(project.loaded.root))
        for name in session.modelled.files
        if not name.endswith(".py") and name not in declared and Path(name).is_relative_to(project.loaded.root)
    )
    if names:
        more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
        yield (
            f"the model's code reads {', '.join(names[:_SHOWN_FILES])}{more}, which `model.inputs` does not name: "
            "that it changes is noticed only because Python opens it"
        )
