"""Relink of a ``.pte`` to one that needs less memory, for ``etdev relink``.

This module works without torch, executorch and a project's code.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from etdev import program as pte
from etdev.config.keys import nearest
from etdev.config.limits import PRODUCTS
from etdev.config.types import MAX_ALIGNMENT
from etdev.decisions import ALL_ELISIONS, Elision, ElisionKind, InPlace
from etdev.errors import LinkError, ProgramError, UnlinkableError, UsageError, WriteError
from etdev.files import atomic_path, real_path
from etdev.linker import Linked, LinkOptions, link, link_foreign
from etdev.linker.options import MethodReport
from etdev.linker.planners import get_planner, planner_names
from etdev.pipeline.results.decision_counts import KINDS, CopiesOfKind, InPlaceOutputs, count_copies, count_inplace
from etdev.pipeline.stages.proof import compare_link, summarize_proof, wrong_link
from etdev.program import Program
from etdev.program.analysis.inplace import DEFAULT
from etdev.program.constants import constants_size
from etdev.program.data_files.external import without_constant_names
from etdev.program.data_files.joined import DataArgument, data_paths, read_joined
from etdev.program.data_files.lookups import missing_data
from etdev.program.delegates import delegate_inputs
from etdev.program.footprint import planned_buffers, planned_memory
from etdev.program.info import BufferInfo
from etdev.program.model import ExecutionPlan
from etdev.validator import Correspondence, ValidationReport, validate_file, validate_link
from etdev.verification.answers import Finding
from etdev.verification.checks.plan import check_memory_plan

FORMAT = 1
_DEFAULT_ALIGNMENT = 16
_OBJECT = ".object.pte"
_TABLES = {"default": DEFAULT, "none": {}}
"""Tables of kernels that may write over an operand, by the names that callers use for the tables."""


@dataclass(frozen=True, slots=True)
class MethodChange:
    """What a relink changed in one method."""

    name: str
    before: tuple[BufferInfo, ...]
    """Planned buffers of the method in the input file."""
    after: tuple[BufferInfo, ...]
    """Planned buffers of the method in the output file; without lower bounds if the method kept its plan."""
    instructions_before: int
    instructions_after: int
    copies: tuple[CopiesOfKind, ...]
    """Numbers of removed and kept copies, by kind."""
    inplace: InPlaceOutputs
    """Numbers of outputs that are written over an operand, and of outputs that are not."""
    copy_decisions: tuple[Elision, ...]
    """The linker's decision on each copy, by position in the input file."""
    inplace_decisions: tuple[InPlace, ...]
    """The linker's decision on each output that may be written over an operand, by position in the input file."""
    kept: str | None
    """Reason why the method kept its plan; None if it has a new one."""


@dataclass(frozen=True, slots=True)
class RelinkResult:
    """The result of a relink: figures of the input file (``before``) and of the output file (``after``)."""

    format: int
    input: str
    output: str
    planner: str
    alignment: int
    """Alignment in bytes of each storage."""
    elide: tuple[ElisionKind, ...]
    """Kinds of copies that the linker was to remove."""
    inplace: str
    """Name of the table of kernels that may write over an operand: ``default`` or ``none``."""
    size_before: int
    """Bytes of the input file."""
    size_after: int | None
    """Bytes of the output file; None if it cannot be read again, such as a pipe or ``/dev/null``."""
    memory_before: dict[str, int]
    """Planned bytes per device: the sum over planned buffers, each at its largest size in any method."""
    memory_after: dict[str, int]
    constants_before: int
    """Bytes of constants in the input program."""
    constants_after: int
    """Bytes of constants in the output program.

    They are more than before if the file now has copies of constants that were in planned memory.
    """
    methods: tuple[MethodChange, ...]
    shared_state: tuple[str, ...]
    """Names of states that several methods share; they need a loader that gives all methods the same buffers."""
    data: tuple[str, ...]
    """Data files whose content is now in the program."""
    external_data: tuple[str, ...]
    """Names of data in another file, which is unchanged and still needed.

    This is data of tensors, and of delegates whose blobs tell what they look up.
    """
    plan: Literal["passed", "not run"]
    """Result of the check of the new plans, after reading the output file again."""
    plan_summary: str
    """What the check of the new plans found, or the reason why it did not run."""

    def to_json(self) -> str:
        """Return the versioned document of ``etdev relink --output json``."""
        return json.dumps(asdict(self), indent=2)


