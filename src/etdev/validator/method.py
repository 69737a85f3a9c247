"""The product of two methods, executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from etdev.program import model as m
from etdev.validator import operators as ops
from etdev.validator.agree import Agreement, Assumed
from etdev.validator.constants import Constants
from etdev.validator.execute import Results, run_move, run_view
from etdev.validator.explain import Explainer
from etdev.validator.facts import CONSTANT, Clash, Code, Facts, share
from etdev.validator.join import forget_older, join
from etdev.validator.loop import Loop
from etdev.validator.machine import Machine, NotFollowedError, Part, whole
from etdev.validator.memory import Content, Memory
from etdev.validator.merge import AGAIN, Merges
from etdev.validator.numbers import unknown
from etdev.validator.operators import Act
from etdev.validator.report import Violation
from etdev.validator.state import Choice, Dims, Lost, State, Tree, choice, each_leaf, on_way
from etdev.validator.symbols import INITIAL, INPUT, OTHER, Symbols
from etdev.validator.walk import Apart, Step, Walk, Who, is_loop, walk

_MOST_STEPS = 5_000_000
"""Instructions that are executed, in all rounds together, before a method is taken to be made to waste time."""
_MOST_ROUNDS = 500
"""Rounds of a loop until nothing new is found, before it is given up."""
_MOST_VIOLATIONS = 20
"""Of one method; what is wrong once is often wrong again."""


@dataclass(slots=True)
class Outcome:
    """What became of one method."""

    violations: list[Violation] = field(default_factory=list)
    not_followed: str | None = None
    instructions: int = 0
    reads: int = 0
    assumed: Sequence[Assumed] = ()
    """Bytes that were taken to be the same before each call, and are again after it."""


class MethodValidation:
    """Two methods of which the second is to do what the first does."""

    def __init__(
        self,
        symbols: Symbols,
        constants: Constants,
        before: Facts,
        after: Facts,
        moved: Mapping[int, int],
    ) -> None:
        self._symbols = symbols
        self._facts = (before, after)
        self._moved = moved
        self._outcome = Outcome()
        self._constants = constants
        self._loaded = (_loaded(constants, before), _loaded(constants, after))
        self._agreement = Agreement(symbols, constants, self._loaded)
        self._unlike: set[int] = set()
        """Numbers and tensors of which the next call finds other values, or sizes, than before the link."""
        self._apart: set[int] = set()
        """Those of them that are not taken to be the same."""
        self._violations: list[Violation] = self._outcome.violations
        self._steps = 0
        self._looping = False
        """Whether a loop is executed."""
        self._rows_first: dict[int, list[Step]] = {}

    def run(self) -> Outcome:
        """Execute both methods side by side."""
        outcome = self._outcome
        try:
            self._check_outside()
            self._walk = walk(*self._facts, self._moved)
            self._execute()
        except Apart as apart:
            self._report(self._explain.apart(str(apart), apart.before, apart.after))
        except NotFollowedError as reason:
            outcome.not_followed = str(reason)
        outcome.instructions = len(self._facts[1].code)
        outcome.assumed = self._agreement.assumed
        return outcome

    def _execute(self) -> None:
        """Numbers that the two programs leave otherwise for the next call are taken to be others, and nobody may care."""
        found = list(self._violations)
        while True:
            self._agreement = Agreement(self._symbols, self._constants, self._loaded)
            self._violations[:] = found
            self._prepare()
            self._run_groups()
            if not self._unlike - self._apart:
                return
            self._apart |= self._unlike

    @property
    def outcome(self) -> Outcome:
        """What has become of it so far."""
        return self._outcome

    @property
    def plans(self) -> tuple[m.ExecutionPlan, m.ExecutionPlan]:
        """The method in both programs."""
        return self._facts[0].plan, self._facts[1].plan

    def leaves_alone(self, side: int, space: int, start: int, length: int) -> bool:
        """Do some bytes hold at the end, and when the program has been loaded, what they held before?"""
        found = self._machine.stored(side, (space, start), length, length)
        loaded = self._loaded[side].get(space)
        untouched = loaded is None or all(cell[0] < 0 for _, _, cell in loaded.pieces(start, start + length))
        return untouched and found == ((self._symbols.number((INITIAL, side, space)), start, length),)

    def leaves_same(self, shared: Assumed) -> bool:
        """If some bytes are the same in both programs before a call, are they after it?"""
        if not self._agreement.assume(shared):
            return False
        mine = self._machine.stored(0, (shared.before_space, shared.before), shared.length, shared.length)
        theirs = self._machine.stored(1, (shared.after_space, shared.after), shared.length, shared.length)
        return self._agreement.same(mine, theirs)

    @property
    def _explain(self) -> Explainer:
        return Explainer(self._symbols, self._facts, self._moved)

    def _report(self, violation: Violation) -> None:
        if len(self._violations) < _MOST_VIOLATIONS:
            self._violations.append(violation)

    # Before anything is executed

    def _check_outside(self) -> None:
        """What does not depend on any path: extents, and the types of inputs and outputs."""
        before, after = self._facts
        for violation in self._explain.extents():
            self._report(violation)
        for kind in ("inputs", "outputs"):
            mine, theirs = getattr(before.plan, kind), getattr(after.plan, kind)
            if len(mine) != len(theirs):
                raise Apart(f"it has {len(theirs)} {kind} instead of {len(mine)}", 0, 0)
            for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
                if _form(before, one) != _form(after, other):
                    self._report(self._explain.outside(f"{kind[:-1]} {number} has another type or size", other))

    def _prepare(self) -> None:
        blocks = self._walk.blocks
        count = len(blocks)
        ways: dict[int, int] = {}
        bits: dict[int, int] = {}
        self._loops: dict[int, Loop] = {}
        for group in self._walk.groups:
            inside = is_loop(self._walk, group)
            merges = {number for number in group if len(blocks[number].predecessors) > 1}
            merges |= {count + number for number in merges} if inside else set()
            for number in group:
                back = [item for item in blocks[number].predecessors if self._walk.is_back(item, number)]
                forward = len(blocks[number].predecessors) - len(back) + (number == 0)
                ways[number] = 1 + len(back) if back else forward
                ways[count + number] = forward
                if back:
                    merges.add(number)
                    inside_too = {item for body in _body(self._walk, number) for item in (body, count + body)}
                    self._loops[number] = Loop(number, frozenset({*inside_too, AGAIN} - {count + number}))
            for number in sorted(merges) if inside else ():
                bits[number] = 1 << len(bits)
        bits[AGAIN] = 1 << len(bits)
        self._machine = Machine(self._symbols, self._facts, Merges(self._symbols, bits, self._loops), ways)
        self._machine.canonical = self._agreement.canonical
        self._machine.pairs = {value: twin for value, twin in self._pairs().items() if value not in self._apart}
        self._find_rows()

    def _pairs(self) -> dict[int, int]:
        """Value after the link → value before it, as the corresponding instructions have them."""
        before, after = self._facts
        found: dict[int, int] = {}

        def pair(one: int, other: int) -> None:
            if one < 0 or other < 0 or other in found:
                return
            found[other] = one
            mine, theirs = before.plan.values[one], after.plan.values[other]
            lists = m.IntList | m.TensorList | m.OptionalTensorList
            if isinstance(mine, lists) and isinstance(theirs, lists):
                for item in zip(mine.items, theirs.items, strict=False):
                    pair(*item)

        for one, other in zip(
            (*before.plan.inputs, *before.plan.outputs), (*after.plan.inputs, *after.plan.outputs), strict=True
        ):
            pair(one, other)
        for here, there in self._moved.items():
            for one, other in zip(before.code[here].args, after.code[there].args, strict=False):
                pair(one, other)
        return found

    def _find_rows(self) -> None:
        """By head of each loop, the instructions that put rows together in it, but not in a loop inside it."""
        blocks = self._walk.blocks
        bodies = {head: _body(self._walk, head) for head in self._loops}
        self._in_loop = {number for body in bodies.values() for number in body}
        for head, body in bodies.items():
            for number in body:
                if min((len(other), head_) for head_, other in bodies.items() if number in other)[1] != head:
                    continue
                for step in blocks[number].steps:
                    if step.who is Who.BOTH and self._facts[0].code[step.before].act is Act.ADD_ROW:
                        self._rows_first.setdefault(head, []).append(step)

    # Paths

    def _run_groups(self) -> None:
        machine = self._machine
        self._enter()
        states: dict[tuple[int, int], State] = {(-1, 0): machine.state}
        end = next(number for number, block in enumerate(self._walk.blocks) if not block.steps and not block.successors)
        for group in self._walk.groups:
            if is_loop(self._walk, group):
                self._run_loop(group, states)
                continue
            (number,) = group
            machine.state = self._arrive(number, states, keep=False)
            if number == end:
                self._leave()
                return
            self._run_block(number)
            self._hand_on(number, states)

    def _arrive(self, number: int, states: dict[tuple[int, int], State], *, keep: bool) -> State:
        """The state at the start of a block, without what comes from rounds of a loop that it is the head of."""
        edges = [(-1, 0)] if number == 0 else []
        edges += [
            (origin, number)
            for origin in self._walk.blocks[number].predecessors
            if not self._walk.is_back(origin, number)
        ]
        found = [states[edge].copy() if keep else states.pop(edge) for edge in edges]
        count = len(self._walk.blocks)
        for state in found if self._looping else ():
            forget_older(state, {number, number + count})
        return join(self._machine, self._agreement, number + count if number in self._loops else number, found)

    def _hand_on(self, number: int, states: dict[tuple[int, int], State]) -> None:
        successors = self._walk.blocks[number].successors
        for successor in successors[1:]:
            states[number, successor] = self._machine.state.copy()
        if successors:
            states[number, successors[0]] = self._machine.state

    def _run_loop(self, group: Sequence[int], states: dict[tuple[int, int], State]) -> None:
        """Execute blocks that lead to each other, round after round until nothing new is found."""
        self._looping = True
        kept = self._violations
        for _ in range(_MOST_ROUNDS):
            known = self._agreement.known
            self._violations = []
            reads = self._outcome.reads
            inside = self._run_round(group, states)
            settled = self._settle(group, states, inside)
            if self._agreement.known != known:
                for number in group:
                    if number in self._loops:
                        self._loops[number] = Loop(number, self._loops[number].merges)
            elif settled:
                break
            self._outcome.reads = reads
        else:
            raise NotFollowedError("its loops are too large to be followed")
        kept.extend(self._violations[: _MOST_VIOLATIONS - len(kept)])
        self._violations = kept
        for edge in [edge for edge in states if edge[1] in group]:
            del states[edge]
        states.update({edge: state for edge, state in inside.items() if edge[1] not in group})
        self._looping = False

    def _run_round(self, group: Sequence[int], states: dict[tuple[int, int], State]) -> dict[tuple[int, int], State]:
        inside: dict[tuple[int, int], State] = {}
        self._outside: dict[int, State] = {}
        for number in group:
            state = self._arrive(number, {**states, **inside}, keep=True)
            if number in self._loops:
                self._machine.state = state
                self._start_rows(number)
                self._outside[number] = state
                state = self._loops[number].enter(self._machine, state)
            self._machine.state = state
            self._run_block(number)
            self._hand_on(number, inside)
        return inside

    def _settle(
        self, group: Sequence[int], states: dict[tuple[int, int], State], inside: dict[tuple[int, int], State]
    ) -> bool:
        settled = True
        for number in group:
            if number in self._loops:
                rounds = [
                    inside[origin, number]
                    for origin in self._walk.blocks[number].predecessors
                    if self._walk.is_back(origin, number)
                ]
                settled &= self._loops[number].settle(self._machine, self._agreement, self._outside[number], rounds)
        return settled

    def _start_rows(self, head: int) -> None:
        """What lies where rows are put together is of no interest before the first row is there."""
        for step in self._rows_first.get(head, ()):
            for side, position in enumerate((step.before, step.after)):
                (out,) = self._facts[side].code[position].writes
                tensor = self._facts[side].tensors[out]
                if out not in self._facts[side].roving and tensor.place is not None:
                    place = tensor.place
                    self._machine.memory(side, place[0]).write_content(
                        place[1], whole(self._nothing(step.before), tensor.nbytes)
                    )
                    self._machine.state.log.entries.append((0, side, place[0], place[1], place[1] + tensor.nbytes))

    def _nothing(self, position: int) -> int:
        return self._symbols.number((OTHER, "no rows yet", position))

    def _run_block(self, number: int) -> None:
        self._block = number
        for step in self._walk.blocks[number].steps:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise NotFollowedError(f"its control flow is too large: more than {_MOST_STEPS:,} steps")
            if step.who is Who.BOTH:
                self._run_both(step.before, step.after)
            else:
                side = 0 if step.who is Who.BEFORE else 1
                self._run_alone(side, step.before if side == 0 else step.after)

    # The ends

    def _enter(self) -> None:
        """The caller fills the inputs."""
        machine = self._machine
        for side, facts in enumerate(self._facts):
            for number, value in enumerate(facts.plan.inputs):
                tensor = facts.tensors.get(value)
                if tensor is not None:
                    sizes: Dims = tensor.sizes
                    if tensor.dynamic:
                        sizes = tuple(
                            unknown(self._symbols.number((INPUT, "size", number, dim)))
                            for dim in range(len(tensor.sizes))
                        )
                    machine.write(side, value, sizes, whole(self._symbols.number((INPUT, number)), tensor.nbytes))
        self._assume_state()

    def _assume_state(self) -> None:
        """What the file says is state is the same at first; that it is again at the end is checked there."""
        before, after = self._facts
        twins = {one: other for other, one in self._pairs().items()}
        for value, tensor in before.plan.tensors():
            facts = before.tensors[value]
            if not _is_state(tensor) or facts.place is None or not facts.nbytes:
                continue
            twin = twins.get(value)
            if twin is None or after.tensors[twin].place is None or after.tensors[twin].nbytes != facts.nbytes:
                continue
            place = after.tensors[twin].place
            assert place is not None
            assumed = Assumed(facts.place[0], facts.place[1], place[0], place[1], facts.nbytes)
            if place[0] == CONSTANT or not self._agreement.assume(assumed):
                self._report(self._explain.state(twin, "begins with another content"))

    def _leave(self) -> None:
        """The caller reads the outputs; what the next call finds is the same."""
        machine = self._machine
        for number, (one, other) in enumerate(
            zip(self._facts[0].plan.outputs, self._facts[1].plan.outputs, strict=True)
        ):
            mine, theirs = machine.value(0, one), machine.value(1, other)
            self._outcome.reads += 1
            for difference in self._agreement.differences([mine], [theirs]):
                self._report(self._explain.output(machine, number, other, difference))
            self._check_caller_memory(number, one, other)
        self._check_left_numbers()
        index = 0
        while index < len(self._agreement.assumed):
            self._check_assumed(self._agreement.assumed[index])
            index += 1

    def _check_caller_memory(self, number: int, one: int, other: int) -> None:
        """An output for which the caller brings memory is there at the end."""
        facts = self._facts[1]
        tensor = facts.tensors.get(other)
        if tensor is None or tensor.place is None or tensor.place[0] >= CONSTANT or tensor.planned:
            return
        leaf = self._machine.located(1, other)
        mine = self._machine.located(0, one)
        if leaf != (other, tensor.place) and not isinstance(mine, Choice | Lost) and mine[1] != leaf[1:]:  # type: ignore[index]
            self._report(self._explain.caller(number, other))

    def _check_left_numbers(self) -> None:
        machine = self._machine
        for side, value in sorted(machine.left_numbers | machine.left_dims):
            if side == 0 or value not in machine.pairs:
                continue
            twin = machine.pairs[value]
            if (side, value) in machine.left_numbers:
                same = machine.number(0, twin) == machine.number(1, value)
                same &= self._facts[0].plan.values[twin] == self._facts[1].plan.values[value]
            else:
                same = machine.dims(0, twin) == machine.dims(1, value)
                same &= self._facts[0].tensors[twin].sizes == self._facts[1].tensors[value].sizes
            if not same:
                self._unlike.add(value)

    def _check_assumed(self, assumed: Assumed) -> None:
        self._outcome.reads += 1
        mine = self._machine.stored(0, (assumed.before_space, assumed.before), assumed.length, assumed.length)
        theirs = self._machine.stored(1, (assumed.after_space, assumed.after), assumed.length, assumed.length)
        part: Part = ((), (), mine)
        for difference in self._agreement.differences([part], [((), (), theirs)]):
            self._report(self._explain.kept(assumed, difference))

    # One instruction

    def _run_both(self, here: int, there: int) -> None:
        machine = self._machine
        one, other = self._facts[0].code[here], self._facts[1].code[there]
        if one.act is Act.JUMP:
            self._compare(one, other, [machine.value(0, one.reads[0])], [machine.value(1, other.reads[0])])
        elif not self._is_same(one, other):
            self._run_alone(0, here, paired=True)
            self._run_alone(1, there, paired=True)
        elif one.act in (Act.VIEW, Act.MOVE, Act.FREE):
            self._run_alone(0, here)
            self._run_alone(1, there)
        else:
            self._run_same(one, other)

    def _is_same(self, one: Code, other: Code) -> bool:
        """Do both compute the same function, with outputs of the same form?"""
        if ops.same_function(one.name) != ops.same_function(other.name) or len(one.reads) != len(other.reads):
            return False
        forms = [
            [_form(facts, value) for value in (*code.writes, *code.updates)]
            for facts, code in zip(self._facts, (one, other), strict=True)
        ]
        alike = {one.act, other.act} <= {Act.COMPUTE, Act.UPDATE} or one.act is other.act
        return alike and forms[0] == forms[1] and len(one.sets) == len(other.sets)

    def _run_same(self, one: Code, other: Code) -> None:
        """The same instruction in both programs."""
        machine = self._machine
        before, after = machine.operands(0, one.position), machine.operands(1, other.position)
        outs = [(*code.writes, *code.updates) for code in (one, other)]
        if one.act is Act.DELEGATE or isinstance(one.call, m.DelegateCall):
            self._check_delegate(one, other)
        self._compare(one, other, before, after)
        if one.act is Act.ADD_ROW:
            self._add_rows(one, other, before)
            return
        tag: object = None if one.pure and one.act is not Act.RESIZE else one.position
        overlaps = self._overlaps(0, one) if one.clashes else {}
        bad = {key: tree for key, tree in overlaps.items() if not self._is_allowed(one, key, tree)}
        if bad:
            tag = (tag, "overlap", tuple(sorted(bad.items(), key=str)))
        results = Results(machine, 0, one, before, self._looping, tag)
        tensors = results.tensors() if outs[0] else []
        if other.clashes:
            self._check_overlaps(one, other, overlaps, [dims for dims, _ in tensors])
        for mine, theirs, (dims, content) in zip(*outs, tensors, strict=True):
            machine.write(0, mine, dims, content)
            machine.write(1, theirs, dims, content)
        for mine, theirs, number in zip(one.sets, other.sets, results.numbers() if one.sets else (), strict=True):
            if mine in self._facts[0].variable:
                machine.set_number(0, mine, number)
            if theirs in self._facts[1].variable:
                machine.set_number(1, theirs, number)

    def _add_rows(self, one: Code, other: Code, operands: Sequence[Part]) -> None:
        """A row is put behind those that the instruction itself has written; nobody has to need them."""
        machine = self._machine
        if other.clashes:
            self._check_overlaps(one, other, self._overlaps(0, one), ())
        held: list[Part] = []
        for side, code in enumerate((one, other)):
            tensor = self._facts[side].tensors[code.writes[0]]
            nothing = (tensor.kind, tensor.sizes, whole(self._nothing(one.position), tensor.nbytes))
            held.append(machine.held(side, code.writes[0]) if self._block in self._in_loop else nothing)
        for side, code in enumerate((one, other)):
            results = Results(machine, side, code, [*operands, self._canonical(held[side])], self._looping)
            ((dims, content),) = results.tensors()
            machine.write(side, code.writes[0], dims, content)

    def _compare(self, one: Code, other: Code, before: Sequence[Part], after: Sequence[Part]) -> None:
        self._outcome.reads += len(after)
        if before != after:
            for difference in self._agreement.differences(before, after):
                self._report(self._explain.operand(self._machine, one, other, difference))

    def _check_delegate(self, one: Code, other: Code) -> None:
        assert isinstance(one.call, m.DelegateCall)
        assert isinstance(other.call, m.DelegateCall)
        mine, theirs = (
            _delegate(facts, code.call.delegate_index)
            for facts, code in zip(self._facts, (one, other), strict=True)
            if isinstance(code.call, m.DelegateCall)
        )
        if mine != theirs:
            self._report(self._explain.instruction(one, other, "runs another delegate"))

    def _run_alone(self, side: int, position: int, *, paired: bool = False) -> None:
        """An instruction that only one program has, or that is another one in the other program."""
        machine, facts = self._machine, self._facts[side]
        code = facts.code[position]
        if code.act is Act.VIEW:
            run_view(machine, side, code)
        elif code.act is Act.MOVE:
            assert isinstance(code.call, m.MoveCall)
            run_move(machine, side, code.call)
        elif code.act not in (Act.FREE, Act.JUMP):
            if not code.pure or code.act is Act.ADD_ROW:
                self._report(self._explain.alone(side, code, paired=paired))
                return
            self._compute_alone(side, code)

    def _compute_alone(self, side: int, code: Code) -> None:
        machine = self._machine
        parts = machine.operands(side, code.position)
        if side == 1:
            parts = [self._canonical(part) for part in parts]
        overlaps = self._overlaps(side, code) if code.clashes and side == 0 else {}
        bad = {key: tree for key, tree in overlaps.items() if not self._is_allowed(code, key, tree)}
        results = Results(
            machine, side, code, parts, self._looping, ("overlap", tuple(sorted(bad.items(), key=str))) if bad else None
        )
        outs = (*code.writes, *code.updates)
        tensors = results.tensors() if outs else []
        if code.clashes and side == 1:
            self._check_overlaps(None, code, {}, [dims for dims, _ in tensors])
        for value, (dims, content) in zip(outs, tensors, strict=True):
            machine.write(side, value, dims, content)
        for value, number in zip(code.sets, results.numbers() if code.sets else (), strict=True):
            machine.set_number(side, value, number)

    def _canonical(self, part: Part) -> Part:
        if isinstance(part[0], tuple):
            return (part[0], part[1], self._agreement.canonical(cast(Content, part[2])))
        if part[0] == "list":
            return ("list", *(self._canonical(cast(Part, item)) for item in part[1:]))
        return part

    # Operands over outputs

    def _overlaps(self, side: int, code: Code, dims: Sequence[Dims] | None = None) -> dict[tuple[int, int, int], Tree]:
        """``(argument, which tensor of it, output)`` → how they lie to each other, where they share bytes."""
        found = {}
        for clash in code.clashes:
            tree = self._relation(side, clash, dims)
            if tree is not None:
                found[_key(self._facts[side], code, clash)] = tree
        return found

    def _relation(self, side: int, clash: Clash, dims: Sequence[Dims] | None) -> Tree:
        operand, out = (self._machine.located(side, value) for value in (clash.operand, clash.out))
        sizes = dims[clash.output] if dims else None
        return self._relate(side, clash, operand, out, sizes)

    def _relate(self, side: int, clash: Clash, one: Tree, other: Tree, sizes: Dims | None) -> Tree:
        if isinstance(one, Choice):
            ways = tuple(
                self._relate(side, clash, way, on_way(other, one.merge, number), sizes)
                for number, way in enumerate(one.ways)
            )
            return choice(one.merge, ways)
        if isinstance(other, Choice):
            return choice(other.merge, tuple(self._relate(side, clash, one, way, sizes) for way in other.ways))
        if isinstance(one, Lost) or isinstance(other, Lost):
            return one if isinstance(one, Lost) else other
        assert isinstance(one, tuple)
        assert isinstance(other, tuple)
        facts = self._facts[side]
        mine, theirs = facts.tensors[one[0]], facts.tensors[other[0]]
        if not share(mine, one[1], theirs, other[1]):  # type: ignore[arg-type]
            return None
        same = one[1] == other[1] and mine.nbytes == theirs.nbytes and mine.kind[1] == theirs.kind[1]
        same &= mine.itemsize == theirs.itemsize
        if same:
            shape = self._machine.dims(side, one[0])
            same = shape == (theirs.sizes if not theirs.dynamic else sizes if sizes is not None else shape)
        return (one[1][1] - other[1][1], int(same))  # type: ignore[index]

    def _is_allowed(self, code: Code, key: tuple[int, int, int], tree: Tree) -> bool:
        """May the operator write over the operand, however paths went?"""
        argument, item, output = key
        known = ops.IN_PLACE.get(code.name, frozenset())
        if output or item or argument not in known:
            return False
        return all(leaf is None or (isinstance(leaf, tuple) and leaf == (0, 1)) for leaf in _all(tree))

    def _check_overlaps(
        self, one: Code | None, other: Code, known: Mapping[tuple[int, int, int], Tree], dims: Sequence[Dims]
    ) -> None:
        for key, tree in self._overlaps(1, other, dims).items():
            if self._is_allowed(other, key, tree) or (key in known and _offsets(known[key]) == _offsets(tree)):
                continue
            lost = next((leaf for leaf in _all(tree) if isinstance(leaf, Lost)), None)
            if lost is not None:
                raise NotFollowedError(lost.reason)
            self._report(self._explain.overlap(self._machine, one, other, key))


def _offsets(tree: Tree) -> Tree:
    """How far apart an operand and an output lie, without whether they are of one shape."""
    return each_leaf(tree, lambda leaf: leaf[0] if isinstance(leaf, tuple) else leaf)


def _all(tree: Tree) -> Iterator[Tree]:
    if isinstance(tree, Choice):
        for way in tree.ways:
            yield from _all(way)
    else:
        yield tree


def _key(facts: Facts, code: Code, clash: Clash) -> tuple[int, int, int]:
    """Which operand it is, by its place in the instruction: 0 if it is the argument itself, else in its list."""
    if clash.argument < 0:
        outs = (*code.writes, *code.updates)
        return -1 - outs.index(clash.operand), 0, clash.output
    if code.reads[clash.argument] == clash.operand:
        return clash.argument, 0, clash.output
    inside = list(facts.list_tensors((code.reads[clash.argument],)))
    return clash.argument, 1 + inside.index(clash.operand), clash.output


def _form(facts: Facts, value: int) -> object:
    """What a value is, whatever it holds."""
    tensor = facts.tensors.get(value)
    if tensor is None:
        return type(facts.plan.values[value])
    return tensor.kind, tensor.sizes, tensor.dynamic


def _is_state(tensor: m.Tensor) -> bool:
    """Does the file say that a tensor is kept between calls?"""
    named = tensor.extra_tensor_info is not None and tensor.extra_tensor_info.fully_qualified_name is not None
    return tensor.has_initial_value or (tensor.allocation_info is not None and named)


def _loaded(constants: Constants, facts: Facts) -> dict[int, Memory]:
    """What lies in memory when the program has been loaded, by space; -1 stands for what the file does not say."""
    found: dict[int, Memory] = {}
    for value, tensor in facts.plan.tensors():
        place = facts.tensors[value].place
        if tensor.has_initial_value and place is not None and facts.tensors[value].nbytes:
            content = constants.of(facts.side, tensor)
            if content is not None:
                memory = found.setdefault(place[0], Memory.filled(-1))
                memory.write_content(place[1], ((*content, facts.tensors[value].nbytes),))
    return found


def _delegate(facts: Facts, index: int) -> object:
    delegate = facts.plan.delegates[index]
    program = facts.program
    where = delegate.processed
    inline = where.location is m.DataLocation.INLINE
    data = program.backend_delegate_data[where.index] if inline else program.segments[where.index].data
    return delegate.id, delegate.compile_specs, data


def _body(walk_: Walk, head: int) -> set[int]:
    """The blocks of a loop: those from which its head is reached again without passing it."""
    body = {head}
    waiting = [item for item in walk_.blocks[head].predecessors if walk_.is_back(item, head)]
    while waiting:
        number = waiting.pop()
        if number not in body:
            body.add(number)
            waiting += walk_.blocks[number].predecessors
    return body
