"""The choice of forms and tiling for a program: candidates are linked, and their costs are compared.

Estimates of memory are used only to propose candidates. The measured costs of linked candidates decide. With forms, a
method never needs more planned memory than without forms (the *stock lowering*). If the target limits its RAM, the
runtime's objects count as memory. A method is tiled in three cases:

* Tiling saves more bytes of memory than it adds to the file.
* Without tiling, ops would run on a slow kernel.
* Without tiling, the method would need more memory than all memory banks have together.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Container, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from etdev.decisions import TilingDecision
from etdev.devices import HOST
from etdev.errors import WriteError
from etdev.files import describe_os_error
from etdev.linker import LinkOptions, link
from etdev.lowering.graph import FormSettings
from etdev.lowering.rewrite import Applied, apply_forms
from etdev.pipeline.project import Project
from etdev.pipeline.project.usable_forms import limits_ram
from etdev.pipeline.stages.artifacts import Emitted, EmittedFiles, ExportedModel, LoweredModel, ReplacedOps
from etdev.pipeline.stages.delegation import summarize_delegation
from etdev.pipeline.stages.emit import emit_object, emit_trial
from etdev.pipeline.stages.link.linking import unplanned_options
from etdev.program import Program
from etdev.program.analysis.runtime_objects import runtime_objects
from etdev.program.constants import constants_size
from etdev.program.footprint import planned_memory
from etdev.program.sidecar import Sidecar
from etdev.program.writer import flatbuffer_size
from etdev.units import format_count

_NEUTRAL = frozenset({"linear", "addmm", "clamp"})
"""Forms that never need more memory than the ops that they replace."""
_GREEDY = frozenset({"pow", "gelu", "pooling"})
"""Forms that may need more memory than the ops that they replace. A lower memory limit does not always prevent this."""
_NEAR = 0.99
"""Factor for limits on estimated memory, because linked programs may need more memory than estimated."""
_STEP = 0.92
"""If a linked program needs too much memory, the memory limit is multiplied by this factor or a smaller one."""
_MOST_TILED = 4
"""Maximum number of tilings to try until each method fits into the memory banks."""
_LEAST = 0.8
"""Share of the stock lowering's memory. A memory limit at or below this share is not lowered further."""


@dataclass(frozen=True)
class _Cost:
    """Bytes that one linked method needs, in memory and in the file."""

    memory: int
    """Bytes of planned memory. If the target limits its RAM, the runtime's objects for the method are included."""
    linked: Program
    """The linked method."""
    banked: int
    """Bytes of planned memory that the target's memory banks have to hold; 0 without banks."""

    @cached_property
    def file(self) -> int:
        """Bytes of instructions, values and constants in the file."""
        return flatbuffer_size(self.linked) + constants_size(self.linked)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way to lower the methods, with the costs of each method."""

    lowered: LoweredModel
    applied: Mapping[str, Applied]
    settings: Mapping[str, FormSettings]
    costs: Mapping[str, _Cost]


def choose_forms(
    project: Project,
    exported: ExportedModel,
    target: str,
    lowered: LoweredModel,
    names: Collection[str],
    place: Path | None,
) -> LoweredModel:
    """Return the lowered methods with the forms from ``names`` that reduce the costs.

    ``place`` is the final path of the object program. If ``place`` is set and candidates were measured, the result
    includes the chosen candidate's object program.
    """
    memory = project.config.targets[target].memory
    tiling = memory.tiling
    room = None if memory.room is None else int(_NEAR * memory.room)
    wanted = dict.fromkeys(lowered.methods, FormSettings(frozenset(names), tiling, room=room))
    known: dict[Hashable, Any] = {}
    untiled = {name: replace(found, tiling="off") for name, found in wanted.items()}
    # Try tiling last, because a search for tilings takes long.
    for settings in (untiled, wanted) if tiling != "off" else (untiled,):
        first, applied = _apply(lowered, settings, known, until_other_than=_NEUTRAL)
        if any(found.counts.keys() - _NEUTRAL for found in applied.values()):
            break
    else:
        return first
    trials = _Trials(project, exported, target, lowered, place, known)
    if tiling != "auto":
        return _decided(trials.within_stock(wanted), {})
    whole = trials.within_stock(untiled)
    tiled = trials.tiled(wanted)
    decisions = {name: trials.decide(tiled, whole, name) for name in lowered.methods}
    kept = {name: (tiled if decision.tiled else whole) for name, decision in decisions.items()}
    for candidate in (whole, tiled):
        if all(found is candidate for found in kept.values()):
            return _decided(candidate, decisions)
    settings = {name: found.settings[name] for name, found in kept.items()}
    mixed, applied = _apply(lowered, settings, known)
    return _decided(_Candidate(mixed, applied, settings, {}), decisions)


_ESTIMATED = "by estimate, the file would grow by more than memory would shrink"


def _decided(candidate: _Candidate, decisions: Mapping[str, TilingDecision]) -> LoweredModel:
    """Return the candidate's methods, each with the decision whether to tile it."""
    replaced = []
    for item in candidate.lowered.replaced:
        settings, applied = candidate.settings[item.method], candidate.applied[item.method]
        decision = decisions.get(item.method)
        if decision is None:
            decision = TilingDecision(applied.is_tiled, reason=f'memory.tiling is set to "{settings.tiling}"')
        replaced.append(replace(item, tiling=decision if applied.counts.keys() - _NEUTRAL else None))
    return replace(candidate.lowered, replaced=tuple(replaced))


