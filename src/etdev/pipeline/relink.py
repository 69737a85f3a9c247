"""Relink of a ``.pte`` to a ``.pte`` that needs less memory, for ``etdev relink``.

This module needs neither torch nor executorch, and runs no code of a project.
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
from etdev.data_stack import with_room
from etdev.decisions import ALL_ELISIONS, Elision, ElisionKind, InPlace, Reordering
from etdev.errors import CapacityError, LinkError, ProgramError, UnlinkableError, UsageError
from etdev.files import atomic_path, real_path
from etdev.linker import Linked, LinkOptions, link_foreign
from etdev.linker.options import MethodReport
from etdev.linker.planners import get_planner
from etdev.pipeline.relink_arguments import TABLES, check_arguments, parse_banks
from etdev.pipeline.results.decision_counts import KINDS, CopiesOfKind, InPlaceOutputs, count_copies, count_inplace
from etdev.pipeline.stages.link.proof import compare_link, summarize_proof, wrong_link
from etdev.program import Program
from etdev.program.bank_report import BankReport
from etdev.program.constants import constants_size
from etdev.program.data_files.external import without_constant_names
from etdev.program.data_files.joined import DataArgument, data_paths, read_joined
from etdev.program.data_files.lookups import missing_data
from etdev.program.delegates import delegate_inputs
from etdev.program.footprint import planned_buffers, planned_memory
from etdev.program.info import BufferInfo
from etdev.program.model import ExecutionPlan
from etdev.program.writer import write_into
from etdev.validator import Correspondence, ValidationReport, validate_file, validate_link
from etdev.verification.answers import Finding
from etdev.verification.checks.plan import check_memory_plan

FORMAT = 1
_DEFAULT_ALIGNMENT = 16
_OBJECT = ".object.pte"


@dataclass(frozen=True, slots=True)
class MethodChange:
    """The changes that a relink made to one method."""

    name: str
    before: tuple[BufferInfo, ...]
    """Planned buffers of the method in the input file."""
    after: tuple[BufferInfo, ...]
    """Planned buffers of the method in the output file.

    If the method kept its old plan, the lower bounds on the sizes are unknown.
    """
    instructions_before: int
    instructions_after: int
    copies: tuple[CopiesOfKind, ...]
    """Numbers of removed and kept copies, by kind."""
    inplace: InPlaceOutputs
    """Counts of the linker's decisions on outputs in place."""
    copy_decisions: tuple[Elision, ...]
    """The linker's decision on each copy, in the order of the copies in the input file."""
    inplace_decisions: tuple[InPlace, ...]
    """The linker's decisions on outputs that may be written over an operand, in the order of the input file."""
    kept: str | None
    """Reason why the method kept its plan; None if the method has a new plan."""
    order: Reordering | None
    """New order of the instructions; None if they are in the order of the input file."""


@dataclass(frozen=True, slots=True)
class RelinkResult:
    """The result of a relink; ``before`` and ``after`` refer to the input file and the output file."""

    format: int
    input: str
    output: str
    planner: str
    alignment: int
    """Alignment in bytes of each storage."""
    elide: tuple[ElisionKind, ...]
    """Kinds of copies that the caller requested to remove."""
    inplace: str
    """Value of the argument ``inplace``: ``default`` or ``none``."""
    order: str
    """Value of the argument ``order``: ``auto`` or ``as-is``."""
    size_before: int
    """Bytes of the input file."""
    size_after: int | None
    """Bytes of the output file; None if the file cannot be read again, such as a pipe or ``/dev/null``."""
    memory_before: dict[str, int]
    """Planned bytes by device: the sum over planned buffers, each at its largest size in any method."""
    memory_after: dict[str, int]
    banks: BankReport | None
    """Use of the banks; None if the program has no banks, or if its methods kept their plans."""
    constants_before: int
    """Bytes of constants in the input program."""
    constants_after: int
    """Bytes of constants in the output program.

    The number grows if the relink removes copies of constants. The results of these copies are then in the file.
    """
    methods: tuple[MethodChange, ...]
    shared_state: tuple[str, ...]
    """Names of states that several methods share; the program's loader must give all methods the same buffers."""
    data: tuple[str, ...]
    """Data files whose content is now in the program."""
    external_data: tuple[str, ...]
    """Names of data that the program needs from other files; the relink does not change these files.

    The list covers data of tensors. It covers data of a delegate only if the delegate's blob shows the names.
    """
    plan: Literal["passed", "not run"]
    """Result of the check of the new plans. The check reads the plans from the output file."""
    plan_summary: str
    """Findings of the check of the new plans, or the reason why it did not run."""

    def to_json(self) -> str:
        """Return the versioned document of ``etdev relink --output json``."""
        return json.dumps(asdict(self), indent=2)


