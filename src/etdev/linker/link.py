"""The link: turn a program into an equivalent one with new addresses and fewer copies."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from etdev.decisions import Elision, ElisionKind, InPlace, Reordering
from etdev.errors import BanksError, CapacityError, LinkError
from etdev.linker.devices.strip import device_copies
from etdev.linker.edit import aliases_first, without_unused
from etdev.linker.enlarge import sizes_that_suffice
from etdev.linker.file_banks import file_banks
from etdev.linker.keep import kept_report, methods_with_smaller_plans
from etdev.linker.layout import assign_addresses
from etdev.linker.options import Linked, LinkOptions, MethodReport
from etdev.linker.passes import AFTER_ORDER, BEFORE_ORDER, ORDER, run_more, run_passes
from etdev.linker.start import methods_to_keep, start
from etdev.linker.work import Method, PassResult, Work
from etdev.program import Program
from etdev.program import model as m
from etdev.program.bank_report import BankReport
from etdev.program.blob import Blob
from etdev.program.constants import Run, constant_count, constants_size, with_constants
from etdev.program.footprint import planned_memory
from etdev.program.info import BufferInfo
from etdev.program.sidecar import Sidecar


def link(
    program: Program, options: LinkOptions | None = None, sidecar: Sidecar | None = None, *, compare: str | None = None
) -> Linked:
    """Remove copies from every method and plan the method's memory again.

    If ``sidecar`` is given, the program must be the object program of that sidecar. Otherwise, the program may come
    from any toolchain, and the linker recovers the storages from the existing memory plan. A method keeps its plan if
    the file lacks facts that planning needs. The report then states the reason.

    ``compare`` is the name of another planner. Without banks, the result also states the sizes with this planner.

    Raises :class:`~etdev.errors.LinkError` if the program reads values after overwriting them, or if the link cannot
    satisfy ``options``.
    """
    options = options or LinkOptions()
    kept = {**options.keep, **methods_to_keep(program, sidecar)}
    numbers = [index for index, plan in enumerate(program.execution_plan) if plan.name not in kept]
    work = start(program, numbers, options, sidecar)
    results = list(_candidates(work, options)) if options.banks is None else []
    found = _smallest(results, numbers, options) if results else _cheapest(work, numbers, options)
    linked, result, buffers = found.program, found.result, found.buffers
    reports = [kept_report(plan, kept.get(plan.name)) for plan in program.execution_plan]
    for number, index in enumerate(numbers):
        report = _report(result, number, program.execution_plan[index], buffers[number])
        reports[index] = replace(report, order=_reordering(found, number))
    compared = {}
    if results and compare is not None:
        compared = _sizes(reports, results, numbers, replace(options, planner=compare, planner_name=None))
    return Linked(
        linked,
        tuple(reports),
        options.planner_name or str(options.planner),
        tuple(sorted(item.name for item in work.state if item.shared)),
        found.banks,
        compared,
    )


def _sizes(
    reports: Sequence[MethodReport], results: Sequence[PassResult], numbers: Sequence[int], options: LinkOptions
) -> dict[str, dict[int, int]]:
    """Return the buffer sizes with the planner in ``options``: for each method, a map from buffers to sizes in bytes.

    ``reports`` are the reports of the link, which used another planner. If the link kept the order of instructions,
    consider only results with the original order.
    """
    reordered = any(report.order is not None for report in reports)
    found = _smallest([each for each in results if reordered or not _is_reordered(each)], numbers, options)
    buffers = [report.buffers for report in reports]
    for number, index in enumerate(numbers):
        buffers[index] = found.buffers[number]
    return {
        report.name: {item.index: item.size for item in items} for report, items in zip(reports, buffers, strict=True)
    }


_MOST_ORDERS = 2
"""Maximum number of searches for an order of instructions. Each search starts with the previous one's order."""
_MOST_SEARCHED_AGAIN = 5_000
"""Maximum number of instructions in a program that gets more than one search for an order."""


@dataclass(frozen=True, slots=True)
class Addressed:
    """A candidate for the result of a link: a program whose tensors have addresses."""

    program: Program
    result: PassResult
    """Result of the passes, still without addresses."""
    buffers: list[tuple[BufferInfo, ...]]
    """Buffers of each method."""
    banks: BankReport | None
    """Use of the banks; None if there are no banks."""
    as_is: list[tuple[BufferInfo, ...]] | None = None
    """Buffers of each method with the original order of instructions; None if the tensors do not fit in that order."""

    @property
    def reordered(self) -> bool:
        """Return whether instructions of a method are in a new order."""
        return _is_reordered(self.result)


def _is_reordered(result: PassResult) -> bool:
    """Return whether the passes put instructions of a method in a new order."""
    return any(method.reordered for method in result.work.methods)


