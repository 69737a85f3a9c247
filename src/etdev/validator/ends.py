"""Start and end of a method: inputs, outputs, and state between calls."""

from __future__ import annotations

from etdev.program import model as m
from etdev.validator.agree import Assumed
from etdev.validator.domain.numbers import Dims, unknown
from etdev.validator.domain.state import At
from etdev.validator.domain.symbols import INPUT
from etdev.validator.facts import CONSTANT
from etdev.validator.machine import whole
from etdev.validator.run import Run, form


class Ends:
    """Part of the proof about the start and the end of a method: inputs, outputs, and state between calls.

    The proof compares the object program and the linked program.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def check_outside(self) -> None:
        """Check tensor bounds, writes to constants, and the types of inputs and outputs, for all paths at once."""
        before, after = self._run.facts
        for violation in (*self._run.explain.extents(), *self._run.explain.written_constants()):
            self._run.report(violation)
        for kind, mine, theirs in (
            ("input", before.plan.inputs, after.plan.inputs),
            ("output", before.plan.outputs, after.plan.outputs),
        ):
            for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
                if form(before, one) != form(after, other):
                    self._run.report(self._run.explain.outside(f"{kind} {number} has a different type or size", other))

    def enter(self) -> None:
        """Write the same symbolic inputs in both programs, and assume that both programs have equal state."""
        machine = self._run.machine
        for side, facts in enumerate(self._run.facts):
            for number, value in enumerate(facts.plan.inputs):
                tensor = facts.tensors.get(value)
                if tensor is not None:
                    symbol = self._run.symbols.number((INPUT, number))
                    machine.write(side, value, self.input_dims(side, number, value), whole(symbol, tensor.nbytes))
        self._assume_state()

    def input_dims(self, side: int, number: int, value: int) -> Dims:
        """Return the sizes that a caller passes for an input."""
        tensor = self._run.facts[side].tensors[value]
        if not tensor.dynamic:
            return tensor.sizes
        symbols = self._run.symbols
        return tuple(unknown(symbols.number((INPUT, "size", number, dim))) for dim in range(len(tensor.sizes)))

    def _assume_state(self) -> None:
        """Assume that state declared in the file is equal at the start. :meth:`leave` checks this state at the end."""
        before, after = self._run.facts
        # Copies of state for delegates on devices are not state themselves.
        twins = {
            one: other
            for other, one in self._run.machine.pairs.items()
            if isinstance(tensor := after.plan.values[other], m.Tensor) and _is_state(tensor)
        }
        for value, tensor in before.plan.tensors():
            facts = before.tensors[value]
            twin = after.tensors.get(twins.get(value, -1))
            if not _is_state(tensor) or facts.place is None or not facts.nbytes:
                continue
            # State that only one program has is compared where an instruction reads it.
            if twin is None or twin.place is None or twin.place[0] <= CONSTANT or twin.nbytes != facts.nbytes:
                continue
            if not self._run.agreement.assume(Assumed(*facts.place, *twin.place, facts.nbytes)):
                self._run.report(self._run.explain.state(twin.value, "has a different initial content"))

    def leave(self) -> None:
        """Compare the outputs, and compare the state that the next call will find."""
        run = self._run
        outputs = [facts.plan.outputs for facts in run.facts]
        for number, (one, other) in enumerate(zip(*outputs, strict=True)):
            run.reads += 1
            for difference in run.agreement.differences([run.machine.value(0, one)], [run.machine.value(1, other)]):
                run.report(run.explain.output(run.machine, number, other, difference))
            self._check_caller_memory(number, one, other)
        self._check_inputs()
        self._check_left()
        index = 0
        while index < len(run.agreement.assumed):  # A comparison can add assumptions, which are checked, too.
            self._check_assumed(run.agreement.assumed[index])
            index += 1

    def _check_inputs(self) -> None:
        """Report inputs in the caller's memory that the two programs leave with different contents."""
        run = self._run
        for number, (one, other) in enumerate(zip(*(facts.plan.inputs for facts in run.facts), strict=True)):
            tensor = run.facts[0].tensors.get(one)
            if tensor is None or tensor.place is None or tensor.place[0] >= CONSTANT:
                continue
            for difference in run.agreement.differences([run.machine.value(0, one)], [run.machine.value(1, other)]):
                run.report(run.explain.input(run.machine, number, other, difference))

    def _check_caller_memory(self, number: int, one: int, other: int) -> None:
        """Report an output that the link moved out of the caller's memory."""
        tensor = self._run.facts[1].tensors.get(other)
        if tensor is None or tensor.place is None or tensor.place[0] >= CONSTANT:
            return
        mine, theirs = self._run.machine.located(0, one), self._run.machine.located(1, other)
        was_elsewhere = not isinstance(mine, At) or mine.place != self._run.facts[0].tensors[one].place
        if theirs != At(other, tensor.place) and not was_elsewhere:
            self._run.report(self._run.explain.caller(number, other))

    def _check_left(self) -> None:
        """Find values that the next call reads, and whose number or sizes differ between the programs after a call.

        Add these values to ``Run.unlike``.
        """
        machine, (before, after) = self._run.machine, self._run.facts
        for side, value in sorted(machine.left_numbers | machine.left_dims):
            if side == 0 or value not in machine.pairs:
                continue
            twin = machine.pairs[value]
            if value in after.tensors:
                same = machine.dims(0, twin) == machine.dims(1, value)
                same &= before.tensors[twin].sizes == after.tensors[value].sizes
            else:
                same = machine.number(0, twin) == machine.number(1, value)
                same &= before.plan.values[twin] == after.plan.values[value]
            if not same:
                self._run.unlike.add(value)

    def _check_assumed(self, assumed: Assumed) -> None:
        run = self._run
        run.reads += 1
        mine = run.machine.stored(0, (assumed.before_space, assumed.before), assumed.length, assumed.length)
        theirs = run.machine.stored(1, (assumed.after_space, assumed.after), assumed.length, assumed.length)
        for difference in run.agreement.differences([((), (), mine)], [((), (), theirs)]):
            run.report(run.explain.kept(assumed, difference))


def _is_state(tensor: m.Tensor) -> bool:
    """Return whether the file declares that a tensor keeps its content between calls."""
    return tensor.has_initial_value or (tensor.allocation_info is not None and tensor.name is not None)
