"""Validation of a single file: finds reads of values whose bytes have been overwritten with other values.

A file does not state the intended content of its values. If an instruction writes all bytes of a value, every read of
the value is expected to find this result. A read that finds the result of another value is an error. A value that no
instruction writes counts as a view of other values, or as state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from etdev.program import model as m
from etdev.validator.agree import Agreement
from etdev.validator.constants import Constants
from etdev.validator.domain.memory import Content
from etdev.validator.domain.merge import AGAIN, Merges
from etdev.validator.domain.numbers import TooManyTermsError
from etdev.validator.domain.state import At, leaves
from etdev.validator.domain.symbols import INITIAL, INPUT, LOOP, MERGE, OTHER, Symbols
from etdev.validator.ends import Ends
from etdev.validator.execute import Results, run_move, run_view
from etdev.validator.explain import Explainer
from etdev.validator.facts import CONSTANT, Code, Facts
from etdev.validator.loop import Loop
from etdev.validator.machine import Machine, whole
from etdev.validator.paths import Layout, Paths
from etdev.validator.reading import NotFollowedError
from etdev.validator.report import NotValidated, ValidationReport, Violation
from etdev.validator.run import Run
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.operators import Act
from etdev.validator.steps import Steps
from etdev.validator.unwritten import Unwritten, Write
from etdev.validator.walk import Divergence, Step, walk

_WRITTEN, _CHANGED = "written", "changed"


def validate_file(program: m.Program, delegate_inputs: Mapping[str, Mapping[int, int]]) -> ValidationReport:
    """Find reads of overwritten values, and reads of bytes that are never written.

    ``delegate_inputs`` has one map for each method: from the position of a delegate call to the call's number of
    inputs.
    """
    symbols = Symbols()
    constants = Constants(symbols, program, program)
    violations: list[Violation] = []
    never: list[Violation] = []
    overlapping: list[Violation] = []
    methods: list[_File] = []
    skipped: list[NotValidated] = []
    reads = count = 0
    written = [_written_places(program, plan, delegate_inputs.get(plan.name, {})) for plan in program.execution_plan]
    for number, plan in enumerate(program.execution_plan):
        inputs = delegate_inputs.get(plan.name, {})
        others = [places for index, found in enumerate(written) for places in found if index == number or places[0] > 1]
        method = _File(symbols, constants, _facts(program, plan, inputs, constants), others)
        reason = method.run()
        if reason is not None:
            skipped.append(NotValidated(plan.name, reason))
            continue
        violations += method.clobbered
        never += method.never_written
        overlapping += method.overlapping
        reads += method.reads
        count += len(method.facts.code)
        methods.append(method)
    stale = _stale_reads(methods) if not skipped else []
    violations += [violation for violation, certain in stale if certain]
    return ValidationReport(
        tuple(violations),
        tuple(skipped),
        count,
        reads,
        tuple(never),
        tuple(overlapping),
        tuple(violation for violation, certain in stale if not certain),
    )


def _stale_reads(methods: Sequence[_File]) -> list[tuple[Violation, bool]]:
    """Return ``(violation, certain)`` for each read of a value whose write is missing.

    ``certain`` is False if a valid file could also contain such a read. Methods share buffers 2 and
    above. So if one method keeps state there, the bytes count as state in all methods.
    """
    for method in methods:
        for other in methods if len(methods) > 1 else ():
            method.unwritten.state.update(place for place in other.unwritten.state if place[0] > 1)
    return [found for method in methods for found in method.stale_reads()]


def _facts(program: m.Program, plan: m.ExecutionPlan, inputs: Mapping[int, int], constants: Constants) -> Facts:
    known = {
        index: found
        for index, tensor in plan.tensors()
        if tensor.is_constant and (found := constants.of(0, tensor)) is not None
    }
    return Facts(0, program, plan, inputs, known)


def _written_places(program: m.Program, plan: m.ExecutionPlan, inputs: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return the extents of all tensors that a method writes, or that have content before the method runs.

    Each extent is ``(buffer, first byte, end byte)``, with an exclusive end.
    """
    facts = Facts(0, program, plan, inputs, {})
    values = {*plan.inputs, *(value for code in facts.code for value in (*code.writes, *code.updates))}
    values.update(index for index, tensor in plan.tensors() if tensor.has_initial_value)
    if facts.roving:  # A write to a moved or viewed value may go to any tensor.
        values.update(value for value in facts.tensors if values & facts.roving)
    found = []
    for value in values:
        tensor = facts.tensors.get(value)
        if tensor is not None and tensor.place is not None and tensor.place[0] > CONSTANT:
            found.append((*tensor.place, tensor.end))
    return found


