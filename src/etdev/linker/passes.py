"""The passes of a link, their order, and the function that runs them.

A pass is a function that takes a program and options. It returns the program with changed methods, and its decisions.
Positions in the result refer to the program immediately before or after the pass. :func:`run_passes` translates
positions between passes, collects all decisions, and analyzes changed methods again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from etdev.linker.devices.ends import add_host_memory
from etdev.linker.devices.merges import join_merged
from etdev.linker.devices.methods import place_on_devices
from etdev.linker.devices.resident import write_in_state
from etdev.linker.devices.strip import strip_devices
from etdev.linker.elide.constants import fold_constants
from etdev.linker.elide.parts import elide_parts
from etdev.linker.elide.views import elide_views
from etdev.linker.elide.writeback import elide_write_backs
from etdev.linker.inplace import work_in_place, work_in_place_again
from etdev.linker.io import leave_to_caller
from etdev.linker.lift import lift_foreign, lift_placed
from etdev.linker.options import LinkOptions
from etdev.linker.order.reorder import reorder
from etdev.linker.work import Analysis, Changed, Method, PassResult, Work

Run: TypeAlias = Callable[[Work, LinkOptions], PassResult]


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step of a link. It changes methods, but never the results that the methods compute."""

    name: str
    run: Run


def on_each(run: Callable[[Method, Work, LinkOptions], Changed]) -> Run:
    """Return the pass that applies ``run`` to each method of a program separately."""

    def run_on_all(work: Work, options: LinkOptions) -> PassResult:
        return PassResult.of(work, [run(method, work, options) for method in work.methods])

    return run_on_all


def _apply_merges(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Apply the merges that earlier passes recorded, and the other changes that these merges require."""
    if method.storages is None:
        return Changed(method)
    neighbors = dict(method.neighbors)
    for part, whole in method.storages.parts().items():
        neighbors[part] = method.neighbors.get(whole, whole)
    plan, moved = method.storages.applied()
    return Changed(replace(method, plan=plan, neighbors=neighbors, storages=None), moved)


PASSES: tuple[Pass, ...] = (
    Pass("lift", on_each(lift_foreign)),
    Pass("strip devices", on_each(strip_devices)),
    Pass("leave to caller", on_each(leave_to_caller)),
    Pass("add host memory", on_each(add_host_memory)),
    Pass("fold constants", on_each(fold_constants)),
    Pass("views", on_each(elide_views)),
    Pass("join branches", on_each(join_merged)),
    Pass("write in state", on_each(write_in_state)),
    Pass("place on devices", place_on_devices),
    Pass("lift placed", on_each(lift_placed)),
    Pass("order", on_each(reorder)),
    Pass("in place", on_each(work_in_place)),
    Pass("write back", on_each(elide_write_backs)),
    Pass("in place again", on_each(work_in_place_again)),
    Pass("parts", on_each(elide_parts)),
    Pass("apply merges", on_each(_apply_merges)),
)
"""All passes, in order. The passes after ``order`` record merges of storages; the last pass applies them."""

_ORDER = next(number for number, item in enumerate(PASSES) if item.name == "order")
BEFORE_ORDER, ORDER, AFTER_ORDER = PASSES[:_ORDER], PASSES[_ORDER : _ORDER + 1], PASSES[_ORDER + 1 :]
"""The passes before ``order``, the pass ``order``, and the passes after it.

The pass ``order`` needs the result of an earlier run of all passes.
"""


def run_passes(work: Work, options: LinkOptions, passes: Sequence[Pass] = PASSES) -> PassResult:
    """Run passes in order. Return their combined result.

    Positions in the decisions, and the keys of the position maps, refer to the program before the first pass.
    """
    nothing = PassResult(work, tuple(() for _ in work.methods), tuple(map(_identity, work.methods)))
    return run_more(nothing, options, passes)


def run_more(result: PassResult, options: LinkOptions, passes: Sequence[Pass]) -> PassResult:
    """Run more passes. Return their result combined with ``result``, the result of earlier passes.

    ``result`` must come from :func:`run_passes` or from this function.
    """
    work = result.work
    moved = [dict(change or {}) for change in result.moved]
    decisions = [list(found) for found in result.decisions]
    for item in passes:
        result = item.run(work, options)
        for index, (found, change) in enumerate(zip(result.decisions, result.moved, strict=True)):
            start = {now: start for start, now in moved[index].items()} if found else {}
            decisions[index] += (replace(each, instruction=start[each.instruction]) for each in found)
            if change is not None:
                moved[index] = {start: change[now] for start, now in moved[index].items() if now in change}
        methods = map(_updated, work.methods, result.work.methods, result.moved)
        work = replace(result.work, methods=tuple(methods))
    return PassResult(work, tuple(map(tuple, decisions)), tuple(moved))


def _identity(method: Method) -> dict[int, int]:
    return {position: position for position in range(len(method.memory.reaching.flow.instructions))}


def _updated(before: Method, method: Method, moved: Mapping[int, int] | None) -> Method:
    """Return a method after a pass, with updated positions. If the pass changed the method, start a new analysis."""
    if method.plan == before.plan:
        return method
    if moved is not None:
        inputs = {moved[position]: count for position, count in method.inputs.items()}
        copies = frozenset(moved[position] for position in method.copies if position in moved)
        method = replace(method, inputs=inputs, copies=copies)
    return replace(method, analysis=Analysis(method.plan, method.inputs, method.persistent))
