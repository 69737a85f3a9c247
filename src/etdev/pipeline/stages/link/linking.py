"""Stage *link*: plans the memory of an object program, according to the target's settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from etdev.decisions import ALL_ELISIONS, TilingDecision
from etdev.errors import BanksError, CapacityError, LinkError
from etdev.kernel_trials.custom_ops import InPlaceOps
from etdev.linker import Linked, LinkOptions, link
from etdev.linker.io import CallerOwnedError
from etdev.linker.planners import get_planner, guarded
from etdev.lowering.tileable import calls_tileable_kernels
from etdev.pipeline.project import Project
from etdev.pipeline.project.usable_forms import usable_forms
from etdev.pipeline.project.usercode import UserCode, translated
from etdev.pipeline.stages.artifacts import Emitted
from etdev.pipeline.stages.emit import ObjectProgram
from etdev.pipeline.stages.inputs import Signature
from etdev.pipeline.stages.link.bank_pins import target_banks
from etdev.pipeline.stages.link.io_owners import caller_owned, refused_end
from etdev.pipeline.stages.link.nested import NestedReport, link_nested
from etdev.pipeline.stages.link.proof import compare_link, wrong_link
from etdev.program import Program
from etdev.program.analysis.inplace import DEFAULT
from etdev.program.data_files.assignment import DataFiles
from etdev.program.segments import CONSTANT_ALIGNMENT, SEGMENT_ALIGNMENT
from etdev.program.sidecar import MethodNotes
from etdev.program.sidecar.notes import noted_inputs
from etdev.validator import ValidationReport


@dataclass(frozen=True)
class LinkedProgram:
    """A program with planned memory, ready to be written."""

    linked: Linked
    greedy: Mapping[str, Mapping[int, int]]
    """Maps each method and memory id to the bytes that ExecuTorch's greedy planner would need; for comparison.

    Empty for a target with memory banks, because the greedy planner does not support banks.
    """
    notes: Mapping[str, MethodNotes]
    """Notes of the sidecar, by method. Instruction positions are those in the linked program."""
    proof: ValidationReport
    """The proof that the program computes what its object program computes."""
    data: DataFiles = field(default_factory=DataFiles)
    """The data files to write next to the program."""
    nested: tuple[NestedReport, ...] = ()
    """Reports on the programs inside the blobs of reference delegates."""

    @property
    def delegate_inputs(self) -> dict[str, Mapping[int, int]]:
        """Number of inputs of each delegate call, by method and by position of the call."""
        return noted_inputs(self.notes)


def link_program(
    project: Project,
    target: str,
    user: UserCode,
    objects: ObjectProgram,
    signatures: Mapping[str, Signature],
    inplace: InPlaceOps,
    tilings: Collection[TilingDecision | None] = (),
) -> LinkedProgram:
    """Link an object program with the target's ``memory``, ``io``, ``elide``, ``inplace`` and ``external_weights``.

    Also prove that the linked program computes what the object program computes. ``tilings`` are the decisions of
    lowering on tiling, which decide whether an error names `memory.tiling` as a remedy. Raises
    :class:`~etdev.errors.ConfigError` if the linker cannot satisfy a key of ``io``, and
    :class:`~etdev.errors.LinkError` if a planner fails. Both errors have the location of the config key.
    """
    data = _data_files(project, target, objects)
    options = replace(_options(project, target, user, objects, signatures), inplace=inplace.table)
    try:
        program, nested = link_nested(_aligned(objects.program), options)
        objects = replace(objects, program=program)
        linked = link(objects.program, options, objects.sidecar, compare="greedy")
    except CallerOwnedError as error:
        raise refused_end(project, target, error, signatures[error.method]) from error
    except CapacityError as error:
        raise _refused_capacity(project, target, objects.program, tilings, error) from error
    except LinkError as error:
        key = "banks" if isinstance(error, BanksError) else "planner"
        where = project.where("targets", target, "memory", key)
        place = where if error.where in (None, where) else f"{where}, {error.where}"
        raise type(error)(error.message, where=place, hint=error.hint) from error
    linked = replace(linked, program=data.joined(linked.program))
    inputs = noted_inputs(objects.sidecar.methods)
    tried = {name: donors for name, donors in inplace.table.items() if name not in DEFAULT}
    proof = compare_link(objects.program, linked, inputs, tried=tried)
    for violation in proof.violations:
        raise wrong_link(violation)
    sidecar = objects.sidecar
    for method in linked.methods:
        if method.name in sidecar.methods:
            gone = dict.fromkeys(range(len(objects.program.method(method.name).instructions)))
            sidecar = sidecar.renumbered(method.name, {**gone, **method.renumbered})
    return LinkedProgram(
        linked,
        linked.compared,
        sidecar.methods,
        proof,
        data,
        nested,
    )


def _refused_capacity(
    project: Project, target: str, program: Program, tilings: Collection[TilingDecision | None], error: CapacityError
) -> CapacityError:
    """Return the error with the location of the target's banks in the config.

    Also add remedies that the target does not use yet.
    """
    settings = project.config.targets[target]
    remedies = list(error.remedies)
    may_tile = "tiling" in usable_forms(project, target) and calls_tileable_kernels(program)
    if may_tile and not error.at_delegate:
        remedies += _tiling_remedy(settings.memory.tiling, tilings, error)
    if settings.quantize is None:
        remedies.append("quantize the model")
    if error.ends_in_use and not settings.io:
        remedies.append("let the caller own inputs and outputs with `io`, if it has memory outside of the banks")
    where = project.where("targets", target, "memory", "banks")
    return error.with_remedies(remedies, where)


def _tiling_remedy(setting: str, tilings: Collection[TilingDecision | None], error: CapacityError) -> list[str]:
    """Return the value of `memory.tiling` that may reduce memory; an empty list if there is no such value.

    With `auto`, lowering has already tried to tile each method that exceeds all banks together. `always` then finds no
    further tiling. It may help if a single bank is too small.
    """
    if setting == "off":
        return ["set `memory.tiling` to `auto`"]
    tried = bool(tilings) and all(map(_is_exhausted, tilings))
    return [] if setting == "always" or error.exceeds_all or tried else ["set `memory.tiling` to `always`"]


def _is_exhausted(decision: TilingDecision | None) -> bool:
    """Return True if a method is tiled already, or if tiling does not reduce its memory."""
    return decision is not None and (
        decision.tiled or (decision.memory_saved is not None and decision.memory_saved <= 0)
    )


def _aligned(program: Program) -> Program:
    """Return the program with the segment and constant alignments that ExecuTorch used.

    The file does not state these alignments. They cannot be derived from offsets, because an offset may be a multiple
    of a larger power of two.
    """
    return replace(program, segment_alignment=SEGMENT_ALIGNMENT, inline_alignment=CONSTANT_ALIGNMENT)


def _data_files(project: Project, target: str, objects: ObjectProgram) -> DataFiles:
    """Return the data files of a target, with the data to store in each file.

    Raises :class:`~etdev.errors.LinkError` if ``external_weights`` is the name of a file that a backend requests.
    """
    delegates, weights = objects.sidecar.data_files, project.config.targets[target].external_weights
    if weights is not None and weights.casefold() in map(str.casefold, delegates):
        raise LinkError(
            f"`external_weights` is {weights!r}, but a backend of the target uses that name for its own data",
            where=project.where("targets", target, "external_weights"),
            hint="use another name",
        )
    return DataFiles(delegates, weights)


def unplanned_options(
    project: Project, target: str, objects: Emitted, signatures: Mapping[str, Signature]
) -> LinkOptions:
    """Return the target's link options, without the planner, the banks and the in-place ops.

    Raises :class:`~etdev.errors.ConfigError` for an unknown name in ``io``.
    """
    settings = project.config.targets[target]
    return LinkOptions(
        alignment=settings.memory.alignment,
        reorder=settings.memory.order == "auto",
        share_state=project.config.model.share_state,
        elide=frozenset(kind for kind in ALL_ELISIONS if getattr(settings.elide, kind)),
        caller={name: caller_owned(project, target, name, objects, signatures) for name in settings.io},
    )


def _options(
    project: Project, target: str, user: UserCode, objects: ObjectProgram, signatures: Mapping[str, Signature]
) -> LinkOptions:
    options = replace(
        unplanned_options(project, target, objects, signatures),
        banks=target_banks(project, target, objects, signatures),
    )
    planner = project.config.targets[target].memory.planner
    if ":" not in planner:
        return replace(options, planner=get_planner(planner), planner_name=planner)
    key = ("targets", target, "memory", "planner")
    where = project.where(*key)
    function = user.get(planner, project.base(*key), where)
    run = guarded(function, lambda: translated(user, LinkError, f"the planner {planner!r} failed", where=where))
    return replace(options, planner=run, planner_name=planner)