@with_room
def relink(
    file: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    data: DataArgument = (),
    planner: str = "best",
    alignment: int | None = None,
    elide: Collection[str] = ALL_ELISIONS,
    inplace: str = "default",
    order: str = "auto",
    banks: Sequence[str] = (),
) -> RelinkResult:
    """Plan the memory of a ``.pte`` from any toolchain again, with fewer copies and more outputs in place.

    ``output`` may be the same path as ``file``. The output is replaced atomically. ``data`` are the program's ``.ptd``
    files, whose content is copied to the output. If ``data`` is empty, external data stays outside the output.

    ``planner`` is ``best``, ``greedy``, ``naive`` or a name that another package registers. ``alignment`` is in bytes,
    a power of two, 16 by default. ``elide`` are the kinds of copies to remove, by default all: ``views``, ``slices``,
    ``cat``, ``write_back``, ``constants``. ``inplace`` selects a table of kernels that may write over an operand:
    ``default`` is etdev's own table, ``none`` is empty. With the ``order`` ``auto``, instructions move if the program
    then needs less memory. With ``as-is``, they keep their order. ``banks`` are memory banks in order of preference,
    each as ``name:id:size[:alignment]``. Without ``banks``, the banks of the file remain and do not grow.

    With ``best`` and without ``alignment`` and ``banks``, a method keeps its old plan if the new plan needs more
    memory. If state has a separate buffer, all methods get new plans, or all keep their old plans.

    Raises :class:`~etdev.errors.ProgramError` for a file that is malformed or has content that this version would lose.
    Raises the subclass :class:`~etdev.errors.UnlinkableError` for a program that overwrites a value and then reads it.
    Raises :class:`~etdev.errors.CapacityError` if the tensors do not fit into ``banks``. Raises
    :class:`~etdev.errors.WriteError` if writing fails, and :class:`~etdev.errors.UsageError` for invalid arguments.
    """
    options = _options(planner, alignment, elide, inplace, order, banks)
    source, target, files = Path(file), Path(output), data_paths(data)
    _refuse_place(target, files)
    program, size_before = _read(source, files), source.stat().st_size
    # A caller that chooses a planner or an alignment gets a new plan, even if the old plan is smaller.
    linked = _linked(program, options, source, keep=planner == "best" and alignment is None)
    proof = _prove(program, linked, source, target)
    check, size_after = _write(program, linked, target, None if files else source)
    return RelinkResult(
        format=FORMAT,
        input=str(source),
        output=str(target),
        planner=planner,
        alignment=options.alignment,
        elide=tuple(kind for kind in KINDS if kind in options.elide),
        inplace=inplace,
        order=order,
        size_before=size_before,
        size_after=size_after,
        memory_before=planned_memory(program),
        memory_after=planned_memory(linked.program),
        banks=linked.banks,
        constants_before=constants_size(program),
        constants_after=constants_size(linked.program),
        methods=_changes(program, linked),
        shared_state=linked.shared_state,
        data=tuple(map(str, files)),
        external_data=tuple(sorted(missing.name for missing in missing_data(program))),
        plan="passed" if check.status == "passed" else "not run",
        plan_summary=f"{summarize_proof(proof)}; {check.summary}" if check.status == "passed" else check.summary,
    )


def _options(
    planner: str, alignment: int | None, elide: Collection[str], inplace: str, order: str, banks: Sequence[str]
) -> LinkOptions:
    """Return the link's options for the arguments of :func:`relink`. Raise an error for an invalid argument."""
    check_arguments(planner, alignment, inplace, order)
    kinds = check_kinds(elide, "elide")
    given = parse_banks(banks, alignment or _DEFAULT_ALIGNMENT)
    return LinkOptions(
        planner=get_planner(planner),
        planner_name=planner,
        alignment=alignment or _DEFAULT_ALIGNMENT,
        elide=frozenset(kinds),
        inplace=TABLES[inplace],
        reorder=order == "auto",
        banks=given,
    )


def _linked(program: Program, options: LinkOptions, source: Path, *, keep: bool) -> Linked:
    """Return the program with new plans.

    With ``keep``, a method keeps its old plan if the new plan needs more memory.
    """
    try:
        return link_foreign(program, options, keep_smaller=keep)
    except CapacityError as error:
        from etdev.lowering.tileable import calls_tileable_kernels  # Only this error needs the rules of tiling.

        may_tile = not error.at_delegate and calls_tileable_kernels(program)
        tile = ("build the program from its model with `memory.tiling`",) * may_tile
        raise error.with_remedies([*error.remedies, *tile], "--bank") from error
    except LinkError as error:
        raise UnlinkableError(error.message, where=_place(source, error), hint=error.hint) from error


def check_kinds(names: Collection[str], where: str) -> tuple[ElisionKind, ...]:
    """Return the kinds of copies that ``names`` selects, in the order in which reports list them.

    A string is one name; ``all`` means all kinds. Raises :class:`~etdev.errors.UsageError`, with the location
    ``where``, for an unknown name.
    """
    names = {names} if isinstance(names, str) else set(names)
    known = (*KINDS, "all")
    for name in sorted(names - {*known}, key=str):
        meant = nearest(name, known) if isinstance(name, str) else None
        hint = f"did you mean `{meant}`?" if meant else f"one of: {', '.join(known)}"
        raise UsageError(f"unknown kind of copies {name!r}", where=where, hint=hint)
    return tuple(kind for kind in KINDS if kind in names or "all" in names)


