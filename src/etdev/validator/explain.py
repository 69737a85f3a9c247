"""Descriptions of violations: instruction, value, bytes, and the expected and actual writers of these bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.program import model as m
from etdev.validator.agree import Assumed, Difference
from etdev.validator.domain.state import At
from etdev.validator.domain.symbols import CONSTANT as CONSTANT_DATA
from etdev.validator.domain.symbols import INITIAL, INPUT, LOOP, MERGE, OTHER, Symbols
from etdev.validator.facts import CONSTANT, Code, Facts, TensorFacts
from etdev.validator.machine import Machine
from etdev.validator.report import Kind, Violation
from etdev.validator.unwritten import Missing


class Explainer:
    """Builder of the violations of one method."""

    def __init__(self, symbols: Symbols, facts: tuple[Facts, Facts], moved: Mapping[int, int]) -> None:
        self._symbols = symbols
        self._facts = facts
        self._moved = moved
        self._back = {there: here for here, there in moved.items()}

    # Writers and instructions

    def who(self, symbol: int | None, depth: int = 0) -> str:
        """Describe the origin of a symbol's content, such as ``the result of instruction 7 (aten::add.out)``."""
        if symbol is None:
            return "nothing"
        key = self._symbols.keys[symbol]
        match key[0]:
            case kind if kind == INITIAL:
                return "the content from before the call"
            case kind if kind == INPUT:
                return f"the caller's data for input {key[1]}"
            case kind if kind == CONSTANT_DATA:
                return "a constant of the file"
            case kind if kind == MERGE:
                held: tuple[int, ...] = key[2]  # type: ignore[assignment]
                found = dict.fromkeys(self.who(item, depth + 1) for item in held) if not depth else {}
                known = 1 < len(found) < 4
                return f"{' or '.join(found)}, depending on the path" if known else "the result of one of several paths"
            case kind if kind == LOOP:
                return "the result of a loop iteration"
            case kind if kind == OTHER:
                return self._odd(key)
        return self._computed(symbol)

    def _odd(self, key: tuple[object, ...]) -> str:
        match key[1]:
            case "behind the end":
                return f"bytes past the end of {self.who(key[3])}"  # type: ignore[arg-type]
            case "no rows yet":
                return "rows that no instruction has written"
            case "no address":
                return "nothing, because the value has no address"
        return "unknown content"

    def _computed(self, symbol: int) -> str:
        origin = self._symbols.origin(symbol)
        if origin is None:
            return "unknown content"
        if origin.side == 1:
            return f"the result of instruction {origin.position} ({origin.operator})"
        if origin.position in self._moved:
            return f"the result of instruction {self._moved[origin.position]} ({origin.operator})"
        return f"the result of instruction {origin.position} ({origin.operator}) of the program before the link"

    def _instruction(self, code: Code) -> str:
        return f"instruction {code.position} ({code.name})"

    @property
    def _method(self) -> str:
        return self._facts[1].plan.name

    def _violation(
        self,
        kind: Kind,
        message: str,
        *,
        one: Code | None = None,
        other: Code | None = None,
        value: int | None = None,
        place: tuple[int, int, int] | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> Violation:
        """Build a violation. ``place`` is buffer, first byte and end byte (exclusive)."""
        named = other or one
        buffer, start, end = place or (None, None, None)
        return Violation(
            kind=kind,
            method=self._method,
            message=f"method {self._method!r}: {message}",
            before=one.position if one else self._back.get(other.position) if other else None,
            after=other.position if other else None,
            operator=named.name if named else None,
            value=value,
            buffer=buffer,
            start=start,
            end=end,
            expected=expected,
            found=found,
        )

    # Operands and outputs

    def operand(self, machine: Machine, one: Code, other: Code, difference: Difference) -> Violation:
        """Return the violation for an operand that differs between the programs."""
        value = self._operand(other, difference)
        return self._difference(machine, f"{self._instruction(other)} reads", value, difference, one, other)

    def output(self, machine: Machine, number: int, value: int, difference: Difference) -> Violation:
        """Return the violation for an output of the method that differs between the programs."""
        return self._difference(machine, f"output {number} is", value, difference, None, None)

    def input(self, machine: Machine, number: int, value: int, difference: Difference) -> Violation:
        """Return the violation for an input in the caller's memory that the programs leave with different contents."""
        return self._difference(machine, f"after the call, input {number} is", value, difference, None, None)

    def _operand(self, code: Code, difference: Difference) -> int:
        value = code.reads[difference.argument] if difference.argument < len(code.reads) else code.writes[0]
        if difference.item is not None:
            # A value may be a list only at run time; then name the value itself.
            items = getattr(self._facts[1].plan.values[value], "items", ())
            value = items[difference.item] if difference.item < len(items) else value
        return value

    def _difference(
        self, machine: Machine, reader: str, value: int, difference: Difference, one: Code | None, other: Code | None
    ) -> Violation:
        what = {"kind": "type", "size": "size", "number": "number"}.get(difference.what)
        if what is not None:
            kind: Kind = difference.what  # type: ignore[assignment]
            return self._violation(
                kind,
                f"{reader} value {value}, whose {what} was different before the link",
                one=one,
                other=other,
                value=value,
            )
        place = self._bytes(machine, value, difference)
        where = f" at bytes {place[1]} to {place[2]} of buffer {place[0]}" if place else ""
        expected, found = self.who(difference.before), self.who(difference.after)
        message = f"{reader} value {value}{where}: expected {expected}, found {found}"
        return self._violation(
            "content", message, one=one, other=other, value=value, place=place, expected=expected, found=found
        )

    def _bytes(self, machine: Machine, value: int, difference: Difference) -> tuple[int, int, int] | None:
        facts = self._facts[1]
        at = machine.located(1, value) if value in facts.tensors or value in facts.roving else None
        place = at.place if isinstance(at, At) else None
        if place is None or place[0] <= CONSTANT:
            return None
        start = place[1] + difference.offset
        return place[0], start, start + difference.length

    def overlap(self, machine: Machine, one: Code | None, other: Code, key: tuple[int, int, int]) -> Violation:
        """Return the violation for an output that overlaps an operand although the operator forbids that overlap."""
        argument, item, output = key
        outs = (*other.writes, *other.updates)
        out = outs[output]
        value = outs[-1 - argument] if argument < 0 else other.reads[argument]
        if item:
            value = list(self._facts[1].list_tensors((value,)))[item - 1]
        at = machine.located(1, out)
        where = at.place if isinstance(at, At) else None
        span = (where[0], where[1], where[1] + self._facts[1].tensors[out].nbytes) if where else None
        message = (
            f"{self._instruction(other)} writes value {out} over the bytes of value {value}, "
            f"{'which it also writes' if argument < 0 else 'which it still reads'}"
        )
        return self._violation("overlap", message, one=one, other=other, value=out, place=span)

    def view(self, code: Code) -> Violation:
        """Return the violation for a view that may have a different number of elements than its input."""
        message = (
            f"{self._instruction(code)} makes a view of value {code.reads[0]}; "
            "the view may have a different number of elements than this value"
        )
        return self._violation("size", message, other=code, value=code.reads[0])

    # Instructions

    def instruction(self, one: Code, other: Code, what: str) -> Violation:
        """Return the violation for an instruction that differs from its counterpart."""
        return self._violation(
            "instruction", f"{self._instruction(other)} {what} than before the link", one=one, other=other
        )

    def order(self, one: Code, other: Code, behind: Code | None = None) -> Violation:
        """Return the violation for an instruction that runs at a point where it may not run.

        ``behind`` is an instruction of the program before the link. ``other`` must run after the counterpart of
        ``behind``. If ``behind`` is None, ``other`` runs in another part of the method than before the link.
        """
        why = "but before the link it runs only in another part of the method"
        if behind is not None:
            why = f"but must run after the counterpart of instruction {behind.position} ({behind.name})"
        return self._violation("control flow", f"{self._instruction(other)} runs here, {why}", one=one, other=other)

    def alone(self, side: int, code: Code, *, paired: bool) -> Violation:
        """Return the violation for an instruction that only one program has.

        ``paired`` must be True if the other program has a different instruction at the same point.
        """
        if paired:
            message = f"{self._instruction(code)} has a different instruction as its counterpart"
        elif side == 0:
            message = f"{self._instruction(code)} of the program before the link is missing"
        else:
            message = f"{self._instruction(code)} is not in the program before the link"
        return self._violation(
            "instruction", message, one=code if side == 0 else None, other=code if side == 1 else None
        )

    def apart(self, what: str, here: int | None = None, there: int | None = None) -> Violation:
        """Return the violation for programs that take different paths."""
        where = "" if here is None else f" (instruction {there}, {here} before the link)"
        return Violation(
            "control flow", self._method, f"method {self._method!r}: {what}{where}", before=here, after=there
        )

    # The whole method

    def extents(self) -> Iterator[Violation]:
        """Yield a violation for each tensor that extends outside its buffer."""
        facts = self._facts[1]
        sizes = facts.plan.non_const_buffer_sizes
        for value, tensor in facts.tensors.items():
            if not tensor.planned or tensor.place is None or tensor.place[0] < 1:
                continue
            buffer, start = tensor.place
            size = sizes[buffer] if buffer < len(sizes) else 0
            if start < 0 or tensor.end > size:
                message = (
                    f"value {value} is at bytes {start} to {tensor.end} of buffer {buffer}, which has {size} bytes"
                )
                yield self._violation("extent", message, value=value, place=(buffer, start, tensor.end))

    def outside(self, what: str, value: int) -> Violation:
        """Return the violation for an input or output that the link changed. ``what`` describes the change."""
        return self._violation("kind", f"{what} than before the link", value=value)

    def caller(self, number: int, value: int) -> Violation:
        """Return the violation for an output that is not in the memory that the caller provides for this output."""
        message = f"output {number} (value {value}) is not in the memory that the caller provides for it"
        return self._violation("caller's memory", message, value=value)

    def written_constants(self) -> Iterator[Violation]:
        """Yield a violation for each write to a constant. Omit operators that also write constants before the link."""
        before = {name for name, _ in self._writes_of_constants(self._facts[0])}
        for name, (code, value) in self._writes_of_constants(self._facts[1]):
            if name not in before:
                message = f"{self._instruction(code)} writes value {value}, which is a constant"
                yield self._violation("content", message, other=code, value=value)

    def _writes_of_constants(self, facts: Facts) -> Iterator[tuple[str, tuple[Code, int]]]:
        for code in facts.code:
            for value in code.writes:
                tensor = facts.plan.values[value]
                if isinstance(tensor, m.Tensor) and tensor.is_constant:
                    yield code.name, (code, value)

    # A single file

    def clobbered(self, code: Code | None, value: int, place: tuple[int, int, int], by: int) -> Violation:
        """Return the violation for a read of a value whose bytes were overwritten with another value.

        ``by`` is the position of the instruction that overwrote the bytes, or a negative number for the caller.
        """
        facts = self._facts[0]
        reader = self._instruction(code) if code else "the caller (outputs)"
        writer = self._instruction(facts.code[by]) if by >= 0 else "the caller (inputs)"
        where = f"bytes {place[1]} to {place[2]} of buffer {place[0]}"
        message = f"{reader} reads value {value} at {where} after {writer} overwrote these bytes with another value"
        return self._violation("clobbered", message, other=code, value=value, place=place, found=writer)

    def never_written(self, code: Code | None, value: int, place: tuple[int, int, int]) -> Violation:
        """Return the violation for a read of bytes that no instruction writes."""
        reader = self._instruction(code) if code else "the caller (outputs)"
        where = f"bytes {place[1]} to {place[2]} of buffer {place[0]}"
        message = (
            f"{reader} reads value {value} at {where}, but no instruction writes these bytes, "
            "and they have no initial value"
        )
        return self._violation("never written", message, other=code, value=value, place=place)

    def unwritten(self, missing: Missing) -> Violation:
        """Return the violation for a read of a value that no instruction writes. The bytes hold other values."""
        facts, value = self._facts[0], missing.value
        place = _place(facts.tensors[value])
        reader = self._instruction(missing.reader) if missing.reader else "the caller (outputs)"
        where = f" at bytes {place[1]} to {place[2]} of buffer {place[0]}" if place else ""
        position, other = missing.write
        writer = self._instruction(facts.code[position]) if position >= 0 else "the caller (inputs)"
        trace = " of another element type to these bytes" if missing.another_type else ", which no instruction reads"
        message = (
            f"{reader} reads value {value}{where}, but no instruction writes this value: "
            f"{writer} wrote value {other}{trace}"
        )
        return self._violation("unwritten", message, other=missing.reader, value=value, place=place, found=writer)

    # State between calls

    def state(self, value: int, what: str) -> Violation:
        """Return the violation for a state that the link changed. ``what`` describes the change."""
        return self._violation(
            "state",
            f"the state in value {value} {what} than before the link",
            value=value,
            place=_place(self._facts[1].tensors[value]),
        )

    def kept(self, assumed: Assumed, difference: Difference) -> Violation:
        """Return the violation for state whose content after a call differs between the programs."""
        start = assumed.after + difference.offset
        place = (assumed.after_space, start, start + difference.length)
        expected, found = self.who(difference.before), self.who(difference.after)
        message = (
            f"bytes {place[1]} to {place[2]} of buffer {place[0]}, which keep their content between calls: "
            f"expected {expected} after the call, found {found}"
        )
        return self._violation("state", message, place=place, expected=expected, found=found)


def _place(tensor: TensorFacts) -> tuple[int, int, int] | None:
    if tensor.place is None or tensor.place[0] < 1:
        return None
    return tensor.place[0], tensor.place[1], tensor.end