def relink(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    data: DataArgument = (),
    planner: str = "best",
    alignment: int | None = None,
    elide: Collection[str] = ALL_ELISIONS,
    inplace: str = "default",
) -> RelinkResult:
    """Plan the memory of a ``.pte`` from any toolchain again, with fewer copies and with outputs over their operands.

    ``output`` may be ``file``; it is replaced atomically. ``data`` are the ``.ptd`` files that hold data of the
    program. That data goes into the output; without ``data``, it stays in its files.

    ``planner`` is ``best``, ``greedy``, ``naive`` or a name that another package registers. ``alignment`` is in bytes,
    a power of two, 16 by default. ``elide`` are the kinds of copies to remove, by default all: ``views``, ``slices``,
    ``cat``, ``write_back``, ``constants``. ``inplace`` is ``default``, etdev's own table of kernels that may write over
    an operand, or ``none``.

    With ``best`` and without ``alignment``, a method keeps its own plan if that needs less memory than the new one. If
    state has a separate buffer, either all methods keep their plans or none.

    Raises :class:`~etdev.errors.ProgramError` for a file that is malformed or has content that this version would lose.
    Its subclass :class:`~etdev.errors.UnlinkableError` is raised for a program that overwrites values that it still
    reads. Raises :class:`~etdev.errors.WriteError`, and :class:`~etdev.errors.UsageError` for invalid arguments.
    """
    _check_arguments(planner, alignment, inplace)
    kinds = check_kinds(elide, "elide")
    source, target, files = Path(file), Path(output), data_paths(data)
    _refuse_object(source)
    _refuse_place(target, files)
    program, size_before = _read(source, files), source.stat().st_size
    options = _options(planner, alignment, kinds, inplace)
    # A caller that chooses a planner or an alignment gets its plan; otherwise the smaller plan counts.
    linked = _linked(program, options, source, keep=planner == "best" and alignment is None)
    proof = _prove(program, linked, source, target)
    check, size_after = _write(program, linked, target, None if files else source)
    return RelinkResult(
        format=FORMAT,
        input=str(source),
        output=str(target),
        planner=planner,
        alignment=options.alignment,
        elide=kinds,
        inplace=inplace,
        size_before=size_before,
        size_after=size_after,
        memory_before=planned_memory(program),
        memory_after=planned_memory(linked.program),
        constants_before=constants_size(program),
        constants_after=constants_size(linked.program),
        methods=_changes(program, linked),
        shared_state=linked.shared_state,
        data=tuple(map(str, files)),
        external_data=tuple(sorted(missing.name for missing in missing_data(program))),
        plan="passed" if check.status == "passed" else "not run",
        plan_summary=f"{summarize_proof(proof)}; {check.summary}" if check.status == "passed" else check.summary,
    )


def _options(planner: str, alignment: int | None, kinds: Sequence[ElisionKind], inplace: str) -> LinkOptions:
    return LinkOptions(
        planner=get_planner(planner),
        planner_name=planner,
        alignment=alignment or _DEFAULT_ALIGNMENT,
        elide=frozenset(kinds),
        inplace=_TABLES[inplace],
    )


def _linked(program: Program, options: LinkOptions, source: Path, *, keep: bool) -> Linked:
    """Return the program with new plans; with ``keep``, a method keeps its own plan if that is smaller."""
    try:
        return link_foreign(program, options) if keep else link(program, options)
    except LinkError as error:
        raise UnlinkableError(error.message, where=_place(source, error), hint=error.hint) from error


def check_kinds(names: Collection[str], where: str) -> tuple[ElisionKind, ...]:
    """Return kinds of copies by name, in the order in which they are reported.

    A string is one kind; ``all`` means all kinds. Raises :class:`~etdev.errors.UsageError`, at ``where``, for an
    unknown name.
    """
    names = {names} if isinstance(names, str) else set(names)
    known = (*KINDS, "all")
    for name in sorted(names - {*known}, key=str):
        meant = nearest(name, known) if isinstance(name, str) else None
        hint = f"did you mean `{meant}`?" if meant else f"one of: {', '.join(known)}"
        raise UsageError(f"unknown kind of copies {name!r}", where=where, hint=hint)
    return tuple(kind for kind in KINDS if kind in names or "all" in names)


def _prove(program: Program, linked: Linked, source: Path, target: Path) -> ValidationReport:
    """Compare the program with the program linked from it; raise an error if that computes something else.

    The behaviour of a file that reads unwritten bytes is undefined. In that case, the file is at fault.
    """
    inputs = {plan.name: delegate_inputs(plan) for plan in program.execution_plan}
    found = compare_link(program, linked, inputs, foreign=True)
    for violation in found.violations:
        if reason := _why_unclear(program, inputs, violation.method):
            hint = "its behavior is undefined: build it again from its model with etdev, or report it with the file"
            raise UnlinkableError(reason, where=str(source), hint=hint)
        raise wrong_link(violation, str(target))
    return found


def _why_unclear(program: Program, inputs: Mapping[str, Mapping[int, int]], method: str) -> str | None:
    """Return why a method's result is undefined; None if it is defined.

    It is undefined if the method reads bytes that were overwritten or never written.
    """
    alone = validate_file(program, inputs)
    for violation in (*alone.violations, *alone.never_written, *alone.overlapping):
        if violation.method == method:
            return violation.message
    for item in alone.not_validated:
        if item.method == method:
            return f"method {item.method!r} cannot be followed: {item.reason}"
    same = {}
    for plan in program.execution_plan:
        same[plan.name] = Correspondence({at: at for at in range(len(plan.instructions))}, inputs.get(plan.name, {}))
    # With violations here, the program does not even match itself.
    for violation in validate_link(program, program, same, foreign=True).violations:
        if violation.method == method:
            return f"method {violation.method!r} depends on a value that no instruction sets"
    return None


