"""A smaller ``.pte`` from any ``.pte``: ``etdev relink``. Needs neither torch nor executorch, runs nobody's code."""

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
from etdev.pipeline.decisions import KINDS, CopiesOfKind, InPlaceOutputs, count_copies, count_inplace
from etdev.pipeline.proof import compare_link, summarize_proof, wrong_link
from etdev.pipeline.result import CheckResult
from etdev.pipeline.verify.plan import check_memory_plan
from etdev.planner import PLANNERS
from etdev.program import Program
from etdev.program.constants import constants_size
from etdev.program.delegates import delegate_inputs
from etdev.program.external import without_constant_names
from etdev.program.footprint import planned_memory
from etdev.program.inplace import DEFAULT
from etdev.program.joined import DataArgument, data_paths, read_joined
from etdev.program.lookups import missing_data
from etdev.program.model import ExecutionPlan
from etdev.validator import Correspondence, ValidationReport, validate_file, validate_link

FORMAT = 1
_DEFAULT_ALIGNMENT = 16
_OBJECT = ".object.pte"
_TABLES = {"default": DEFAULT, "none": {}}
"""What may be written in place, by the names that a caller gives."""


@dataclass(frozen=True, slots=True)
class BufferChange:
    """A planned buffer of a method, in both files."""

    index: int
    """Its ``memory_id``."""
    device: str
    before: int
    """Bytes; 0 if there was none."""
    after: int
    """Bytes; 0 if there is none any more."""
    lower_bound: int | None
    """Bytes below which no plan of the same tensors gets; None in a method that kept its plan."""
    state: bool
    """Whether it now holds what is kept between calls, and nothing else."""


@dataclass(frozen=True, slots=True)
class MethodChange:
    """What became of a method."""

    name: str
    buffers: tuple[BufferChange, ...]
    instructions_before: int
    instructions_after: int
    copies: tuple[CopiesOfKind, ...]
    """What became of the copies that were looked at, by kind."""
    inplace: InPlaceOutputs
    """What became of the outputs that may be written over an operand."""
    copy_decisions: tuple[Elision, ...]
    """One for each of ``copies``, by position in the file before."""
    inplace_decisions: tuple[InPlace, ...]
    """One for each of ``inplace``, by position in the file before."""
    kept: str | None
    """Why the method has the plan that it came with, if it has."""

    @property
    def before(self) -> int:
        """Bytes of all its buffers."""
        return sum(buffer.before for buffer in self.buffers)

    @property
    def after(self) -> int:
        """Bytes of all its buffers."""
        return sum(buffer.after for buffer in self.buffers)


@dataclass(frozen=True, slots=True)
class RelinkResult:
    """A file that was linked again."""

    format: int
    input: str
    output: str
    planner: str
    alignment: int
    """Of each tensor's place, or of the first one of those that lie in the same bytes; in bytes."""
    elide: tuple[ElisionKind, ...]
    """The kinds of copies that were to be removed."""
    inplace: str
    """What was allowed to be written in place: ``default`` or ``none``."""
    size_before: int
    """Of the file, in bytes."""
    size_after: int | None
    """None if it went where nothing can be read again, into a pipe or ``/dev/null``."""
    memory_before: dict[str, int]
    """Planned bytes per device: the sum over buffers of the largest size that any method gives them."""
    memory_after: dict[str, int]
    constants_before: int
    """Bytes of constants in the program."""
    constants_after: int
    """More than before if copies of constants that were in planned memory are in the file now."""
    methods: tuple[MethodChange, ...]
    shared_state: tuple[str, ...]
    """State that several methods share; it needs a loader that gives all methods of a program the same buffers."""
    data: tuple[str, ...]
    """The data files that were put into the program."""
    external_data: tuple[str, ...]
    """Names of data in another file, which stays as it is and is needed as before: of tensors, and of delegates whose
    blobs tell what they look up."""
    plan: Literal["passed", "not run"]
    """Whether the new plan was checked, on what was written."""
    plan_summary: str
    """What was seen, or why it could not be checked."""

    def to_json(self) -> str:
        """The versioned document of ``etdev relink --output json``."""
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
    """Plan the memory of a ``.pte`` from any toolchain anew, with fewer copies and with outputs over their operands.

    ``output`` may be ``file``; it is replaced whole, or not at all. ``data`` are the ``.ptd`` files that hold data of
    the program: the output gets that data; without them it stays where it is. ``planner`` is ``best``, ``greedy`` or
    ``naive``; ``alignment`` is in bytes, a power of two, 16 by default. ``elide`` are the kinds of copies to remove,
    all of them by default: ``views``, ``slices``, ``cat``, ``write_back``, ``constants``. ``inplace`` is ``default``,
    etdev's own table of kernels that may write over an operand, or ``none``. With ``best`` and no alignment of the
    caller's, a method whose own plan needs less memory than the new one keeps it; where state lies in a buffer of its
    own, all methods keep theirs or none.

    Raises :class:`~etdev.errors.ProgramError` for a file that is malformed or has what this version would lose, its
    subclass :class:`~etdev.errors.UnlinkableError` for a program that overwrites values that it still reads,
    :class:`~etdev.errors.WriteError`, and :class:`~etdev.errors.UsageError` for arguments that do not fit.
    """
    _check_arguments(planner, alignment, inplace)
    kinds = check_kinds(elide, "elide")
    source, target, files = Path(file), Path(output), data_paths(data)
    _refuse_object(source)
    _refuse_place(target, files)
    program = without_constant_names(read_joined(source, files)) if files else pte.read(source)
    _refuse_unknown_fields(program, source)
    size_before = source.stat().st_size
    options = LinkOptions(
        planner=planner,
        alignment=alignment or _DEFAULT_ALIGNMENT,
        elide=frozenset(kinds),
        inplace=_TABLES[inplace],
    )
    # Who asks for a certain plan gets it, others the smaller one.
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