def _prove(program: Program, linked: Linked, source: Path, target: Path) -> ValidationReport:
    """Prove that the link did not change the results of the program; raise an error otherwise.

    If the input program's results are undefined, the error is about the input file, not about the link.
    """
    inputs = {plan.name: delegate_inputs(program, plan) for plan in program.execution_plan}
    found = compare_link(program, linked, inputs, foreign=True)
    for violation in found.violations:
        if reason := _why_unclear(program, inputs, violation.method):
            hint = (
                "its behavior is undefined: build the file again from its model with etdev, or report this "
                "and attach the file"
            )
            raise UnlinkableError(reason, where=str(source), hint=hint)
        raise wrong_link(violation, str(target))
    return found


def _why_unclear(program: Program, inputs: Mapping[str, Mapping[int, int]], method: str) -> str | None:
    """Return the reason why a method's result is undefined; None if it is defined.

    The result is undefined if the method reads bytes that were overwritten or never written.
    """
    alone = validate_file(program, inputs)
    for violation in (*alone.violations, *alone.never_written, *alone.overlapping):
        if violation.method == method:
            return violation.message
    for item in alone.not_validated:
        if item.method == method:
            return f"method {item.method!r} cannot be analyzed: {item.reason}"
    same = {}
    for plan in program.execution_plan:
        same[plan.name] = Correspondence({at: at for at in range(len(plan.instructions))}, inputs.get(plan.name, {}))
    # If there are violations here, the program does not even match itself.
    for violation in validate_link(program, program, same, foreign=True).violations:
        if violation.method == method:
            return f"method {violation.method!r} depends on a value that no instruction sets"
    return None


def _refuse_object(source: Path) -> None:
    """Raise an error for an object program.

    Such a program does not record which state is shared; only its sidecar and its config do.
    """
    if source.name.endswith(_OBJECT) and source.with_suffix(".json").exists():
        built = source.name.removesuffix(_OBJECT) + ".pte"
        raise UsageError(
            "this is an object program; only `etdev build` can link it",
            where=str(source),
            hint=f"relink the program that was built from it: {built}; or change the target's memory settings in "
            "the config and build",
        )


def _refuse_place(target: Path, data: Sequence[Path]) -> None:
    """Raise an error if the output path is one of the data files, or has the suffix of another kind of file."""
    if target.suffix in PRODUCTS and target.suffix != ".pte":
        raise UsageError(
            f"{str(target)!r} cannot be the output program: etdev uses the suffix "
            f"{target.suffix} for other kinds of files",
            where="-o",
            hint="use a name that ends in .pte",
        )
    if real_path(target) in set(map(real_path, data)):
        raise UsageError(
            f"{str(target)!r} is a file that `--data` reads", where="-o", hint="write the output to another file"
        )


def _read(source: Path, data: Sequence[Path]) -> Program:
    """Return the program with its data.

    Raise an error for an object program, and for a file with content that a relink would lose.
    """
    _refuse_object(source)
    program = without_constant_names(read_joined(source, data)) if data else pte.read(source)
    if program.unknown_fields:
        lost = ", ".join(program.unknown_fields)
        raise ProgramError(
            f"the file has content that this version of etdev does not know and would lose: {lost}",
            where=str(source),
            hint="use a newer version of etdev, or use the file without a relink",
        )
    return program


def _place(source: Path, error: LinkError) -> str:
    return f"{source}, {error.where}" if error.where else str(source)


def _write(program: Program, linked: Linked, target: Path, source: Path | None) -> tuple[Finding, int | None]:
    """Write the program, check the written file and move it to ``target``; return the check and the size in bytes.

    ``source`` is a file that contains the whole program, or None. If the link changed nothing, copy the bytes of
    ``source``.
    """
    with atomic_path(target) as place:
        if source is not None and linked.program == program:
            with source.open("rb") as file, place.open("wb") as copy:
                shutil.copyfileobj(file, copy)
        else:
            write_into(linked.program, place)
        if place == target:  # A pipe or a similar target cannot be replaced or read again.
            return _check(linked.program, program, linked.methods, target), None
        return _check(pte.read(place), program, linked.methods, target), place.stat().st_size


def _check(written: Program, before: Program, reports: Sequence[MethodReport], target: Path) -> Finding:
    """Check the new plans in the written program, and raise an error if a plan is wrong.

    Plans that methods kept are not checked: another toolchain made them, and the linker found no error in them.
    """
    new = {report.name: report for report in reports if report.kept is None}
    if not new:
        return Finding("not run", "no method has a new plan")
    inputs = {
        plan.name: {
            new[plan.name].renumbered[position]: count for position, count in delegate_inputs(before, plan).items()
        }
        for plan in before.execution_plan
        if plan.name in new
    }
    planned = tuple(plan for plan in written.execution_plan if plan.name in new)
    check = check_memory_plan(replace(written, execution_plan=planned), inputs)
    if check.status == "failed":
        raise LinkError(
            f"the new plan is wrong, so nothing was written: {check.summary}",
            where=str(target),
            hint="this is a bug in etdev: please report it and attach the file",
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
        order=report.order,
    )
