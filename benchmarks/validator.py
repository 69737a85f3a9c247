"""Time that the proof of a link takes: one long method, one with many conditions, one with a loop.

The methods are made by hand. The linker (planner `greedy`) takes those without conditions; as many conditions as here
it does not take, so they are validated against themselves, which is as much work. A figure is the processor's time, the
median of `--rounds` validations. Ends with 1 if something is not proved or the limit for the long method is passed.

    python benchmarks/validator.py [--instructions N] [--conditions N] [--rounds N]
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from etdev.linker import LinkOptions, link
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.sidecar import Sidecar
from etdev.validator import Correspondence, validate_link

LIMIT = 1.0
"""Seconds for 5,000 instructions."""
_WIDTH, _LENGTH, _HEADS = 64, 32, 4


@dataclass
class Method:
    """A method that grows instruction by instruction, every tensor at an address of its own."""

    values: list[m.Value] = field(default_factory=list)
    calls: list[m.Instruction] = field(default_factory=list)
    operators: list[m.Operator] = field(default_factory=list)
    end: int = 0

    def value(self, value: m.Value) -> int:
        """Any value."""
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, *sizes: int) -> int:
        """A float tensor."""
        tensor = m.Tensor(
            m.ScalarType.FLOAT,
            sizes,
            tuple(range(len(sizes))),
            allocation_info=m.AllocationDetails(1, self.end),
        )
        self.end += (tensor.nbytes + 127) // 64 * 64
        return self.value(tensor)

    def constant(self, *sizes: int) -> int:
        """A constant; all have the same data."""
        return self.value(m.Tensor(m.ScalarType.FLOAT, sizes, tuple(range(len(sizes))), data_buffer_idx=1))

    def integers(self, *items: int) -> int:
        """A list of numbers."""
        return self.value(m.IntList(tuple(self.value(m.Int(item)) for item in items)))

    def op(self, name: str, args: tuple[int, ...], *sizes: int) -> int:
        """An ``out`` variant; gives its output."""
        out = self.tensor(*sizes)
        base, _, overload = name.partition(".")
        operator = m.Operator(f"aten::{base}", overload)
        if operator not in self.operators:
            self.operators.append(operator)
        self.calls.append(m.KernelCall(self.operators.index(operator), (*args, out, out)))
        return out

    def program(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> m.Program:
        """All of it."""
        plan = m.ExecutionPlan(
            name="forward",
            values=tuple(self.values),
            inputs=inputs,
            outputs=outputs,
            chains=(m.Chain(tuple(self.calls)),),
            operators=tuple(self.operators),
            delegates=(),
            non_const_buffer_sizes=(0, self.end),
        )
        data = Blob(bytes(4 * _WIDTH * _WIDTH * 4))
        return m.Program((plan,), segments=(m.Segment(0, data),), constant_segment=m.SubsegmentOffsets(0, (0, 0)))


def transformer(instructions: int) -> m.Program:
    """Layers of a decoder: norms, contractions, views of heads, softmax, sums."""
    method = Method()
    one = method.value(m.Int(1))
    weight, bias = method.constant(_WIDTH, _WIDTH), method.constant(_WIDTH)
    x = first = method.tensor(_LENGTH, _WIDTH)
    while len(method.calls) < instructions:
        x = _layer(method, x, weight, bias, one)
    return method.program((first,), (x,))


def _layer(method: Method, x: int, weight: int, bias: int, one: int) -> int:
    def heads(value: int, order: tuple[int, ...], *sizes: int) -> int:
        part = method.op("linear.out", (value, weight, bias), _LENGTH, _WIDTH)
        shape = (_LENGTH, _HEADS, _WIDTH // _HEADS)
        part = method.op("view_copy.out", (part, method.integers(*shape)), *shape)
        return method.op("permute_copy.out", (part, method.integers(*order)), *sizes)

    size = _WIDTH // _HEADS
    squared = method.op("mul.out", (x, x), _LENGTH, _WIDTH)
    normed = method.op("mul.out", (squared, bias), _LENGTH, _WIDTH)
    queries = heads(normed, (1, 0, 2), _HEADS, _LENGTH, size)
    keys = heads(normed, (1, 2, 0), _HEADS, size, _LENGTH)
    values = heads(normed, (1, 0, 2), _HEADS, _LENGTH, size)
    scores = method.op("bmm.out", (queries, keys), _HEADS, _LENGTH, _LENGTH)
    weights = method.op("_softmax.out", (scores, one, method.value(m.Bool(False))), _HEADS, _LENGTH, _LENGTH)
    mixed = method.op("bmm.out", (weights, values), _HEADS, _LENGTH, size)
    mixed = method.op("permute_copy.out", (mixed, method.integers(1, 0, 2)), _LENGTH, _HEADS, size)
    mixed = method.op("view_copy.out", (mixed, method.integers(_LENGTH, _WIDTH)), _LENGTH, _WIDTH)
    mixed = method.op("linear.out", (mixed, weight, bias), _LENGTH, _WIDTH)
    x = method.op("add.out", (x, mixed, one), _LENGTH, _WIDTH)
    inner = method.op("gelu.out", (method.op("linear.out", (x, weight, bias), _LENGTH, _WIDTH),), _LENGTH, _WIDTH)
    return method.op("add.out", (x, inner, one), _LENGTH, _WIDTH)


def conditions(count: int) -> m.Program:
    """Conditions one after the other, each on what came before, with a few instructions on either side."""
    method = Method()
    one = method.value(m.Int(1))
    x = first = method.tensor(_LENGTH, _WIDTH)
    choice = method.value(m.Tensor(m.ScalarType.BOOL, (), (), allocation_info=m.AllocationDetails(1, method.end)))
    method.end += 64
    for _ in range(count):
        x = _condition(method, choice, x, one)
    return method.program((first, choice), (x,))


def _condition(method: Method, choice: int, x: int, one: int) -> int:
    start = len(method.calls)
    method.calls.append(m.JumpFalseCall(choice, 0))
    merged = method.tensor(_LENGTH, _WIDTH)
    ours = method.op("relu.out", (method.op("add.out", (x, x, one), _LENGTH, _WIDTH),), _LENGTH, _WIDTH)
    method.calls.append(m.MoveCall(ours, merged))
    middle = len(method.calls)
    never = method.value(m.Bool(False))
    method.calls.append(m.JumpFalseCall(never, 0))
    method.calls[start] = m.JumpFalseCall(choice, len(method.calls))
    method.calls.append(m.MoveCall(method.op("mul.out", (x, x), _LENGTH, _WIDTH), merged))
    method.calls[middle] = m.JumpFalseCall(never, len(method.calls))
    return method.op("exp.out", (merged,), _LENGTH, _WIDTH)


def loop(instructions: int) -> m.Program:
    """One loop around layers, whose input is written anew in each round."""
    method = Method()
    one = method.value(m.Int(1))
    weight, bias = method.constant(_WIDTH, _WIDTH), method.constant(_WIDTH)
    x = first = method.tensor(_LENGTH, _WIDTH)
    choice = method.value(m.Tensor(m.ScalarType.BOOL, (), (), allocation_info=m.AllocationDetails(1, method.end)))
    method.end += 64
    while len(method.calls) < instructions:
        x = _layer(method, x, weight, bias, one)
    method.operators.append(m.Operator("aten::copy_"))
    method.calls.append(m.KernelCall(len(method.operators) - 1, (first, x, method.value(m.Bool(False)), first)))
    method.calls.append(m.JumpFalseCall(choice, 0))
    return method.program((first, choice), (x,))


@dataclass(frozen=True)
class Figures:
    """What was measured of one method."""

    instructions: int
    link: float | None
    """Seconds; None if it was not linked."""
    proof: float
    """Seconds."""
    proved: bool


def measure(program: m.Program, rounds: int, *, linked: bool) -> Figures:
    """Validate a program, linked or as it is."""
    (plan,) = program.execution_plan
    count = len(plan.chains[0].instructions)
    after, moved, took = program, {position: position for position in range(count)}, None
    if linked:
        start = time.process_time()
        found = link(program, LinkOptions(planner="greedy"), Sidecar({}))
        took = time.process_time() - start
        after, moved = found.program, dict(found.methods[0].renumbered)
    seconds, proved = [], True
    for _ in range(rounds):
        start = time.process_time()
        proved &= validate_link(program, after, {plan.name: Correspondence(moved)}).proved
        seconds.append(time.process_time() - start)
    return Figures(count, took, statistics.median(seconds), proved)


def main() -> int:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instructions", type=int, default=5000)
    parser.add_argument("--conditions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    cases: list[tuple[str, bool, Callable[[], m.Program]]] = [
        ("straight", True, lambda: transformer(arguments.instructions)),
        ("conditions", False, lambda: conditions(arguments.conditions)),
        ("twice as many conditions", False, lambda: conditions(2 * arguments.conditions)),
        ("loop", True, lambda: loop(arguments.instructions)),
    ]
    print(f"{platform.platform()}, Python {platform.python_version()}\n")
    print("| method | instructions | link | proof | proved |\n| --- | --- | --- | --- | --- |")
    good = True
    for name, linked, make in cases:
        found = measure(make(), arguments.rounds, linked=linked)
        took = "" if found.link is None else f"{found.link:.2f} s"
        proved = "yes" if found.proved else "NO"
        print(f"| {name} | {found.instructions:,} | {took} | {found.proof:.2f} s | {proved} |", flush=True)
        good &= found.proved and (name != "straight" or found.proof <= LIMIT * max(found.instructions, 5000) / 5000)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