def _linked(program: Program, options: LinkOptions, source: Path, *, keep: bool) -> Linked:
    """The program with a new plan; with ``keep``, methods may keep theirs."""
    try:
        return link_foreign(program, options) if keep else link(program, options)
    except LinkError as error:
        raise UnlinkableError(error.message, where=_place(source, error), hint=error.hint) from error


def check_kinds(names: Collection[str], where: str) -> tuple[ElisionKind, ...]:
    """Kinds of copies by name, in the order in which they are reported; one text is one kind, ``all`` is all of them.

    Raises :class:`~etdev.errors.UsageError`, at ``where``, for a name that is none.
    """
    names = {names} if isinstance(names, str) else set(names)
    known = (*KINDS, "all")
    for name in sorted(names - {*known}, key=str):
        meant = nearest(name, known) if isinstance(name, str) else None
        hint = f"did you mean `{meant}`?" if meant else f"one of: {', '.join(known)}"
        raise UsageError(f"there is no kind of copies {name!r}", where=where, hint=hint)
    return tuple(kind for kind in KINDS if kind in names or "all" in names)


def _prove(program: Program, linked: Linked, source: Path, target: Path) -> ValidationReport:
    """Compare the file with what was linked from it. Nothing is written that does something else.

    What a file does that goes by what nobody wrote is a matter of chance: then it is the file that is wrong.
    """
    inputs = {plan.name: delegate_inputs(plan) for plan in program.execution_plan}
    found = compare_link(program, linked, inputs, foreign=True)
    for violation in found.violations:
        if reason := _why_unclear(program, inputs, violation.method):
            hint = (
                "what it computes cannot be told: build it again from its model with etdev, or report it with the file"
            )
            raise UnlinkableError(reason, where=str(source), hint=hint)
        raise wrong_link(violation, str(target))
    return found


def _why_unclear(program: Program, inputs: Mapping[str, Mapping[int, int]], method: str) -> str | None:
    """Why nobody can tell what a method of a file computes: what it reads was overwritten, or set by nobody."""
    alone = validate_file(program, inputs)
    for violation in (*alone.violations, *alone.never_written, *alone.overlapping):
        if violation.method == method:
            return violation.message
    for item in alone.not_validated:
        if item.method == method:
            return f"method {item.method!r} cannot be followed: {item.reason}"
    same = {}
    for plan in program.execution_plan:
        count = sum(len(chain.instructions) for chain in plan.chains)
        same[plan.name] = Correspondence({at: at for at in range(count)}, inputs.get(plan.name, {}))
    # A program that does not even do what it does itself.
    for violation in validate_link(program, program, same, foreign=True).violations:
        if violation.method == method:
            return f"method {violation.method!r} goes by what nothing has set"
    return None


