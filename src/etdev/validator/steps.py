"""Execution of one instruction, in one program or in both programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from etdev.program import model as m
from etdev.validator.domain.memory import Content
from etdev.validator.domain.numbers import Dims
from etdev.validator.domain.state import Number_, Tree
from etdev.validator.execute import Results, run_move, run_view
from etdev.validator.facts import Code, Facts
from etdev.validator.machine import whole
from etdev.validator.order import conflict
from etdev.validator.reading import Part
from etdev.validator.run import Run, form
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.operators import Act
from etdev.validator.semantics.overlap import Key, Overlaps
from etdev.validator.walk import Side, Step


@dataclass(frozen=True, slots=True)
class _Started:
    """Instruction that the program before the link has run, with its operands and results."""

    parts: list[Part]
    overlaps: dict[Key, Tree]
    """Overlaps between operands and outputs before the link."""
    tensors: list[tuple[Dims, Content | None]]
    numbers: list[Number_]


class Steps:
    """Executor of the steps of both programs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._overlaps = Overlaps(run)
        self._early: dict[int, tuple[Code, Code, _Started | None]] = {}
        """Instructions of the program before the link that have run, but whose counterparts have not run yet.

        Maps a position in that program to ``(instruction, counterpart, started)``. ``started`` is None if no operands
        must be compared.
        """

    def run(self, step: Step) -> None:
        """Execute a step, in one program or in both."""
        if step.who is Side.BEFORE:
            self._run_alone(0, step.before)
        elif step.who is Side.AFTER:
            self._run_alone(1, step.after)
        else:
            one, other = self._run.facts[0].code[step.before], self._run.facts[1].code[step.after]
            if step.who is Side.EARLY:
                self._run_early(one, other)
            elif step.who is Side.LATE:
                self._run_late(one, other)
            else:
                self._check_order(one, other)
                self._run_both(one, other)

    def end(self) -> None:
        """End a block. Report the instructions whose counterparts in the linked program have not run."""
        for one, other, _ in self._early.values():
            self._run.report(self._run.explain.order(one, other))
        self._early.clear()

    # Instructions in a different order

    def _run_early(self, one: Code, other: Code) -> None:
        """Execute an instruction of the program before the link. :meth:`_run_late` executes its counterpart."""
        started = None
        if one.act in (Act.JUMP, Act.ADD_ROW):
            self._run.report(self._run.explain.order(one, other))
        elif not self._are_alike(one, other):
            self._run_alone(0, one.position, paired=True)
        elif one.act in (Act.VIEW, Act.MOVE, Act.FREE):
            self._run_alone(0, one.position)
        else:
            started = self._start(one)
        self._early[one.position] = one, other, started

    def _run_late(self, one: Code, other: Code) -> None:
        if one.position not in self._early:
            self._run.report(self._run.explain.order(one, other))
            return
        _, _, started = self._early.pop(one.position)
        self._check_order(one, other)
        if started is not None:
            self._finish(one, other, started)
        elif not self._are_alike(one, other):
            self._run_alone(1, other.position, paired=True)
        elif one.act in (Act.VIEW, Act.MOVE, Act.FREE):
            self._run_alone(1, other.position)

    def _check_order(self, one: Code, other: Code) -> None:
        """Report an instruction that the link moved before another one, although the order of the two matters."""
        overtaken = [code for code, _, _ in self._early.values() if code.position < one.position]
        first = conflict(self._run.facts[0], one, overtaken)
        if first is not None:
            self._run.report(self._run.explain.order(one, other, first))

    def _run_both(self, one: Code, other: Code) -> None:
        machine = self._run.machine
        if one.act is Act.JUMP:
            self._compare(one, other, [machine.value(0, one.reads[0])], [machine.value(1, other.reads[0])])
        elif not self._are_alike(one, other):
            self._run_alone(0, one.position, paired=True)
            self._run_alone(1, other.position, paired=True)
        elif one.act in (Act.VIEW, Act.MOVE, Act.FREE):
            self._run_alone(0, one.position)
            self._run_alone(1, other.position)
        elif one.act is Act.ADD_ROW:
            self._add_rows(one, other)
        else:
            self._run_same(one, other)

    def _are_alike(self, one: Code, other: Code) -> bool:
        """Return whether two instructions compute the same function and have outputs of the same types and sizes."""
        if ops.same_function(one.name) != ops.same_function(other.name) or len(one.reads) != len(other.reads):
            return False
        forms = [
            [form(facts, value) for value in (*code.writes, *code.updates)]
            for facts, code in zip(self._run.facts, (one, other), strict=True)
        ]
        alike = {one.act, other.act} <= {Act.COMPUTE, Act.UPDATE} or one.act is other.act
        return alike and forms[0] == forms[1] and len(one.sets) == len(other.sets)

    def _run_same(self, one: Code, other: Code) -> None:
        """Execute the same instruction in both programs.

        Compare the operands, then write the same results in both programs.
        """
        self._finish(one, other, self._start(one))

    def _start(self, one: Code) -> _Started:
        """Execute an instruction in the program before the link."""
        machine = self._run.machine
        parts = machine.operands(0, one.position)
        known = self._overlaps.find(0, one) if one.clashes else {}
        results = Results(machine, 0, one, parts, self._run.in_loop, self._tag(one, known, paired=True))
        started = _Started(parts, known, results.tensors(), results.numbers())
        for value, (dims, content) in zip((*one.writes, *one.updates), started.tensors, strict=True):
            machine.write(0, value, dims, content)
        for value, number in zip(one.sets, started.numbers, strict=True):
            machine.set_number(0, value, number)
        return started

    def _finish(self, one: Code, other: Code, started: _Started) -> None:
        """Execute the same instruction in the program after the link: compare its operands, write the same results."""
        machine = self._run.machine
        after = machine.operands(1, other.position)
        if isinstance(one.call, m.DelegateCall):
            self._check_delegate(one, other)
        self._compare(one, other, started.parts, after)
        if other.clashes:
            self._overlaps.check(one, other, started.overlaps, [dims for dims, _ in started.tensors])
        for value, (dims, content) in zip((*other.writes, *other.updates), started.tensors, strict=True):
            machine.write(1, value, dims, content)
        for value, number in zip(other.sets, started.numbers, strict=True):
            machine.set_number(1, value, number)

    def _tag(self, code: Code, overlaps: dict[Key, Tree], *, paired: bool) -> object:
        """Return a key for all influences on the result besides the operands; None if there are no other influences."""
        forbidden = self._overlaps.forbidden(code, overlaps)
        if forbidden:  # The result depends on the addresses of the operands.
            return code.position, tuple(sorted((key, str(tree)) for key, tree in forbidden.items()))
        same_each_time = code.pure and not (paired and code.act is Act.RESIZE)
        return None if same_each_time else code.position

    def _add_rows(self, one: Code, other: Code) -> None:
        """Execute an instruction that appends a row to a tensor, in both programs.

        Earlier rows are not compared here. If they differ, the comparison at a later read finds the difference.
        """
        machine = self._run.machine
        before, after = machine.operands(0, one.position), machine.operands(1, other.position)
        self._compare(one, other, before, after)
        if other.clashes:
            self._overlaps.check(one, other, self._overlaps.find(0, one), ())
        parts = []
        for side, code in enumerate((one, other)):
            tensor = self._run.facts[side].tensors[code.writes[0]]
            nothing = (tensor.kind, tensor.sizes, whole(self._run.no_rows(one.position), tensor.nbytes))
            held = machine.held(side, code.writes[0]) if self._run.in_body else nothing
            parts.append([*before, self._canonical(held)])
        for side, code in enumerate((one, other)):
            ((dims, content),) = Results(machine, side, code, parts[side], self._run.in_loop).tensors()
            machine.write(side, code.writes[0], dims, content)

    def _compare(self, one: Code, other: Code, before: Sequence[Part], after: Sequence[Part]) -> None:
        self._run.reads += len(after)
        if before != after:
            for difference in self._run.agreement.differences(before, after):
                self._run.report(self._run.explain.operand(self._run.machine, one, other, difference))

    def _check_delegate(self, one: Code, other: Code) -> None:
        mine, theirs = (_delegate(facts, code.call) for facts, code in zip(self._run.facts, (one, other), strict=True))
        if mine != theirs:
            self._run.report(self._run.explain.instruction(one, other, "runs a different delegate"))

    # Instructions of one program alone

    def _run_alone(self, side: int, position: int, *, paired: bool = False) -> None:
        """Execute an instruction of one program.

        If ``paired`` is set, the other program has a different instruction at this point.
        """
        code = self._run.facts[side].code[position]
        if code.act is Act.VIEW:
            if not run_view(self._run.machine, side, code):
                self._run.report(self._run.explain.view(code))
        elif code.act is Act.MOVE:
            assert isinstance(code.call, m.MoveCall)
            run_move(self._run.machine, side, code.call)
        elif code.act in (Act.FREE, Act.JUMP):
            pass
        elif not code.pure or code.act is Act.ADD_ROW:
            self._run.report(self._run.explain.alone(side, code, paired=paired))
        else:
            self._compute_alone(side, code)

    def _compute_alone(self, side: int, code: Code) -> None:
        machine = self._run.machine
        parts = machine.operands(side, code.position)
        if side == 1:
            parts = [self._canonical(part) for part in parts]
        known = self._overlaps.find(0, code) if code.clashes and side == 0 else {}
        results = Results(machine, side, code, parts, self._run.in_loop, self._tag(code, known, paired=False))
        tensors = results.tensors()
        if code.clashes and side == 1:
            self._overlaps.check(None, code, {}, [dims for dims, _ in tensors])
        for value, (dims, content) in zip((*code.writes, *code.updates), tensors, strict=True):
            machine.write(side, value, dims, content)
        for value, number in zip(code.sets, results.numbers(), strict=True):
            machine.set_number(side, value, number)

    def _canonical(self, part: Part) -> Part:
        """Return an operand of the linked program in symbols of the program before the link, where possible."""
        if isinstance(part[0], tuple):
            return (part[0], part[1], self._run.agreement.canonical(cast(Content, part[2])))
        if part[0] == "list":
            return ("list", *(self._canonical(cast(Part, item)) for item in part[1:]))
        return part


def _delegate(facts: Facts, call: m.Instruction | None) -> object:
    """Return a key that is equal for delegates with the same id, compile specs and data."""
    assert isinstance(call, m.DelegateCall)
    delegate = facts.plan.delegates[call.delegate_index]
    where = delegate.processed
    inline = where.location is m.DataLocation.INLINE
    data = facts.program.backend_delegate_data[where.index] if inline else facts.program.segments[where.index].data
    return delegate.id, delegate.compile_specs, data
