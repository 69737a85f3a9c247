"""The link: turn a program into an equivalent one with new addresses and fewer copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from etdev.decisions import Elision, InPlace
from etdev.linker.devices.strip import device_copies
from etdev.linker.edit import aliases_first, without_unused
from etdev.linker.keep import kept_report, methods_with_smaller_plans
from etdev.linker.layout import assign_addresses
from etdev.linker.options import Linked, LinkOptions, MethodReport
from etdev.linker.passes import run_passes
from etdev.linker.start import methods_to_keep, start
from etdev.linker.work import Method, PassResult, Work
from etdev.program import Program
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.constants import Run, constant_count, constants_size, with_constants
from etdev.program.footprint import planned_memory
from etdev.program.info import BufferInfo
from etdev.program.sidecar import Sidecar


def link(program: Program, options: LinkOptions | None = None, sidecar: Sidecar | None = None) -> Linked:
    """Remove copies from every method and plan the method's memory again.

    If ``sidecar`` is given, the program must be the object program of that sidecar. Otherwise, the program may come
    from any toolchain, and the linker recovers its storages from its plan. A method keeps its plan if the file lacks
    facts that planning needs. The report then states the reason.

    Raises :class:`~etdev.errors.LinkError` if the program reads values after overwriting them, or if the link cannot
    satisfy ``options``.
    """
    options = options or LinkOptions()
    kept = {**options.keep, **methods_to_keep(program, sidecar)}
    numbers = [index for index, plan in enumerate(program.execution_plan) if plan.name not in kept]
    work = start(program, numbers, options, sidecar)
    candidates = [with_addresses(result, numbers, options) for result in _candidates(work, options)]
    linked, result, buffers = min(candidates, key=lambda found: _size(found[0]))
    reports = [kept_report(plan, kept.get(plan.name)) for plan in program.execution_plan]
    for number, index in enumerate(numbers):
        reports[index] = _report(result, number, program.execution_plan[index], buffers[number])
    return Linked(
        linked,
        tuple(reports),
        options.planner_name or str(options.planner),
        tuple(sorted(item.name for item in work.state if item.shared)),
    )


def link_foreign(program: Program, options: LinkOptions | None = None) -> Linked:
    """Link a program of any toolchain. A method keeps its original plan if the new plan needs more memory.

    Raises the same errors as :func:`link`.
    """
    options = options or LinkOptions()
    linked = link(program, options)
    keep = methods_with_smaller_plans(program, linked)
    if not keep:
        return linked
    # Methods that share state share it with the kept plans too.
    return replace(link(program, replace(options, keep={**options.keep, **keep})), shared_state=linked.shared_state)


def _candidates(work: Work, options: LinkOptions) -> Iterator[PassResult]:
    """Yield the results of the passes with up to four settings. The caller selects the smallest program.

    A view of a value that may be one of several tensors keeps all of these tensors in use. So the view may cost more
    memory than the copy that it replaces. A constant that is in the file twice may cost more than the memory that it
    saves. If the first result has such a view or constant, results without them follow.
    """
    first = run_passes(work, options)
    yield first
    views = any(
        isinstance(item, Elision) and item.action == "view" for decisions in first.decisions for item in decisions
    )
    grown = any(method.grown for method in first.work.methods)
    for merged, growth in ((False, True), (True, False), (False, False)):
        allowed = merged <= options.merged_views and growth <= options.growth
        if allowed and (merged or views) and (growth or grown):
            yield run_passes(work, replace(options, merged_views=merged, growth=growth))


def with_addresses(
    result: PassResult, numbers: Sequence[int], options: LinkOptions
) -> tuple[Program, PassResult, list[tuple[BufferInfo, ...]]]:
    """Return the program with addresses, the unchanged ``result``, and each method's buffers."""
    program, methods = result.work.program, result.work.methods
    alone = sum(1 for plan in program.execution_plan if any(plan.non_const_buffer_sizes)) < 2
    found = assign_addresses(methods, result.work.state, options, alone=alone)
    plans = {
        index: without_unused(plan, aliases_first(plan, method.memory, method.neighbors) if plan.delegates else None)
        for index, method, (plan, _) in zip(numbers, methods, found, strict=True)
    }
    return _with_plans(program, plans, methods), result, [buffers for _, buffers in found]


def _report(result: PassResult, number: int, plan: m.ExecutionPlan, buffers: tuple[BufferInfo, ...]) -> MethodReport:
    """Return the report on method ``number`` of ``result``. ``plan`` is the method before the link."""
    # The linker makes copies between host and devices again, so decisions about the original ones do not apply.
    copies = device_copies(plan)
    found = [item for item in result.decisions[number] if item.instruction not in copies]
    elisions = (item for item in found if isinstance(item, Elision))
    inplace = (item for item in found if isinstance(item, InPlace))
    return MethodReport(
        plan.name,
        buffers,
        tuple(sorted(elisions, key=lambda item: item.instruction)),
        tuple(sorted(inplace, key=lambda item: (item.instruction, item.output))),
        result.moved[number] or {},
    )


def _with_plans(program: Program, plans: Mapping[int, m.ExecutionPlan], methods: Sequence[Method]) -> Program:
    """Return the program with the linked methods, and with the constants that passes added."""
    found = list(program.execution_plan)
    added: dict[Blob | Run, int] = {}
    count = constant_count(program)
    for (index, plan), method in zip(plans.items(), methods, strict=True):
        numbers = [count + added.setdefault(item, len(added)) for item in method.added]
        found[index] = _with_constants_at(plan, count, numbers) if numbers else plan
    program = replace(program, execution_plan=tuple(found))
    return with_constants(program, tuple(added)) if added else program


def _with_constants_at(plan: m.ExecutionPlan, count: int, numbers: Sequence[int]) -> m.ExecutionPlan:
    values = list(plan.values)
    for index, tensor in plan.tensors():
        if tensor.is_constant and tensor.data_buffer_idx >= count:
            values[index] = replace(tensor, data_buffer_idx=numbers[tensor.data_buffer_idx - count])
    return replace(plan, values=tuple(values))


def _size(program: Program) -> int:
    """Return the size of planned memory and constants in bytes."""
    return sum(planned_memory(program).values()) + constants_size(program)
