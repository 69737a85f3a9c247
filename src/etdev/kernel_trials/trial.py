"""Trials that determine whether a kernel may overwrite one of its inputs.

Each case runs twice in a generated program in the stock runtime. In the first call, every tensor has separate memory.
In the second call, an output is stored in the bytes of an input. Equal results in all cases are not a proof, but a
difference proves that the kernel is unsafe.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from etdev.kernel_trials.bench import DTYPES, Bench, Dtypes, Outcome, Run
from etdev.kernel_trials.case import Case, TensorArg
from etdev.kernel_trials.cases import cases
from etdev.kernel_trials.op_schema import Schema
from etdev.program import model as m
from etdev.program.analysis.inplace import Donor
from etdev.runtime.stock import StockRuntime

Verdict: TypeAlias = Literal["safe", "unsafe", "identity", "few", "refused", "not run"]
"""Conclusion of a trial.

* ``safe``: equal results in all cases, with enough different shapes.
* ``unsafe``: a different result in at least one case, or a crash.
* ``identity``: in all cases that ran, the output is a copy of the input. So the operator can be removed.
* ``few``: equal results in all cases, but with too few shapes. For example, a reduction has few cases, because only
  a reduction of a dimension of size 1 keeps the shape.
* ``refused``: the kernel detects that tensors overlap, and fails.
* ``not run``: the kernel accepted none of the cases.
"""

ENOUGH_SHAPES = 8
"""Minimum number of distinct shapes for the conclusion ``safe``."""

_PROBES = 4
"""Number of cases to try first, to determine if a kernel supports a combination of element types."""
_FEW = 24
"""Maximum number of cases to compare for a combination of at least two different element types."""
_LIMIT = 60.0
"""Time limit in seconds of a call in the runtime. A call usually takes less than one second."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Results of a trial in which an output of an operator overwrites an input."""

    operator: str
    donor: Donor
    argument: str
    """Name of the input."""
    output: str
    """Name of the output."""
    identical: int = 0
    """Number of cases in which the results with and without shared memory are equal."""
    different: int = 0
    """Number of cases in which sharing memory changes the result or causes a crash."""
    refused: int = 0
    """Number of cases that the kernel accepts without shared memory, but refuses with shared memory."""
    shapes: int = 0
    """Number of distinct shapes among the cases that ran."""
    dtypes: tuple[str, ...] = ()
    """Element types in the cases that ran. ``int32 to float32`` means an input of int32 and an output of float32."""
    example: str = ""
    """Description of the first case that differs or fails."""
    copies: bool = False
    """True if the output was a copy of the input in every case that ran."""

    @property
    def verdict(self) -> Verdict:
        """Return the conclusion, which depends on the numbers of cases."""
        if self.different:
            return "unsafe"
        if self.refused or not self.identical:
            return "refused" if self.refused else "not run"
        if self.copies:
            return "identity"
        return "safe" if self.shapes >= ENOUGH_SHAPES else "few"

    def __str__(self) -> str:
        """Return a summary such as ``self -> out: 17 cases on 8 shapes with float32 are bit-identical``."""
        start = f"{self.argument} -> {self.output}: "
        count = self.identical + self.different + self.refused
        match self.verdict:
            case "unsafe":
                before = f", after {self.identical:,} equal cases" if self.identical else ""
                return f"{start}differs at {self.example}{before}"
            case "refused":
                return f"{start}{self.refused:,} of {count:,} cases fail with shared memory, first {self.example}"
            case "not run":
                return f"{start}the kernel accepted no case in which input and output have the same shape"
        kinds = ", ".join(self.dtypes)
        same = "are copies" if self.copies else "are bit-identical"
        few = f", but a conclusion needs at least {ENOUGH_SHAPES} shapes" if self.verdict == "few" else ""
        return f"{start}{count:,} cases on {self.shapes:,} shapes with {kinds} {same}{few}"


def try_operator(runtime: StockRuntime, schema: Schema) -> tuple[Trial, ...]:
    """Try each pair of an input and an output of an operator, and return a trial for each pair.

    The kernels are those of ``runtime``. An unsafe kernel may write to arbitrary addresses, so do not use ``runtime``
    for any other purpose afterwards. The trial of a pair ends at its first difference.
    """
    given = [(item.name, item.kind, item.has_default) for item in schema.arguments]
    known = tuple(_within(schema, case) for case in cases(schema.operator, given, len(schema.outputs)))
    with tempfile.TemporaryDirectory(prefix="etdev-") as folder, _limited(runtime):
        bench = Bench(runtime, schema, Path(folder))
        return tuple(_try_donor(bench, donor, known) for donor in schema.donors())


@contextmanager
def _limited(runtime: StockRuntime) -> Iterator[None]:
    """Inside the block, limit the time of each call of the runtime, because a kernel may hang.

    The runtime is started before the limit applies, because its start may take longer.
    """
    assert runtime.operators
    before, runtime.limit = runtime.limit, _LIMIT
    try:
        yield
    finally:
        runtime.limit = before


def _within(schema: Schema, case: Case) -> Case:
    """Return the case with a value for every argument in the schema; use the default of missing arguments."""
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
            # Skip cases that the kernel does not accept with the first types. Other types do not change that.
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
    """Return the combinations of element types to try.

    In each combination, the output and the overwritten input have the same element size. The other inputs may have
    another element type. Combinations of a single element type come first.
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
    """Return True if the output can reuse the input's bytes in this case.

    Input and output must have the same shape and memory order, and their types in ``dtypes`` must match the case.
    """
    given, made = case.arguments[argument], case.outputs[output]
    if not isinstance(given, TensorArg) or given.same_as:
        return False
    if given.dtype not in (None, dtypes.donor) or made.dtype not in (None, dtypes.output):
        return False
    return given.shape == made.shape and given.channels_last == made.channels_last


def _spread(runs: Sequence[Run], count: int) -> Sequence[Run]:
    """Return at most ``count`` runs, evenly spaced in ``runs``."""
    if len(runs) <= count:
        return runs
    return [runs[(2 * i + 1) * len(runs) // (2 * count)] for i in range(count)]


@dataclass
class _Seen:
    """Totals of a trial's outcomes so far."""

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