class _Trials:
    """A search that lowers, emits and links candidates of one program."""

    def __init__(
        self,
        project: Project,
        exported: ExportedModel,
        target: str,
        lowered: LoweredModel,
        place: Path | None,
        known: dict[Hashable, Any],
    ) -> None:
        self._known = known
        self._project, self._exported, self._target = project, exported, target
        self._lowered, self._place = lowered, place
        self._room = project.config.targets[target].memory.room
        stock = emit_trial(project, _copied(lowered), exported, target)
        self._is_plain = stock is not None
        """True if etdev can emit the methods itself, which is faster and needs no files."""
        self._stock = self._costs(self._emitted(lowered)[1] if stock is None else stock)

    def within_stock(self, settings: Mapping[str, FormSettings]) -> _Candidate:
        """Apply forms, fewer in each round, until no method needs more memory than with its stock lowering."""
        settings = {name: replace(found, limit=self._stock[name].memory) for name, found in settings.items()}
        while True:
            found = self._measured(settings, *_apply(self._lowered, settings, self._known))
            memory = {name: cost.memory for name, cost in found.costs.items()}
            over = [name for name in memory if memory[name] > self._stock[name].memory and settings[name].names]
            if not over:
                return found
            for name in over:
                settings[name] = _stricter(settings[name], self._stock[name].memory, memory[name])

    def tiled(self, settings: Mapping[str, FormSettings]) -> _Candidate:
        """Apply the forms that the estimates suggest, including tiling.

        Measure the result if a method is tiled. If a tiled method exceeds the memory banks, tile it further.
        """
        limits = {name: int(_NEAR * cost.memory) for name, cost in self._stock.items()}
        settings = {
            name: replace(found, limit=limits[name], room=found.room if self._exceeds(self._stock[name]) else None)
            for name, found in settings.items()
        }
        best: _Candidate | None = None
        for _ in range(_MOST_TILED):
            lowered, applied = _apply(self._lowered, settings, self._known)
            if not any(found.is_tiled for found in applied.values()):
                return best or _Candidate(lowered, applied, settings, {})
            found = self._measured(settings, lowered, applied)
            if best is None or self._missing(found) < self._missing(best):
                best = found
            over = [name for name, cost in found.costs.items() if self._exceeds(cost) and applied[name].is_tiled]
            if not over:
                break
            settings = {
                name: replace(each, room=int(_STEP * each.room)) if each.room and name in over else each
                for name, each in settings.items()
            }
        assert best is not None
        return best

    def _exceeds(self, cost: _Cost) -> bool:
        return self._room is not None and cost.banked > self._room

    def _missing(self, candidate: _Candidate) -> int:
        """Return the number of bytes by which the methods of a candidate exceed the memory banks."""
        return sum(max(0, cost.banked - self._room) for cost in candidate.costs.values()) if self._room else 0

    def decide(self, tiled: _Candidate, whole: _Candidate, method: str) -> TilingDecision:
        """Decide whether to tile a method: compare the memory saved by tiling with the growth of the file."""
        if not tiled.applied[method].is_tiled:
            return TilingDecision(False, reason=_ESTIMATED)
        saved = whole.costs[method].memory - tiled.costs[method].memory
        growth = tiled.costs[method].file - whole.costs[method].file
        left = len(whole.applied[method].left) - len(tiled.applied[method].left)
        fits = tiled.costs[method].memory <= self._stock[method].memory
        if self._exceeds(whole.costs[method]) and tiled.costs[method].banked < whole.costs[method].banked:
            needed = f"{whole.costs[method].banked:,} bytes, and the memory banks have {self._room:,}"
            return TilingDecision(True, saved, growth, f"without tiling, the method needs {needed}")
        if fits and saved > growth and left >= 0:
            return TilingDecision(True, saved, growth)
        if fits and left > 0:
            reason = f"without tiling, {format_count(left, 'more convolution')} would run on a slow kernel"
            return TilingDecision(True, saved, growth, reason)
        return TilingDecision(False, saved, growth)

    def _measured(
        self, settings: Mapping[str, FormSettings], lowered: LoweredModel, applied: Mapping[str, Applied]
    ) -> _Candidate:
        """Emit the methods that :func:`_apply` lowered with ``settings``. Return a candidate with its costs."""
        if self._is_plain:
            trial = emit_trial(self._project, lowered, self._exported, self._target)
            if trial is not None:
                return _Candidate(replace(lowered, emitted=trial), applied, settings, self._costs(trial))
            lowered, applied = _apply(self._lowered, settings, self._known)  # The trial has changed the graphs.
        files, objects = self._emitted(lowered)
        return _Candidate(replace(lowered, emitted=files), applied, settings, self._costs(objects))

    def _costs(self, objects: Emitted) -> dict[str, _Cost]:
        """Link each method of an object program separately, and return the costs of the methods."""
        share_state = self._project.config.model.share_state
        banked: LinkOptions | None = None
        if self._room is not None:
            banked = unplanned_options(self._project, self._target, objects, self._exported.signatures)
        costs = {name: _cost(objects, name, banked, share_state=share_state) for name in self._lowered.methods}
        if not limits_ram(self._project.config.targets[self._target]):
            return costs
        return {
            name: replace(
                cost, memory=cost.memory + sum(runtime_objects(plan, 4) for plan in cost.linked.execution_plan)
            )
            for name, cost in costs.items()
        }

    def _emitted(self, lowered: LoweredModel) -> tuple[EmittedFiles | None, Emitted]:
        """Emit a copy of the lowered methods with ExecuTorch.

        Return the program's files and the program. The files are None if the object program has no final path.
        """
        folder = _folder(self._place)
        path = Path(folder.name) / (self._place.name if self._place else "candidate.object.pte")
        objects = emit_object(self._project, _copied(lowered), self._exported, self._target, path)
        return EmittedFiles(path, folder) if self._place else None, objects