def _check_arguments(planner: str, alignment: int | None, inplace: str) -> None:
    if planner not in planner_names():
        own = "relink runs no one's code; a planner of your own is for `etdev build`" if ":" in planner else None
        known = ", ".join(sorted(planner_names()))
        raise UsageError(f"there is no planner {planner!r}", where="--planner", hint=own or f"one of: {known}")
    if alignment is not None and (
        not isinstance(alignment, int) or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1)
    ):
        raise UsageError(
            f"{alignment!r} bytes is not an alignment",
            where="--alignment",
            hint=f"give a power of two up to {MAX_ALIGNMENT}: 16, 64, 128",
        )
    if inplace not in _TABLES:
        raise UsageError(
            f"{inplace!r} does not say which operators may write in place",
            where="--inplace",
            hint=f"one of: {', '.join(_TABLES)}; operators of your own are for `etdev build`",
        )


def _refuse_object(source: Path) -> None:
    """Refuse an object program, because its shared state is recorded only in the sidecar and in the config."""
    if source.name.endswith(_OBJECT) and source.with_suffix(".json").exists():
        built = source.name.removesuffix(_OBJECT) + ".pte"
        raise UsageError(
            "this is an object program, which `etdev build` links",
            where=str(source),
            hint=f"link what was built from it: {built}; or change the target's memory in the config and build",
        )


def _refuse_place(target: Path, data: Sequence[Path]) -> None:
    """Refuse an output path whose name is that of another kind of file, or that is one of the data files."""
    if target.suffix in PRODUCTS and target.suffix != ".pte":
        raise UsageError(
            f"{str(target)!r} cannot be a program: {target.suffix} files are other products of builds",
            where="-o",
            hint="let it end in .pte",
        )
    if real_path(target) in set(map(real_path, data)):
        raise UsageError(f"{str(target)!r} is a file that `--data` reads", where="-o", hint="write to another file")


def _read(source: Path, data: Sequence[Path]) -> Program:
    """Return the program with its data; refuse a program with content that would be lost."""
    program = without_constant_names(read_joined(source, data)) if data else pte.read(source)
    if program.unknown_fields:
        lost = ", ".join(program.unknown_fields)
        raise ProgramError(
            f"the file has what this version of etdev does not know and would lose: {lost}",
            where=str(source),
            hint="use a newer etdev, or the file as it is",
        )
    return program


def _place(source: Path, error: LinkError) -> str:
    return f"{source}, {error.where}" if error.where else str(source)


def _write(program: Program, linked: Linked, target: Path, source: Path | None) -> tuple[Finding, int | None]:
    """Write the program, check the written file and move it to ``target``; return the check and the size in bytes.

    ``source`` is the file that has all of ``program``. If the link changed nothing, its bytes are copied.
    """
    with atomic_path(target) as place:
        try:
            if source is not None and linked.program == program:
                with source.open("rb") as file, place.open("wb") as copy:
                    shutil.copyfileobj(file, copy)
            else:
                pte.write(linked.program, place)
        except WriteError as error:
            raise WriteError(error.message, where=str(target), hint=error.hint) from error
        if place == target:  # A target such as a pipe cannot be replaced or read again.
            return _check(linked.program, program, linked.methods, target), None
        return _check(pte.read(place), program, linked.methods, target), place.stat().st_size


def _check(written: Program, before: Program, reports: Sequence[MethodReport], target: Path) -> Finding:
    """Check the new plans in the written program.

    Kept plans are not checked: they come from another toolchain, and the link has read them already.
    """
    new = {report.name: report for report in reports if report.kept is None}
    if not new:
        return Finding("not run", "no method has a new plan")
    inputs = {
        plan.name: {new[plan.name].renumbered[position]: count for position, count in delegate_inputs(plan).items()}
        for plan in before.execution_plan
        if plan.name in new
    }
    planned = tuple(plan for plan in written.execution_plan if plan.name in new)
    check = check_memory_plan(replace(written, execution_plan=planned), inputs)
    if check.status == "failed":
        raise LinkError(
            f"the new plan is wrong, so nothing was written: {check.summary}",
            where=str(target),
            hint="this is a bug in etdev: please report it with the file",
        )
    return check


def _changes(program: Program, linked: Linked) -> tuple[MethodChange, ...]:
    plans = zip(program.execution_plan, linked.program.execution_plan, linked.methods, strict=True)
    return tuple(_change(before, after, report) for before, after, report in plans)


def _change(before: ExecutionPlan, after: ExecutionPlan, report: MethodReport) -> MethodChange:
    return MethodChange(
        name=before.name,
        before=planned_buffers(before),
        after=report.buffers,
        instructions_before=len(before.instructions),
        instructions_after=len(after.instructions),
        copies=count_copies(report.elisions),
        inplace=count_inplace(report.inplace),
        copy_decisions=report.elisions,
        inplace_decisions=report.inplace,
        kept=report.kept,
    )
