"""Programs inside delegates: the blob of a reference delegate is a program, which is also linked and proved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from etdev.backends.reference import DELEGATE_ID
from etdev.devices import Device
from etdev.errors import LinkError, ProgramError
from etdev.linker import LinkOptions, link_foreign
from etdev.pipeline.stages.link.proof import compare_link, wrong_link
from etdev.program import Blob, Program, parse, serialize
from etdev.program.constants import with_segment
from etdev.program.devices import delegate_device
from etdev.program.footprint import planned_memory
from etdev.program.model import (
    BackendDelegate,
    BackendDelegateDataReference,
    DataLocation,
    ExecutionPlan,
)
from etdev.units import format_size
from etdev.validator import guess_correspondences, validate_link


@dataclass(frozen=True, slots=True)
class NestedReport:
    """The result of linking the program inside one delegate."""

    method: str
    delegate: int
    """Index into the method's delegates."""
    device: Device
    before: int
    """Bytes of planned memory of the delegate's program before the link."""
    memory: int
    """Bytes of planned memory that the delegate allocates on its device, in addition to the method's own plan."""


def link_nested(program: Program, options: LinkOptions | None = None) -> tuple[Program, tuple[NestedReport, ...]]:
    """Link the program in each reference delegate with ``options``, and prove each link.

    Instructions keep their order. A later proof of the file guesses which instructions correspond to each other, and
    assumes that their order is the same.

    If several delegates refer to the same blob, the blob is linked once. Raises :class:`~etdev.errors.LinkError` if a
    blob is not a program or :func:`etdev.linker.link` fails. The message identifies the delegate.
    """
    options = replace(options or LinkOptions(), caller={}, keep={}, share_state=False, banks=None, reorder=False)
    linked: dict[BackendDelegateDataReference, tuple[Program, Program]] = {}
    reports = []
    for plan, index, delegate in reference_delegates(program):
        where = delegate.processed
        if where not in linked:
            before = nested_program(program, plan, index)
            linked[where] = before, _link(before, options, _place(plan, index))
        sizes = [sum(planned_memory(each).values()) for each in linked[where]]
        reports.append(NestedReport(plan.name, index, delegate_device(delegate), *sizes))
    for where, (_, after) in linked.items():
        program = _with_blob(program, where, Blob(serialize(after)))
    return program, tuple(reports)


def reference_delegates(program: Program) -> Iterator[tuple[ExecutionPlan, int, BackendDelegate]]:
    """Yield each delegate whose blob is a program, as a tuple (method, index in the method, delegate)."""
    for plan in program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            if delegate.id == DELEGATE_ID:
                yield plan, index, delegate


def nested_program(program: Program, plan: ExecutionPlan, index: int) -> Program:
    """Return the program in a reference delegate.

    Raises :class:`~etdev.errors.LinkError` if the delegate's blob is not a program.
    """
    try:
        return parse(program.delegate_data(plan.delegates[index]))
    except ProgramError as error:
        raise LinkError(
            f"the blob of the delegate is not a program: {error.message}",
            where=_place(plan, index),
            hint="build the file again from its model",
        ) from error


def with_nested_of(before: Program, after: Program) -> Program:
    """Replace each nested program in ``before`` by its counterpart in ``after`` if both are proved to be equivalent.

    A comparison of ``before`` and ``after`` then finds no difference in these delegates. Nested programs without a
    proof are not replaced.
    """
    for one, other in zip(before.execution_plan, after.execution_plan, strict=False):
        for index in range(min(len(one.delegates), len(other.delegates))):
            mine, theirs = one.delegates[index], other.delegates[index]
            if mine.id == theirs.id == DELEGATE_ID and before.delegate_data(mine) != after.delegate_data(theirs):
                nested = nested_program(before, one, index), nested_program(after, other, index)
                if validate_link(*nested, guess_correspondences(*nested, {}), foreign=True).proved:
                    before = _with_blob(before, mine.processed, after.delegate_data(theirs))
    return before


def device_memory(program: Program) -> dict[str, tuple[int, int]]:
    """Map each device to two sizes: the planned bytes of methods, and the planned bytes of programs in delegates.

    A blob that is not a program counts as 0.
    """
    nested: dict[str, int] = defaultdict(int)
    for plan, index, delegate in reference_delegates(program):
        with suppress(ProgramError, LinkError):
            inside = nested_program(program, plan, index)
            nested[str(delegate_device(delegate))] += sum(planned_memory(inside).values())
    planned = planned_memory(program)
    return {device: (planned.get(device, 0), nested.get(device, 0)) for device in (*planned, *nested)}


def memory_by_device(reports: Sequence[NestedReport]) -> dict[str, int]:
    """Return the bytes that delegates allocate for their programs, by device.

    Each delegate has its own memory, so the result is a sum over all delegates.
    """
    found: dict[Device, int] = defaultdict(int)
    for report in reports:
        found[report.device] += report.memory
    return {str(device): size for device, size in sorted(found.items())}


def describe_nested(reports: Sequence[NestedReport]) -> Iterator[str]:
    """Yield a note on reference delegates, if there are any.

    The note states the memory of the delegates, and lists the commands and checks that can run them.
    """
    if reports:
        sizes = ", ".join(f"{format_size(size)} on {device}" for device, size in memory_by_device(reports).items())
        calls = f"{len(reports)} delegates" if len(reports) > 1 else "a delegate"
        yield (
            f"programs in {calls} of the backend 'reference' need {sizes} in addition to the plan; only "
            "`etdev run` and the checks `replay` and `native` run them, because the backend is etdev's own"
        )


def _link(program: Program, options: LinkOptions, where: str) -> Program:
    try:
        linked = link_foreign(program, options)
    except LinkError as error:
        place = f"{where}, {error.where}" if error.where else where
        raise LinkError(error.message, where=place, hint=error.hint) from error
    for violation in compare_link(program, linked, {}, foreign=True).violations:
        raise wrong_link(violation, where)
    return linked.program


def _place(plan: ExecutionPlan, index: int) -> str:
    return f"method {plan.name!r}, delegate {index}"


def _with_blob(program: Program, where: BackendDelegateDataReference, blob: Blob) -> Program:
    if where.location is DataLocation.SEGMENT:
        return replace(program, segments=with_segment(program, where.index, blob))
    inline = list(program.backend_delegate_data)
    inline[where.index] = blob
    return replace(program, backend_delegate_data=tuple(inline))
