"""Whether a kernel may write over one of its inputs, found out by running it.

Each case runs twice in the stock runtime, in one hand-made program: with memory of its own for every tensor, and with
an output on the bytes of an input. Equal bytes in all cases are no proof, but a difference is one.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from etdev.pipeline.inplace_bench import DTYPES, Bench, Dtypes, Outcome, Run
from etdev.pipeline.inplace_cases import Case, TensorArg, cases
from etdev.pipeline.inplace_schema import Schema
from etdev.program import model as m
from etdev.program.inplace import Donor
from etdev.runtime.stock import StockRuntime

Verdict: TypeAlias = Literal["safe", "unsafe", "identity", "few", "refused", "not run"]
"""``identity``: every case that has the input's shape copies it, so that the operator can go altogether. ``few``: it
ran on too few shapes to tell, as a reduction does, which keeps the shape over a dimension of size 1 only. ``refused``:
the kernel finds the overlap itself and fails. ``not run``: it took none of the cases."""

ENOUGH_SHAPES = 8
"""From which number of shapes on equal results count."""

_PROBES = 4
"""Cases that show whether a kernel takes some element types at all."""
_FEW = 24
"""Cases of element types that differ from each other."""
_LIMIT = 60.0
"""Seconds for one program, which takes less than one if nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What was seen of one output over one input."""

    operator: str
    donor: Donor
    argument: str
    """Name of the input."""
    output: str
    """Name of the output."""
    identical: int = 0
    """Cases with the same bytes."""
    different: int = 0
    """Cases with other bytes, or that took the runtime down."""
    refused: int = 0
    """Cases that the kernel takes, but not with shared memory."""
    shapes: int = 0
    """Different shapes among the cases that ran."""
    dtypes: tuple[str, ...] = ()
    """Element types that ran: ``float32``, or ``int32 to float32`` of input and output."""
    example: str = ""
    """A case with other bytes, or the failure."""
    copies: bool = False
    """Whether every output was a copy of the input."""

    @property
    def verdict(self) -> Verdict:
        """What follows from it."""
        if self.different:
            return "unsafe"
        if self.refused or not self.identical:
            return "refused" if self.refused else "not run"
        if self.copies:
            return "identity"
        return "safe" if self.shapes >= ENOUGH_SHAPES else "few"

    def __str__(self) -> str:
        """``self -> out: differs at [64, 64] float32: 3,210 of 4,096 elements, after 17 equal cases``."""
        start = f"{self.argument} -> {self.output}: "
        count = self.identical + self.different + self.refused
        match self.verdict:
            case "unsafe":
                before = f", after {self.identical:,} equal cases" if self.identical else ""
                return f"{start}differs at {self.example}{before}"
            case "refused":
                return f"{start}{self.refused:,} of {count:,} cases fail with shared memory, first {self.example}"
            case "not run":
                return f"{start}the kernel took no case in which they have one shape"
        kinds = ", ".join(self.dtypes)
        same = "are copies" if self.copies else "are the same to the bit"
        few = f", of at least {ENOUGH_SHAPES} shapes that it takes to tell" if self.verdict == "few" else ""
        return f"{start}{count:,} cases on {self.shapes:,} shapes with {kinds} {same}{few}"


def try_operator(runtime: StockRuntime, schema: Schema) -> tuple[Trial, ...]:
    """Try every input of an operator that an output could lie on. The kernels are those of ``runtime``.

    A kernel that reads what it has written over may write anywhere, so ``runtime`` is of no use for anything else
    afterwards. An input is done with at its first difference.
    """
    given = [(item.name, item.kind, item.has_default) for item in schema.arguments]
    known = tuple(_within(schema, case) for case in cases(schema.operator, given, len(schema.outputs)))
    with tempfile.TemporaryDirectory(prefix="etdev-") as folder, _limited(runtime):
        bench = Bench(runtime, schema, Path(folder))
        return tuple(_try_donor(bench, donor, known) for donor in schema.donors())


@contextmanager
def _limited(runtime: StockRuntime) -> Iterator[None]:
    """Calls that hang end soon. The runtime starts before: that may take longer."""
    assert runtime.operators
    before, runtime.limit = runtime.limit, _LIMIT
    try:
        yield
    finally:
        runtime.limit = before


def _within(schema: Schema, case: Case) -> Case:
    """A case with exactly the schema's arguments."""
    given = {item.name: case.arguments.get(item.name, item.default) for item in schema.arguments}
    return Case(given, case.outputs)