class _File:
    """Validation of one method of a file."""

    def __init__(
        self, symbols: Symbols, constants: Constants, facts: Facts, written: Sequence[tuple[int, int, int]]
    ) -> None:
        self.facts = facts
        self._symbols = symbols
        self._agreement = Agreement(symbols, constants, ({}, {}))
        self._written = written
        self.clobbered: list[Violation] = []
        self.never_written: list[Violation] = []
        self.overlapping: list[Violation] = []
        self.unwritten: Unwritten
        self.reads = 0

    def run(self) -> str | None:
        """Execute the method with symbols for contents. Return a reason if the validator cannot follow the method."""
        facts = self.facts
        for code in facts.code:
            if isinstance(code.call, m.DelegateCall) and code.position not in facts.delegate_inputs:
                return f"the file does not say which arguments of instruction {code.position} ({code.name}) are outputs"
        try:
            layout = Layout(walk(facts, facts, {position: position for position in range(len(facts.code))}))
        except Divergence as apart:
            return str(apart)
        pair = facts, facts
        merges = Merges(self._symbols, layout.bits, layout.bodies)
        machine = Machine(self._symbols, pair, merges, layout.ways, lambda content: content)
        run = Run(self._symbols, pair, machine, self._agreement, Explainer(self._symbols, pair, {}))
        steps = _FileSteps(run, self._written)
        self._explain, self.unwritten = run.explain, steps.unwritten
        paths = Paths(run, layout, steps, _FileEnds(run, steps))
        steps.loops = paths.loops
        try:
            paths.run()
        except TooManyTermsError:
            return "the formulas for the method's tensor sizes have too many terms"
        except NotFollowedError as reason:
            return str(reason)
        self.reads = run.reads
        self.clobbered = [item for item in run.violations if item.kind == "clobbered"]
        self.never_written = [item for item in run.violations if item.kind == "never written"]
        self.overlapping = [item for item in run.violations if item.kind == "overlap"]
        return None

    def stale_reads(self) -> Iterator[tuple[Violation, bool]]:
        """Yield ``(violation, certain)`` for each read of a value whose write is missing.

        ``certain`` is False if a valid file could also contain such a read.
        """
        for item in self.unwritten.find():
            yield self._explain.unwritten(item), item.certain


_NO_BYTES = (Act.VIEW, Act.SIZE)
"""Kinds of instructions that do not read the bytes of their operands."""


