"""One instruction, in one program or in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from etdev.program import model as m
from etdev.validator import operators as ops
from etdev.validator.execute import Results, run_move, run_view
from etdev.validator.facts import Code, Facts
from etdev.validator.machine import Part, whole
from etdev.validator.memory import Content
from etdev.validator.operators import Act
from etdev.validator.overlap import Overlaps
from etdev.validator.run import Run, form
from etdev.validator.walk import Step, Who


class Steps:
    """Executes instructions."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._overlaps = Overlaps(run)

    def run(self, step: Step) -> None:
        """Execute what runs in a step."""
        if step.who is Who.BOTH:
            self._run_both(step.before, step.after)
        else:
            side = 0 if step.who is Who.BEFORE else 1
            self._run_alone(side, step.before if side == 0 else step.after)

    def _run_both(self, here: int, there: int) -> None:
        machine = self._run.machine
        one, other = self._run.facts[0].code[here], self._run.facts[1].code[there]
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
            [form(facts, value) for value in (*code.writes, *code.updates)]
            for facts, code in zip(self._run.facts, (one, other), strict=True)
        ]
        alike = {one.act, other.act} <= {Act.COMPUTE, Act.UPDATE} or one.act is other.act
        return alike and forms[0] == forms[1] and len(one.sets) == len(other.sets)

    def _run_same(self, one: Code, other: Code) -> None:
        """The same instruction in both programs."""
        machine = self._run.machine
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
        results = Results(machine, 0, one, before, self._run.in_loop, tag)
        tensors = results.tensors() if outs[0] else []
        if other.clashes:
            self._check_overlaps(one, other, overlaps, [dims for dims, _ in tensors])
        for mine, theirs, (dims, content) in zip(*outs, tensors, strict=True):
            machine.write(0, mine, dims, content)
            machine.write(1, theirs, dims, content)
        for mine, theirs, number in zip(one.sets, other.sets, results.numbers() if one.sets else (), strict=True):
            if mine in self._run.facts[0].variable:
                machine.set_number(0, mine, number)
            if theirs in self._run.facts[1].variable:
                machine.set_number(1, theirs, number)

    def _add_rows(self, one: Code, other: Code, operands: Sequence[Part]) -> None:
        """A row is put behind those that the instruction itself has written; nobody has to need them."""
        machine = self._run.machine
        if other.clashes:
            self._check_overlaps(one, other, self._overlaps(0, one), ())
        held: list[Part] = []
        for side, code in enumerate((one, other)):
            tensor = self._run.facts[side].tensors[code.writes[0]]
            nothing = (tensor.kind, tensor.sizes, whole(self._run.no_rows(one.position), tensor.nbytes))
            held.append(machine.held(side, code.writes[0]) if self._run.in_body else nothing)
        for side, code in enumerate((one, other)):
            results = Results(machine, side, code, [*operands, self._canonical(held[side])], self._run.in_loop)
            ((dims, content),) = results.tensors()
            machine.write(side, code.writes[0], dims, content)

    def _compare(self, one: Code, other: Code, before: Sequence[Part], after: Sequence[Part]) -> None:
        self._run.reads += len(after)
        if before != after:
            for difference in self._run.agreement.differences(before, after):
                self._run.report(self._run.explain.operand(self._run.machine, one, other, difference))

    def _check_delegate(self, one: Code, other: Code) -> None:
        assert isinstance(one.call, m.DelegateCall)
        assert isinstance(other.call, m.DelegateCall)
        mine, theirs = (
            _delegate(facts, code.call.delegate_index)
            for facts, code in zip(self._run.facts, (one, other), strict=True)
            if isinstance(code.call, m.DelegateCall)
        )
        if mine != theirs:
            self._run.report(self._run.explain.instruction(one, other, "runs another delegate"))

    def _run_alone(self, side: int, position: int, *, paired: bool = False) -> None:
        """An instruction that only one program has, or that is another one in the other program."""
        machine, facts = self._run.machine, self._run.facts[side]
        code = facts.code[position]
        if code.act is Act.VIEW:
            run_view(machine, side, code)
        elif code.act is Act.MOVE:
            assert isinstance(code.call, m.MoveCall)
            run_move(machine, side, code.call)
        elif code.act not in (Act.FREE, Act.JUMP):
            if not code.pure or code.act is Act.ADD_ROW:
                self._run.report(self._run.explain.alone(side, code, paired=paired))
                return
            self._compute_alone(side, code)

    def _compute_alone(self, side: int, code: Code) -> None:
        machine = self._run.machine
        parts = machine.operands(side, code.position)
        if side == 1:
            parts = [self._canonical(part) for part in parts]
        overlaps = self._overlaps(side, code) if code.clashes and side == 0 else {}
        bad = {key: tree for key, tree in overlaps.items() if not self._is_allowed(code, key, tree)}
        results = Results(
            machine, side, code, parts, self._run.in_loop, ("overlap", tuple(sorted(bad.items(), key=str))) if bad else None
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
            return (part[0], part[1], self._run.agreement.canonical(cast(Content, part[2])))
        if part[0] == "list":
            return ("list", *(self._canonical(cast(Part, item)) for item in part[1:]))
        return part



def _delegate(facts: Facts, index: int) -> object:
    delegate = facts.plan.delegates[index]
    program = facts.program
    where = delegate.processed
    inline = where.location is m.DataLocation.INLINE
    data = program.backend_delegate_data[where.index] if inline else program.segments[where.index].data
    return delegate.id, delegate.compile_specs, data