def _try_donor(bench: Bench, donor: Donor, known: Sequence[Case]) -> Trial:
    schema = bench.schema
    argument, output = schema.arguments[donor.argument].name, schema.outputs[donor.output].name
    seen = _Seen()
    kept, is_taken = known, False
    for dtypes in _assignments(schema):
        runs = [Run(case, dtypes, donor) for case in kept if _fits(case, dtypes, argument, donor.output)]
        if any(bench.takes(run) for run in (*_spread(runs, _PROBES), *runs[:1])):
            outcomes = bench.compare(runs if dtypes.are_one or not is_taken else _spread(runs, _FEW))
            seen.add(outcomes)
            # What is nothing to the first types, others will not take either.
            untaken = {id(outcome.run.case) for outcome in outcomes if outcome.kind == "not taken"}
            kept = kept if is_taken else [case for case in known if id(case) not in untaken]
            is_taken = is_taken or dtypes.are_one
        if seen.counts["different"]:
            break
    return Trial(
        schema.operator,
        donor,
        argument,
        output,
        **{kind: seen.counts[kind] for kind in ("identical", "different", "refused")},
        shapes=len(seen.shapes),
        dtypes=tuple(dict.fromkeys(seen.dtypes)),
        example=seen.example,
        copies=seen.copies,
    )


def _assignments(schema: Schema) -> list[Dtypes]:
    """Element types whose elements have one size; of kernels with more inputs, also beside one of another type.

    Those where all are the same come first: they get all cases, the others a few of them.
    """
    alone = sum(argument.kind in ("Tensor", "Optional[Tensor]") for argument in schema.arguments) == 1
    found: list[Dtypes] = []
    for donor in DTYPES:
        for output in DTYPES:
            if donor.itemsize == output.itemsize:
                others = {donor} if alone else {donor, output, m.ScalarType.FLOAT}
                found += (Dtypes(donor, output, other) for other in sorted(others))
    return sorted(found, key=lambda dtypes: not dtypes.are_one)


def _fits(case: Case, dtypes: Dtypes, argument: str, output: int) -> bool:
    """Whether the output has shape, order and element size of the input in this case."""
    given, made = case.arguments[argument], case.outputs[output]
    if not isinstance(given, TensorArg) or given.same_as:
        return False
    if given.dtype not in (None, dtypes.donor) or made.dtype not in (None, dtypes.output):
        return False
    return given.shape == made.shape and given.channels_last == made.channels_last


def _spread(runs: Sequence[Run], count: int) -> Sequence[Run]:
    """So many, evenly from all."""
    if len(runs) <= count:
        return runs
    return [runs[(2 * i + 1) * len(runs) // (2 * count)] for i in range(count)]


@dataclass
class _Seen:
    """Sums of outcomes."""

    counts: Counter[str] = field(default_factory=Counter)
    shapes: set[tuple[int, ...]] = field(default_factory=set)
    dtypes: list[str] = field(default_factory=list)
    example: str = ""
    copies: bool = True

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.counts[outcome.kind] += 1
            if outcome.kind != "not taken":
                self.shapes.add(outcome.run.case.outputs[outcome.run.donor.output].shape)
                self.dtypes.append(str(outcome.run.dtypes))
                self.copies = self.copies and outcome.copies
                self.example = self.example or outcome.example