def _best(found: Sequence[Addressed], key: Callable[[Addressed], tuple[float, ...]]) -> Addressed:
    """Return the candidate with the lowest key. If keys are equal, prefer the original order of instructions."""
    as_is = min((each for each in found if not each.reordered), key=key, default=None)
    best = min(found, key=lambda each: (key(each), each.reordered))
    return replace(best, as_is=as_is.buffers if as_is else None)


def _smallest(results: Sequence[PassResult], numbers: Sequence[int], options: LinkOptions) -> Addressed:
    """Return the candidate with the fewest bytes of planned memory and constants."""
    found = [with_addresses(result, numbers, options) for result in results]
    return _best(found, lambda each: (_size(each.program),))


def _cheapest(work: Work, numbers: Sequence[int], options: LinkOptions) -> Addressed:
    """Return the candidate whose traffic costs least in the banks.

    Storages that share bytes are in one bank. So sharing may force a large storage into a slow bank, although its parts
    would fit into a fast one. If the fastest bank does not hold everything, the function also tries candidates in which
    fewer storages share bytes.

    If no candidate fits, raise the error of the first candidate, with bank sizes that would suffice.
    """
    found, errors = _fitting(work, numbers, options)
    if found:
        return _best(found, _banks_cost)
    error, banks = errors[0], options.banks
    if not isinstance(error, CapacityError) or banks is None or banks.share_most:
        raise error
    sizes = sizes_that_suffice(banks, lambda other: _used(work, numbers, replace(options, banks=other)))
    larger = [f"enlarge bank {name!r} to {size:,} bytes" for name, size in sizes] or ["enlarge several banks"]
    raise error.with_remedies((*larger, *error.remedies)) from error


def _used(work: Work, numbers: Sequence[int], options: LinkOptions) -> list[int] | None:
    """Return the bytes that a link uses in each bank, or None if no candidate fits or a planner fails."""
    try:
        found, _ = _fitting(work, numbers, options)
    except LinkError:
        return None
    report = found[0].banks if found else None
    return [bank.used for bank in report.banks] if report else None


def _fitting(work: Work, numbers: Sequence[int], options: LinkOptions) -> tuple[list[Addressed], list[BanksError]]:
    """Return the candidates that fit into the banks, and the errors of all other candidates."""
    found: list[Addressed] = []
    errors: list[BanksError] = []
    for less in _SHARE_LESS:
        fewer = replace(options, elide=options.elide - less.keeps, inplace={} if less.no_reuse else options.inplace)
        for result in _candidates(work, fewer):
            try:
                found.append(with_addresses(result, numbers, fewer))
            except BanksError as error:
                errors.append(error)
        share_most = options.banks is not None and options.banks.share_most
        if (found and share_most) or any(_is_least(each.banks) for each in found):
            break
    return found, errors


@dataclass(frozen=True, slots=True)
class _Less:
    """Restrictions on the sharing of bytes. With less sharing, more tensors may fit into fast banks."""

    keeps: frozenset[ElisionKind] = frozenset()
    """Kinds of copies that this link does not remove."""
    no_reuse: bool = False
    """True if no output reuses the bytes of an operand."""


_SHARE_LESS = (
    _Less(),
    _Less(frozenset({"cat"})),
    _Less(frozenset({"cat", "slices"})),
    _Less(no_reuse=True),
    _Less(frozenset({"cat", "slices", "views"}), no_reuse=True),
)


def _is_least(report: BankReport | None) -> bool:
    """Return whether all traffic is in the cheapest banks."""
    assert report is not None
    least = min(bank.cost for bank in report.banks)
    return all(bank.cost == least or not bank.traffic for bank in report.banks)


def _banks_cost(found: Addressed) -> tuple[float, ...]:
    """Return the figures to minimize, in order: cost of traffic, used bytes of each bank, bytes of constants."""
    assert found.banks is not None
    return found.banks.cost, *(bank.used for bank in found.banks.banks), constants_size(found.program)


def link_foreign(program: Program, options: LinkOptions | None = None, *, keep_smaller: bool = True) -> Linked:
    """Link a program of any toolchain.

    A program with temporaries in several buffers on the host keeps these buffers as its banks. A bank grows only
    if the tensors do not fit otherwise. ``options.banks`` replaces the banks of the program. If ``keep_smaller``
    is True and ``options`` has no banks, a method keeps its original plan if the new plan needs more memory.

    Raises the same errors as :func:`link`. Raises :class:`~etdev.errors.LinkError` if ``options`` has banks, and a
    method must keep its plan.
    """
    options = options or LinkOptions()
    if options.banks is not None:
        for method, reason in methods_to_keep(program, None).items():
            raise LinkError(
                f"the method's tensors cannot be placed in banks, because the method must keep its plan: {reason}",
                where=f"method {method!r}",
                hint="relink the file without `--bank`",
            )
        return link(program, options)
    linked = _in_own_banks(program, options) or link(program, options)
    keep = methods_with_smaller_plans(program, linked) if keep_smaller else {}
    if not keep:
        return linked
    # Methods that share state share it with the kept plans too.
    return replace(link(program, replace(options, keep={**options.keep, **keep})), shared_state=linked.shared_state)


