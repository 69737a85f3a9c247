"""Validation of one method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from etdev.program import model as m
from etdev.validator.agree import Agreement, Assumed
from etdev.validator.constants import Constants
from etdev.validator.domain.memory import Memory
from etdev.validator.domain.merge import Merges
from etdev.validator.domain.numbers import TooManyTermsError
from etdev.validator.domain.symbols import INITIAL, Symbols
from etdev.validator.ends import Ends
from etdev.validator.explain import Explainer
from etdev.validator.facts import Facts
from etdev.validator.freed import freed_reads
from etdev.validator.machine import Machine
from etdev.validator.paths import Layout, Paths
from etdev.validator.reading import NotFollowedError
from etdev.validator.report import Violation
from etdev.validator.run import InPlace, Run
from etdev.validator.steps import Steps
from etdev.validator.walk import Divergence, walk


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the validation of a method."""

    violations: Sequence[Violation] = ()
    not_followed: str | None = None
    """Reason why the validator cannot follow the method; None if it can."""
    reads: int = 0
    """Number of operands, outputs and pieces of state that were compared."""
    assumed: Sequence[Assumed] = ()
    """Bytes assumed to be equal before each call. The validation proves that they are equal after the call."""


class MethodValidation:
    """Validation that a method computes the same before and after the link."""

    def __init__(
        self,
        symbols: Symbols,
        constants: Constants,
        facts: tuple[Facts, Facts],
        moved: Mapping[int, int],
        in_place: InPlace,
    ) -> None:
        """Prepare the validation of one method.

        ``moved`` maps the position of each kept instruction before the link to its position after the link.
        """
        self._in_place = in_place
        self._symbols = symbols
        self._constants = constants
        self._facts = facts
        self._moved = moved
        self._explain = Explainer(symbols, facts, moved)
        before, after = facts
        self._loaded = _loaded(constants, before), _loaded(constants, after)
        self._last: Run | None = None
        self.outcome = Outcome()

    @property
    def plans(self) -> tuple[m.ExecutionPlan, m.ExecutionPlan]:
        """Return the method before the link, and the method after the link."""
        return self._facts[0].plan, self._facts[1].plan

    def run(self) -> Outcome:
        """Execute the method in both programs side by side, on all paths. Return the outcome."""
        before, after = self.plans
        for kind, mine, theirs in (
            ("inputs", before.inputs, after.inputs),
            ("outputs", before.outputs, after.outputs),
        ):
            if len(mine) != len(theirs):
                wrong = self._explain.apart(f"it has {len(theirs)} {kind} instead of {len(mine)}")
                self.outcome = Outcome((wrong,))
                return self.outcome
        try:
            layout = Layout(walk(*self._facts, self._moved))
        except Divergence as apart:
            self.outcome = Outcome((self._explain.apart(str(apart), apart.before, apart.after),))
        else:
            self.outcome = self._execute(layout)
            freed = tuple(freed_reads(self._facts, self._moved))
            self.outcome = replace(self.outcome, violations=(*self.outcome.violations, *freed))
        return self.outcome

    def _execute(self, layout: Layout) -> Outcome:
        """Execute the method in both programs. Assume that paired values have equal numbers and sizes before a call.

        If a call leaves a paired value with different numbers or sizes, execute the method again without that pair.
        The difference is a violation only if an instruction depends on the value.
        """
        apart: set[int] = set()
        while True:
            run = self._last = self._new_run(layout, apart)
            try:
                Paths(run, layout, Steps(run), Ends(run)).run()
            except TooManyTermsError:
                return Outcome(
                    tuple(run.violations), "the formulas for the method's tensor sizes have too many terms", run.reads
                )
            except NotFollowedError as reason:
                return Outcome(tuple(run.violations), str(reason), run.reads)
            if run.unlike <= apart:
                return Outcome(tuple(run.violations), None, run.reads, run.agreement.assumed)
            apart |= run.unlike

    def _new_run(self, layout: Layout, apart: set[int]) -> Run:
        agreement = Agreement(self._symbols, self._constants, self._loaded)
        merges = Merges(self._symbols, layout.bits, layout.bodies)
        machine = Machine(self._symbols, self._facts, merges, layout.ways, agreement.canonical)
        machine.pairs = {value: twin for value, twin in self._pairs().items() if value not in apart}
        return Run(self._symbols, self._facts, machine, agreement, self._explain, self._in_place)

    def _pairs(self) -> dict[int, int]:
        """Return a map from values after the link to the corresponding values before the link."""
        found: dict[int, int] = {}
        before, after = self.plans
        waiting = list(zip(before.inputs, after.inputs, strict=True))
        for here, there in sorted(self._moved.items()):
            waiting += zip(self._facts[0].code[here].args, self._facts[1].code[there].args, strict=False)
        waiting += zip(before.outputs, after.outputs, strict=True)
        # State that only moves and aliases use can be paired only by name.
        named = _state_by_name(after)
        waiting += [(one, named[name]) for name, one in _state_by_name(before).items() if name in named]
        lists = m.IntList | m.TensorList | m.OptionalTensorList
        for one, other in waiting:
            if one < 0 or other < 0 or other in found:
                continue
            mine, theirs = before.values[one], after.values[other]
            if type(mine) is not type(theirs):
                continue
            found[other] = one
            if isinstance(mine, lists) and isinstance(theirs, lists):
                waiting += zip(mine.items, theirs.items, strict=False)
        return found

    # State of other methods, after execution

    def leaves_alone(self, side: int, space: int, start: int, length: int) -> bool:
        """Return whether loading the program and running the method leave these bytes unchanged."""
        assert self._last is not None
        found = self._last.machine.stored(side, (space, start), length, length)
        loaded = self._loaded[side].get(space)
        untouched = loaded is None or all(cell[0] < 0 for _, _, cell in loaded.pieces(start, start + length))
        return untouched and found == ((self._symbols.number((INITIAL, side, space)), start, length),)

    def leaves_same(self, shared: Assumed) -> bool:
        """Return whether a call keeps bytes equal in both programs, given that they are equal before the call."""
        assert self._last is not None
        machine, agreement = self._last.machine, self._last.agreement
        if not agreement.assume(shared):
            return False
        mine = machine.stored(0, (shared.before_space, shared.before), shared.length, shared.length)
        theirs = machine.stored(1, (shared.after_space, shared.after), shared.length, shared.length)
        return agreement.same(mine, theirs)


def _loaded(constants: Constants, facts: Facts) -> dict[int, Memory]:
    """Return the memory of each space after loading. Symbol -1 represents bytes without an initial value."""
    found: dict[int, Memory] = {}
    for value, tensor in facts.plan.tensors():
        place = facts.tensors[value].place
        if tensor.has_initial_value and place is not None and facts.tensors[value].nbytes:
            content = constants.of(facts.side, tensor)
            if content is not None:
                memory = found.setdefault(place[0], Memory.filled(-1))
                memory.write_content(place[1], ((*content, facts.tensors[value].nbytes),))
    return found


def _state_by_name(plan: m.ExecutionPlan) -> dict[str, int]:
    """Return a map from names of state to value indices. Omit names that occur more than once in the method."""
    found: dict[str, list[int]] = {}
    for value, tensor in plan.tensors():
        if tensor.name is not None and tensor.allocation_info is not None:
            found.setdefault(tensor.name, []).append(value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}