def _check_arguments(planner: str, alignment: int | None, inplace: str) -> None:
    if planner not in PLANNERS:
        own = "relink runs no one's code; a planner of your own is for `etdev build`" if ":" in planner else None
        known = ", ".join(sorted(PLANNERS))
        raise UsageError(f"there is no planner {planner!r}", where="--planner", hint=own or f"one of: {known}")
    if alignment is not None and (
        not isinstance(alignment, int) or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1)
    ):
        raise UsageError(
            f"{alignment!r} bytes is no alignment",
            where="--alignment",
            hint=f"give a power of two up to {MAX_ALIGNMENT}: 16, 64, 128",
        )
    if inplace not in _TABLES:
        raise UsageError(
            f"{inplace!r} does not say what to do in place",
            where="--inplace",
            hint=f"one of: {', '.join(_TABLES)}; operators of your own are for `etdev build`",
        )


def _refuse_object(source: Path) -> None:
    """What state the methods of an object program share is in the sidecar, and in the config that it is built with."""
    if source.name.endswith(_OBJECT) and source.with_suffix(".json").exists():
        built = source.name.removesuffix(_OBJECT) + ".pte"
        raise UsageError(
            "this is an object program, which `etdev build` links",
            where=str(source),
            hint=f"link what was built from it: {built}; or change the target's memory in the config and build",
        )


def _refuse_place(target: Path, data: Sequence[Path]) -> None:
    """Refuse another product's name for a program, and the place of a data file that it is joined with."""
    if target.suffix in PRODUCTS and target.suffix != ".pte":
        raise UsageError(
            f"{str(target)!r} is the name of no program: what ends in {target.suffix} is another product of builds",
            where="-o",
            hint="let it end in .pte",
        )
    if real_path(target) in set(map(real_path, data)):
        raise UsageError(f"{str(target)!r} is what `--data` names", where="-o", hint="write to another file")


def _refuse_unknown_fields(program: Program, source: Path) -> None:
    if program.unknown_fields:
        lost = ", ".join(program.unknown_fields)
        raise ProgramError(
            f"the file has what this version of etdev does not know and would lose: {lost}",
            where=str(source),
            hint="use a newer etdev, or the file as it is",
        )


def _place(source: Path, error: LinkError) -> str:
    return f"{source}, {error.where}" if error.where else str(source)


def _write(program: Program, linked: Linked, target: Path, source: Path | None) -> tuple[CheckResult, int | None]:
    """Write the program, check what was written and only then put it in its place; also gives its size in bytes.

    ``source`` is the file that has all of ``program``: if the link changed nothing, its bytes are written.
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
        if place == target:  # It cannot be replaced, like a pipe, and not be read again.
            return _check(linked.program, program, linked.methods, target), None
        return _check(pte.read(place), program, linked.methods, target), place.stat().st_size


def _check(written: Program, before: Program, reports: Sequence[MethodReport], target: Path) -> CheckResult:
    """Check the new plans. A plan that was kept is somebody else's, and the link has read it already."""
    new = {report.name: report for report in reports if report.kept is None}
    if not new:
        return CheckResult(name="plan", status="not run", summary="no method has a new plan")
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
            hint="this is a mistake of etdev's: please report it with the file",
        )
    return check


def _changes(program: Program, linked: Linked) -> tuple[MethodChange, ...]:
    plans = zip(program.execution_plan, linked.program.execution_plan, linked.methods, strict=True)
    return tuple(_change(before, after, report) for before, after, report in plans)


def _change(before: ExecutionPlan, after: ExecutionPlan, report: MethodReport) -> MethodChange:
    reports = {buffer.index: buffer for buffer in report.buffers} if report.kept is None else {}
    sizes = [plan.non_const_buffer_sizes for plan in (before, after)]
    buffers = []
    for index in range(1, max(map(len, sizes))):
        old, new = (size[index] if index < len(size) else 0 for size in sizes)
        found = reports.get(index)
        buffers.append(
            BufferChange(
                index=index,
                device=str((after if new else before).buffer_device(index)),
                before=old,
                after=new,
                lower_bound=found.lower_bound if found else None,
                state=found is not None and found.state,
            )
        )
    return MethodChange(
        name=before.name,
        buffers=tuple(buffers),
        instructions_before=_instructions(before),
        instructions_after=_instructions(after),
        copies=count_copies(report.elisions),
        inplace=count_inplace(report.inplace),
        copy_decisions=report.elisions,
        inplace_decisions=report.inplace,
        kept=report.kept,
    )


def _instructions(plan: ExecutionPlan) -> int:
    return sum(len(chain.instructions) for chain in plan.chains)