def _in_own_banks(program: Program, options: LinkOptions) -> Linked | None:
    """Return the program with new plans in its own banks; None if it has no banks, or if a bank would have to grow."""
    if methods_to_keep(program, None):
        return None
    banks = file_banks(program)
    if banks is None:
        return None
    try:
        return link(program, replace(options, banks=banks))
    except BanksError:  # Tensors do not fit, or arguments of delegates in different banks share bytes.
        return None


def _candidates(work: Work, options: LinkOptions) -> Iterator[PassResult]:
    """Yield the results of the passes with up to four settings. Then yield results with better instruction orders.

    A view of a value that may be one of several tensors keeps all of these tensors in use. So the view may cost more
    memory than the copy that it replaces. A constant that is in the file twice may cost more than the memory that it
    saves. If the first result has such views or constants, the next results are without these views or constants.
    """
    first = run_passes(work, options, BEFORE_ORDER)
    found = [(options, first, run_more(first, options, (*ORDER, *AFTER_ORDER)))]
    yield found[0][2]
    views = any(
        isinstance(item, Elision) and item.action == "view" for decisions in first.decisions for item in decisions
    )
    grown = any(method.grown for method in first.work.methods)
    for merged, growth in ((False, True), (True, False), (False, False)):
        allowed = merged <= options.merged_views and growth <= options.growth
        if allowed and (merged or views) and (growth or grown):
            other = replace(options, merged_views=merged, growth=growth)
            before = run_passes(work, other, BEFORE_ORDER)
            found.append((other, before, run_more(before, other, (*ORDER, *AFTER_ORDER))))
            yield found[-1][2]
    for settings, before, done in found if options.reorder else ():
        yield from _reordered(settings, before, done)


def _reordered(options: LinkOptions, before: PassResult, done: PassResult) -> Iterator[PassResult]:
    """Yield the results of the passes with better orders of instructions.

    ``before`` is the result of the passes before the pass ``order``, and ``done`` is the result of all passes. In a
    better order, more tensors may share bytes. So a further search may find an even better order.
    """
    for _ in range(_MOST_ORDERS):
        methods = tuple(
            replace(method, linked=linked.memory)
            for method, linked in zip(before.work.methods, done.work.methods, strict=True)
        )
        ordered = run_more(replace(before, work=replace(before.work, methods=methods)), options, ORDER)
        if all(one.plan == other.plan for one, other in zip(methods, ordered.work.methods, strict=True)):
            return
        before, done = ordered, run_more(ordered, options, AFTER_ORDER)
        yield done
        if sum(len(method.memory.reaching.flow.instructions) for method in methods) > _MOST_SEARCHED_AGAIN:
            return


def with_addresses(result: PassResult, numbers: Sequence[int], options: LinkOptions) -> Addressed:
    """Assign addresses to the result of the passes."""
    program, methods = result.work.program, result.work.methods
    alone = sum(1 for plan in program.execution_plan if any(plan.non_const_buffer_sizes)) < 2
    found, banks = assign_addresses(methods, result.work.state, options, alone=alone)
    plans = {
        index: without_unused(plan, _numbering(method, plan))
        for index, method, (plan, _) in zip(numbers, methods, found, strict=True)
    }
    return Addressed(_with_plans(program, plans, methods), result, [buffers for _, buffers in found], banks)


def _numbering(method: Method, plan: m.ExecutionPlan) -> list[int] | None:
    """Return the order in which the values of a linked method are numbered; None to keep their order."""
    if not plan.delegates:
        return None
    return aliases_first(plan, method.memory, method.neighbors, reordered=method.reordered)


def _reordering(found: Addressed, number: int) -> Reordering | None:
    """Return the new order of method ``number``, or None if its instructions are in their original order."""
    positions = list(dict(sorted((found.result.moved[number] or {}).items())).values())
    ends: list[int] = []  # Last position of an ascending selection of each length; each as low as possible.
    for position in positions:
        index = bisect_left(ends, position)
        ends[index : index + 1] = [position]
    if len(ends) == len(positions):
        return None
    memory = sum(buffer.size for buffer in found.as_is[number]) if found.as_is else None
    return Reordering(len(positions) - len(ends), memory)


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
    """Return the program with the linked methods, and with the constants added by passes."""
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