class _FileSteps(Steps):
    """Symbolic executor that finds the writer of each byte that is read. Every write has a symbol of its own."""

    def __init__(self, run: Run, written: Sequence[tuple[int, int, int]]) -> None:
        super().__init__(run)
        self._written = frozenset(written)
        self._facts = run.facts[0]
        self._on_devices = {entry.buffer_idx for entry in self._facts.plan.non_const_buffer_device if entry.device_type}
        self.unwritten = Unwritten(self._facts, self._on_devices)
        self.loops: Mapping[int, Loop] = {}
        self._owned = {
            value
            for code in self._facts.code
            for value in code.writes
            if code.act not in (Act.ADD_ROW, Act.RESIZE, Act.VIEW)
        }.union(self._facts.plan.inputs)
        """Values whose bytes are all written by one instruction, or by the caller."""
        self._by_delegates = {value for code in self._facts.code if code.act is Act.DELEGATE for value in code.writes}

    def run(self, step: Step) -> None:
        """Execute an instruction."""
        machine, code = self._run.machine, self._facts.code[step.before]
        for value in dict.fromkeys(self._facts.list_tensors(code.reads)) if code.act not in _NO_BYTES else ():
            self.read(code, value)
        if code.act is Act.VIEW:
            run_view(machine, 0, code)
        elif isinstance(code.call, m.MoveCall):
            run_move(machine, 0, code.call)
        elif code.act not in (Act.JUMP, Act.FREE):
            self._write(code)

    def _write(self, code: Code) -> None:
        machine = self._run.machine
        again = machine.merges.bit(AGAIN) if self._run.in_loop else 0
        parts = machine.operands(0, code.position)
        if code.act is Act.ADD_ROW:
            parts.append(machine.held(0, code.writes[0]))
        for overlap in self._overlaps.forbidden(code, self._overlaps.find(0, code)) if code.clashes else ():
            self._run.report(self._run.explain.overlap(machine, None, code, overlap))
        results = Results(machine, 0, code, parts, self._run.in_loop, code.position)
        for number, (value, (dims, _)) in enumerate(zip((*code.writes, *code.updates), results.tensors(), strict=True)):
            if code.act is Act.RESIZE:
                machine.write(0, value, dims, None)
                continue
            whole_one = number < len(code.writes) and code.act is not Act.ADD_ROW
            before: object = None if whole_one else machine.held_anywhere(0, value)
            key = (OTHER, _WRITTEN if whole_one else _CHANGED, code.position, value, before)
            symbol = self._run.symbols.number(key, again)
            machine.write(0, value, dims, whole(symbol, self._facts.tensors[value].nbytes))
        for value, found in zip(code.sets, results.numbers(), strict=True):
            machine.set_number(0, value, found)

    # Reading

    def read(self, code: Code | None, value: int) -> None:
        """Check that a reader of a value finds the content written to that value. ``code`` is None for the caller."""
        self._run.reads += 1
        machine = self._run.machine
        shadow = machine.state.shadows[0].get(value)
        if shadow is None:
            for at, content in machine.contents(0, value):
                self._read_at(code, value, at, self._owners(at), content)
            return
        # The value refers to another tensor in each iteration of a loop.
        tensors = [leaf for leaf in leaves(machine.located(0, value)) if isinstance(leaf, At)]
        owners = [self._owners(at) for at in tensors]
        if tensors and all(found & self._owned for found in owners):  # No tensor is a view of other values.
            self._read_at(code, value, tensors[0], set().union(*owners), shadow[2])

    def _read_at(self, code: Code | None, value: int, at: At, owners: set[int], content: Content) -> None:
        if at.place is None or at.place[0] <= CONSTANT:
            return
        start = at.place[1]
        for symbol, _, length in content:
            self._check(code, value, owners, (at.place[0], start, start + length), symbol)
            start += length

    def _owners(self, at: At) -> set[int]:
        """Return the values that own a tensor's bytes: the tensor itself, or the values of which it is a view."""
        view = self._facts.tensors[at.tensor]
        if view.place == at.place:
            return {at.tensor}
        return {
            value
            for value, tensor in self._facts.tensors.items()
            if tensor.place == at.place and (tensor.nbytes >= view.nbytes or view.dynamic)
        }

    def _check(self, code: Code | None, value: int, owners: set[int], place: tuple[int, int, int], symbol: int) -> None:
        explain = self._run.explain
        leaves = self._leaves(symbol)
        writers = list(self._writers(leaves))
        self.unwritten.note_read(code, value, owners, writers)
        if any(key[0] == INITIAL for key in leaves):
            self.unwritten.note_state(place)
            counts = place[0] in self._on_devices or self._run.symbols.keys[symbol][0] == INITIAL
            if counts and not self._is_written(place, owners) and not any(map(self._begins, owners)):
                self._run.report(explain.never_written(code, value, place))
                return
        if not owners & self._owned and not self._is_part_on_device(place[0], owners, writers):
            return
        for position, other in writers:
            if other not in owners:
                self._run.report(explain.clobbered(code, value, place, position))
                return

    def _extents(self, values: Iterable[int]) -> set[tuple[int, int, int]]:
        """Return ``(buffer, first byte, end byte)`` for each of these tensors. The end is exclusive."""
        tensors = (self._facts.tensors[value] for value in values)
        return {(*tensor.place, tensor.end) for tensor in tensors if tensor.place is not None}

    def _is_part_on_device(self, buffer: int, owners: set[int], writers: Iterable[Write]) -> bool:
        """Return True if bytes are on a device, and no tensor that is written there has the extent of an owner.

        Kernels run on the host, so a tensor on a device is never a view of a part of another tensor. Therefore, the
        result True shows that a copy to the device is missing.
        """
        found = self._extents(other for _, other in writers)
        return buffer in self._on_devices and bool(found) and self._extents(owners).isdisjoint(found)

    def _is_written(self, place: tuple[int, int, int], owners: set[int]) -> bool:
        """Return whether an instruction writes to a place, so that the bytes may be state from an earlier call.

        On a device, the bytes count as written in two cases. Either a delegate writes one of the ``owners``. Or an
        instruction writes a tensor with the extent of an owner. In the second case, the extent does not count if
        a copy from or to the host also uses it. Such a copy uses the bytes at another time.
        """
        buffer, start, end = place
        if buffer in self._on_devices:
            copies = [code for code in self._facts.code if code.name in (ops.TO_HOST, ops.TO_DEVICE)]
            copied = self._extents(code.reads[0] if code.name == ops.TO_HOST else code.writes[0] for code in copies)
            return bool(owners & self._by_delegates) or not self._written.isdisjoint(self._extents(owners) - copied)
        return any(where[0] == buffer and where[1] < end and start < where[2] for where in self._written)

    def _begins(self, value: int) -> bool:
        tensor = self._facts.plan.values[value]
        assert isinstance(tensor, m.Tensor)
        return tensor.has_initial_value or tensor.name is not None

    def _leaves(self, symbol: int) -> list[tuple[object, ...]]:
        """Return the keys of a symbol's sources. A source is a symbol that does not consist of other symbols."""
        found = []
        seen = {symbol}
        waiting = [symbol]
        while waiting:
            item = waiting.pop()
            key = self._run.symbols.keys[item]
            parts = set(self._parts(item, key))
            if not parts:
                found.append(key)
            waiting += sorted(parts - seen)
            seen |= parts
        return found

    def _writers(self, leaves: Iterable[tuple[object, ...]]) -> Iterator[Write]:
        """Yield the write of each leaf that represents a whole written value. ``leaves`` comes from :meth:`_leaves`."""
        for key in leaves:
            if key[0] == INPUT:
                assert isinstance(key[1], int)
                yield -1, self._facts.plan.inputs[key[1]]
            elif key[:2] == (OTHER, _WRITTEN):
                yield cast("Write", key[2:4])

    def _parts(self, symbol: int, key: tuple[object, ...]) -> Collection[int]:
        """Return the symbols of which a symbol may consist."""
        if key[0] == MERGE:
            return cast("tuple[int, ...]", key[2])
        if key[0] == LOOP:
            return self.loops[cast(int, key[1])].members.get(symbol, ())
        if key[:2] == (OTHER, _CHANGED):
            # If the value may refer to several tensors, the changed one has no content of the others.
            return () if key[3] in self._facts.roving else [run[0] for run in cast(Content, key[4])]
        return [cast(int, key[3])] if key[:2] == (OTHER, "behind the end") else ()


class _FileEnds(Ends):
    """Executor of the caller's actions in a call: fills the inputs and reads the outputs."""

    def __init__(self, run: Run, steps: _FileSteps) -> None:
        super().__init__(run)
        self._file_steps = steps

    def check_outside(self) -> None:
        """Check nothing, because a single file has no second program to compare with."""

    def enter(self) -> None:
        """Fill the inputs, as a caller would."""
        machine, facts = self._run.machine, self._run.facts[0]
        for number, value in enumerate(facts.plan.inputs):
            if value in facts.tensors:
                symbol = self._run.symbols.number((INPUT, number))
                machine.write(0, value, self.input_dims(0, number, value), whole(symbol, facts.tensors[value].nbytes))

    def leave(self) -> None:
        """Read the outputs, as a caller would."""
        facts = self._run.facts[0]
        for value in dict.fromkeys(facts.plan.outputs):
            if value in facts.tensors:
                self._file_steps.read(None, value)
