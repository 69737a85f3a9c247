"""The beginning and the end of a method, where the caller stands, and the calls before and after."""

from __future__ import annotations

from etdev.program import model as m
from etdev.validator.agree import Assumed
from etdev.validator.constants import Constants
from etdev.validator.facts import CONSTANT, Facts
from etdev.validator.machine import Part, whole
from etdev.validator.memory import Memory
from etdev.validator.numbers import unknown
from etdev.validator.run import Run, form
from etdev.validator.state import At, Dims
from etdev.validator.symbols import INPUT
from etdev.validator.walk import Apart


class Ends:
    """Fills the inputs, reads the outputs."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _check_outside(self) -> None:
        """What does not depend on any path: extents, and the types of inputs and outputs."""
        before, after = self._run.facts
        for violation in self._run.explain.extents():
            self._run.report(violation)
        for kind in ("inputs", "outputs"):
            mine, theirs = getattr(before.plan, kind), getattr(after.plan, kind)
            if len(mine) != len(theirs):
                raise Apart(f"it has {len(theirs)} {kind} instead of {len(mine)}", 0, 0)
            for number, (one, other) in enumerate(zip(mine, theirs, strict=True)):
                if form(before, one) != form(after, other):
                    self._run.report(self._run.explain.outside(f"{kind[:-1]} {number} has another type or size", other))

    def _enter(self) -> None:
        """The caller fills the inputs."""
        machine = self._run.machine
        for side, facts in enumerate(self._run.facts):
            for number, value in enumerate(facts.plan.inputs):
                tensor = facts.tensors.get(value)
                if tensor is not None:
                    sizes: Dims = tensor.sizes
                    if tensor.dynamic:
                        sizes = tuple(
                            unknown(self._run.symbols.number((INPUT, "size", number, dim)))
                            for dim in range(len(tensor.sizes))
                        )
                    machine.write(side, value, sizes, whole(self._run.symbols.number((INPUT, number)), tensor.nbytes))
        self._assume_state()

    def _assume_state(self) -> None:
        """What the file says is state is the same at first; that it is again at the end is checked there."""
        before, after = self._run.facts
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
            if place[0] == CONSTANT or not self._run.agreement.assume(assumed):
                self._run.report(self._run.explain.state(twin, "begins with another content"))

    def _leave(self) -> None:
        """The caller reads the outputs; what the next call finds is the same."""
        machine = self._run.machine
        for number, (one, other) in enumerate(
            zip(self._run.facts[0].plan.outputs, self._run.facts[1].plan.outputs, strict=True)
        ):
            mine, theirs = machine.value(0, one), machine.value(1, other)
            self._run.reads += 1
            for difference in self._run.agreement.differences([mine], [theirs]):
                self._run.report(self._run.explain.output(machine, number, other, difference))
            self._check_caller_memory(number, one, other)
        self._check_left_numbers()
        index = 0
        while index < len(self._run.agreement.assumed):
            self._check_assumed(self._run.agreement.assumed[index])
            index += 1

    def _check_caller_memory(self, number: int, one: int, other: int) -> None:
        """An output for which the caller brings memory is there at the end."""
        facts = self._run.facts[1]
        tensor = facts.tensors.get(other)
        if tensor is None or tensor.place is None or tensor.place[0] >= CONSTANT or tensor.planned:
            return
        leaf = self._run.machine.located(1, other)
        mine = self._run.machine.located(0, one)
        if leaf != (other, tensor.place) and not isinstance(mine, Choice | Lost) and mine[1] != leaf[1:]:  # type: ignore[index]
            self._run.report(self._run.explain.caller(number, other))

    def _check_left_numbers(self) -> None:
        machine = self._run.machine
        for side, value in sorted(machine.left_numbers | machine.left_dims):
            if side == 0 or value not in machine.pairs:
                continue
            twin = machine.pairs[value]
            if (side, value) in machine.left_numbers:
                same = machine.number(0, twin) == machine.number(1, value)
                same &= self._run.facts[0].plan.values[twin] == self._run.facts[1].plan.values[value]
            else:
                same = machine.dims(0, twin) == machine.dims(1, value)
                same &= self._run.facts[0].tensors[twin].sizes == self._run.facts[1].tensors[value].sizes
            if not same:
                self._run.unlike.add(value)

    def _check_assumed(self, assumed: Assumed) -> None:
        self._run.reads += 1
        mine = self._run.machine.stored(0, (assumed.before_space, assumed.before), assumed.length, assumed.length)
        theirs = self._run.machine.stored(1, (assumed.after_space, assumed.after), assumed.length, assumed.length)
        part: Part = ((), (), mine)
        for difference in self._run.agreement.differences([part], [((), (), theirs)]):
            self._run.report(self._run.explain.kept(assumed, difference))



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


