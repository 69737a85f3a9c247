"""Execution of one instruction, in one program or in both programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from etdev.program import model as m
from etdev.validator.domain.memory import Content
from etdev.validator.domain.state import Tree
from etdev.validator.execute import Results, run_move, run_view
from etdev.validator.facts import Code, Facts
from etdev.validator.machine import whole
from etdev.validator.reading import Part
from etdev.validator.run import Run, form
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.operators import Act
from etdev.validator.semantics.overlap import Key, Overlaps
from etdev.validator.walk import Side, Step


class Steps:
    """Executor of the steps of both programs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._overlaps = Overlaps(run)

    def run(self, step: Step) -> None:
        """Execute a step, in one program or in both."""
        if step.who is Side.BEFORE:
            self._run_alone(0, step.before)
        elif step.who is Side.AFTER:
            self._run_alone(1, step.after)
        else:
            self._run_both(self._run.facts[0].code[step.before], self._run.facts[1].code[step.after])

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

        Equal operands lead to equal results.
        """
        machine = self._run.machine
        before, after = machine.operands(0, one.position), machine.operands(1, other.position)
        if isinstance(one.call, m.DelegateCall):
            self._check_delegate(one, other)
        self._compare(one, other, before, after)
        known = self._overlaps.find(0, one) if one.clashes else {}
        results = Results(machine, 0, one, before, self._run.in_loop, self._tag(one, known, paired=True))
        tensors = results.tensors()
        if other.clashes:
            self._overlaps.check(one, other, known, [dims for dims, _ in tensors])
        outs = [(*code.writes, *code.updates) for code in (one, other)]
        for mine, theirs, (dims, content) in zip(*outs, tensors, strict=True):
            machine.write(0, mine, dims, content)
            machine.write(1, theirs, dims, content)
        for mine, theirs, number in zip(one.sets, other.sets, results.numbers(), strict=True):
            machine.set_number(0, mine, number)
            machine.set_number(1, theirs, number)

    def _tag(self, code: Code, overlaps: dict[Key, Tree], *, paired: bool) -> object:
        """Return a key for facts other than the operands that affect the result, or None if there are no such facts."""
        forbidden = self._overlaps.forbidden(code, overlaps)
        if forbidden:  # The result depends on the addresses of the operands.
            return code.position, tuple(sorted((key, str(tree)) for key, tree in forbidden.items()))
        same_each_time = code.pure and not (paired and code.act is Act.RESIZE)
        return None if same_each_time else code.position

    def _add_rows(self, one: Code, other: Code) -> None:
        """Execute an instruction that appends a row to a tensor, in both programs.

        Earlier rows are not compared here. The instruction that reads the rows shows any difference.
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
            self._run.report(self._run.explain.instruction(one, other, "runs another delegate"))

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
        """Express an operand of the linked program in symbols of the program before the link, where possible."""
        if isinstance(part[0], tuple):
            return (part[0], part[1], self._run.agreement.canonical(cast(Content, part[2])))
        if part[0] == "list":
            return ("list", *(self._canonical(cast(Part, item)) for item in part[1:]))
        return part


def _delegate(facts: Facts, call: m.Instruction | None) -> object:
    """Return a key of everything that determines the function of a delegate."""
    assert isinstance(call, m.DelegateCall)
    delegate = facts.plan.delegates[call.delegate_index]
    where = delegate.processed
    inline = where.location is m.DataLocation.INLINE
    data = facts.program.backend_delegate_data[where.index] if inline else facts.program.segments[where.index].data
    return delegate.id, delegate.compile_specs, data