def _folder(place: Path | None) -> TemporaryDirectory[str]:
    """Make a temporary folder next to ``place``. The folder is removed when the returned object is deleted."""
    if place is None:
        return TemporaryDirectory(prefix="etdev-")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(prefix=".candidate-", dir=place.parent)
    except OSError as error:
        message, hint = describe_os_error(error)
        raise WriteError(message, where=str(place), hint=hint) from error


def _stricter(settings: FormSettings, limit: int, memory: int) -> FormSettings:
    """Return stricter settings for a method that needs ``memory`` bytes, which is more than ``limit``.

    The strictest settings do not allow any form.
    """
    assert settings.limit is not None
    if settings.limit > _LEAST * limit:
        return replace(settings, limit=int(settings.limit * min(_NEAR * limit / memory, _STEP)))
    if settings.names & _GREEDY:
        return replace(settings, names=settings.names - _GREEDY)
    if settings.names - _NEUTRAL:
        return replace(settings, names=settings.names & _NEUTRAL)
    return replace(settings, names=frozenset())


def _cost(objects: Emitted, method: str, banked: LinkOptions | None, *, share_state: bool) -> _Cost:
    """Link a method without the other methods, with the default settings, and return its costs.

    Instructions keep their order. A better order could reduce the memory of the stock lowering so far that no faster
    form would be accepted.

    ``banked`` are the options with which the target is linked into banks, or None without banks.
    """
    alone = replace(objects.program, execution_plan=(objects.program.method(method),))
    sidecar = Sidecar({method: objects.sidecar.methods[method]})
    linked = link(alone, LinkOptions(share_state=share_state, reorder=False, sizes_only=True), sidecar).program
    on_host = 0
    if banked is not None:
        caller = {method: banked.caller[method]} if method in banked.caller else {}
        on_host = planned_memory(link(alone, replace(banked, caller=caller, sizes_only=True), sidecar).program).get(
            str(HOST), 0
        )
    return _Cost(sum(planned_memory(linked).values()), linked, on_host)


def _apply(
    lowered: LoweredModel,
    settings: Mapping[str, FormSettings],
    known: dict[Hashable, Any],
    until_other_than: Container[str] | None = None,
) -> tuple[LoweredModel, dict[str, Applied]]:
    """Apply forms to a copy of the lowered methods. ``known`` has the results of earlier searches for tiles.

    ``until_other_than`` contains names of forms. If it is given, stop in a method as soon as any other form is applied.
    """
    changed = _copied(lowered)
    applied = {
        name: apply_forms(changed.manager.exported_program(name), found, known, until_other_than)
        for name, found in settings.items()
    }
    replaced = tuple(
        ReplacedOps(name, dict(found.counts), slow_convolutions=found.left) for name, found in applied.items()
    )
    programs = {name: changed.manager.exported_program(name) for name in changed.methods}
    delegations = tuple(summarize_delegation(name, program, lowered.lines) for name, program in programs.items())
    return replace(changed, replaced=replaced, delegations=delegations), applied


def _copied(lowered: LoweredModel) -> LoweredModel:
    """Return a copy with new graphs; tensors and delegates are shared, because no stage changes them."""
    from executorch.exir.lowered_backend_module import LoweredBackendModule

    shared: list[Any] = []
    for name in lowered.methods:
        program = lowered.manager.exported_program(name)
        shared += [*program.state_dict.values(), *program.constants.values()]
        shared += [part for part in program.graph_module.modules() if isinstance(part, LoweredBackendModule)]
    manager = copy.copy(lowered.manager)
    memo = {id(item): item for item in shared}
    manager._edge_programs = copy.deepcopy(lowered.manager._edge_programs, memo)
    manager._etrecord = copy.copy(lowered.manager._etrecord)
    return replace(lowered, manager=manager)
