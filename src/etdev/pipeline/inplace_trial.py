"""Whether a kernel may write over one of its inputs, found out by running it.

Each case runs twice in the stock runtime, in one hand-made program: with memory of its own for every tensor, and with
an output on the bytes of an input. Equal bytes in all cases are no proof, but a difference is one.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from etdev.pipeline.inplace_cases import Case, TensorArg, cases
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.inplace import Donor
from etdev.program.writer import write_into
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError, StockRuntime

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    Bytes: TypeAlias = "NDArray[Any]"

Verdict: TypeAlias = Literal["safe", "unsafe", "identity", "few", "refused", "not run"]
"""``identity``: every case that has the input's shape copies it, so that the operator can go altogether. ``few``: it
ran on too few shapes to tell, as a reduction does, which keeps the shape over a dimension of size 1 only. ``refused``:
the kernel finds the overlap itself and fails. ``not run``: it took none of the cases."""

ENOUGH_SHAPES = 8
"""From which number of shapes on equal results count."""

_DTYPES = {
    m.ScalarType.FLOAT: "float32",
    m.ScalarType.HALF: "float16",
    m.ScalarType.BFLOAT16: "bfloat16",
    m.ScalarType.DOUBLE: "float64",
    m.ScalarType.BYTE: "uint8",
    m.ScalarType.CHAR: "int8",
    m.ScalarType.SHORT: "int16",
    m.ScalarType.INT: "int32",
    m.ScalarType.LONG: "int64",
    m.ScalarType.BOOL: "bool",
}
"""Element types that kernels of the runtime are tried with, and what PyTorch calls them."""
_FLOATING = frozenset({m.ScalarType.FLOAT, m.ScalarType.HALF, m.ScalarType.DOUBLE, m.ScalarType.BFLOAT16})
_PROBES = 4
"""Cases that show whether a kernel takes some element types at all."""
_FEW = 24
"""Cases of element types that differ from each other."""
_MOST_BYTES = 16 << 20
_FIRST_CASES = 8
"""In the first program of each input: small ones, that do little harm if they go wrong."""
_MOST_CASES = 400
_LIMIT = 60.0
"""Seconds for one program, which takes less than one if nothing is wrong."""
_MOST_CRASHES = 3
"""After so many, a kernel that takes the process down without sharing any memory is not tried with other types, and one
that does it once more counts as refusing."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator."""

    name: str
    kind: str
    """Its type as PyTorch's schema has it: ``Tensor``, ``Optional[int]``."""
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class Schema:
    """What an operator takes and gives."""

    operator: str
    """``aten::add.out``."""
    arguments: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    def donors(self) -> Iterator[Donor]:
        """Each argument that is a tensor, with each output that is one."""
        for position, argument in enumerate(self.arguments):
            if argument.kind in ("Tensor", "Optional[Tensor]"):
                yield from (Donor(position, out) for out, given in enumerate(self.outputs) if given.kind == "Tensor")


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


def operator_schema(operator: str) -> Schema | None:
    """The schema that PyTorch knows an operator by; None if it knows none."""
    import torch

    namespace, _, rest = operator.partition("::")
    name, _, overload = rest.partition(".")
    try:
        found: Any = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")._schema
    except (AttributeError, RuntimeError):
        return None
    given = [
        (item.is_out, Argument(item.name, str(item.type), item.has_default_value(), item.default_value))
        for item in found.arguments
    ]
    return Schema(
        operator,
        tuple(argument for is_out, argument in given if not is_out),
        tuple(argument for is_out, argument in given if is_out),
    )


def try_operator(runtime: StockRuntime, schema: Schema) -> tuple[Trial, ...]:
    """Try every input of an operator that an output could lie on. The kernels are those of ``runtime``.

    A kernel that reads what it has written over may write anywhere, so ``runtime`` is of no use for anything else
    afterwards. An input is done with at its first difference.
    """
    given = [(item.name, item.kind, item.has_default) for item in schema.arguments]
    known = tuple(_within(schema, case) for case in cases(schema.operator, given, len(schema.outputs)))
    with tempfile.TemporaryDirectory(prefix="etdev-") as folder, _limited(runtime):
        bench = _Bench(runtime, schema, Path(folder))
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


@dataclass(frozen=True, slots=True)
class _Dtypes:
    """Element types of those tensors of a case that have none of their own."""

    donor: m.ScalarType
    output: m.ScalarType
    others: m.ScalarType

    def __str__(self) -> str:
        if self.donor is self.output:
            return _DTYPES[self.donor]
        return f"{_DTYPES[self.donor]} to {_DTYPES[self.output]}"

    @property
    def are_one(self) -> bool:
        return self.donor is self.output is self.others


@dataclass(frozen=True, slots=True)
class _Run:
    """A case to be run with some element types."""

    case: Case
    dtypes: _Dtypes
    donor: Donor


def _try_donor(bench: _Bench, donor: Donor, known: Sequence[Case]) -> Trial:
    schema = bench.schema
    argument, output = schema.arguments[donor.argument].name, schema.outputs[donor.output].name
    seen = _Seen()
    kept, is_taken = known, False
    for dtypes in _assignments(schema):
        runs = [_Run(case, dtypes, donor) for case in kept if _fits(case, dtypes, argument, donor.output)]
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


def _assignments(schema: Schema) -> list[_Dtypes]:
    """Element types whose elements have one size; of kernels with more inputs, also beside one of another type.

    Those where all are the same come first: they get all cases, the others a few of them.
    """
    alone = sum(argument.kind in ("Tensor", "Optional[Tensor]") for argument in schema.arguments) == 1
    found: list[_Dtypes] = []
    for donor in _DTYPES:
        for output in _DTYPES:
            if donor.itemsize == output.itemsize:
                others = {donor} if alone else {donor, output, m.ScalarType.FLOAT}
                found += (_Dtypes(donor, output, other) for other in sorted(others))
    return sorted(found, key=lambda dtypes: not dtypes.are_one)


def _fits(case: Case, dtypes: _Dtypes, argument: str, output: int) -> bool:
    """Whether the output has shape, order and element size of the input in this case."""
    given, made = case.arguments[argument], case.outputs[output]
    if not isinstance(given, TensorArg) or given.same_as:
        return False
    if given.dtype not in (None, dtypes.donor) or made.dtype not in (None, dtypes.output):
        return False
    return given.shape == made.shape and given.channels_last == made.channels_last


def _spread(runs: Sequence[_Run], count: int) -> Sequence[_Run]:
    """So many, evenly from all."""
    if len(runs) <= count:
        return runs
    return [runs[(2 * i + 1) * len(runs) // (2 * count)] for i in range(count)]


def _chunks(runs: Iterable[_Run]) -> Iterator[list[_Run]]:
    """Runs that fit into one program."""
    chunk: list[_Run] = []
    size, most = 0, _FIRST_CASES
    for run in runs:
        needed = 8 * sum(prod(item.shape) for item in (*_tensors(run.case.arguments.values()), *run.case.outputs))
        if chunk and (size + needed > _MOST_BYTES or len(chunk) == most):
            yield chunk
            chunk, size, most = [], 0, _MOST_CASES
        chunk.append(run)
        size += needed
    if chunk:
        yield chunk


def _tensors(values: Iterable[Any]) -> Iterator[TensorArg]:
    for value in values:
        if isinstance(value, TensorArg):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a run."""

    run: _Run
    kind: Literal["identical", "different", "refused", "not taken"]
    example: str = ""
    copies: bool = False
    """Whether the output is the input, byte for byte."""


@dataclass
class _Seen:
    """Sums of outcomes."""

    counts: Counter[str] = field(default_factory=Counter)
    shapes: set[tuple[int, ...]] = field(default_factory=set)
    dtypes: list[str] = field(default_factory=list)
    example: str = ""
    copies: bool = True

    def add(self, outcomes: Iterable[_Outcome]) -> None:
        for outcome in outcomes:
            self.counts[outcome.kind] += 1
            if outcome.kind != "not taken":
                self.shapes.add(outcome.run.case.outputs[outcome.run.donor.output].shape)
                self.dtypes.append(str(outcome.run.dtypes))
                self.copies = self.copies and outcome.copies
                self.example = self.example or outcome.example


def _differs(outcomes: Iterable[_Outcome]) -> bool:
    return any(outcome.kind == "different" for outcome in outcomes)


class _Bench:
    """Runs cases of one operator."""

    def __init__(self, runtime: StockRuntime, schema: Schema, folder: Path) -> None:
        self.schema = schema
        self._runtime, self._folder = runtime, folder
        self._crashes = 0
        self._taken: dict[tuple[object, ...], bool] = {}

    def takes(self, run: _Run) -> bool:
        """Whether the kernel runs at all, each tensor in memory of its own."""
        key = (id(run.case), *_dtypes_of(self.schema, run).values())
        if key not in self._taken:
            self._taken[key] = self._runs(run)
        return self._taken[key]

    def _runs(self, run: _Run) -> bool:
        if self._crashes >= _MOST_CRASHES:
            return False
        try:
            self._execute([run], share=False)
        except RuntimeCrashError:
            self._crashes += 1
            return False
        except ProgramFailureError:
            return False
        return True

    def compare(self, runs: Sequence[_Run]) -> list[_Outcome]:
        """Runs without and with shared memory, up to some that differ."""
        outcomes: list[_Outcome] = []
        for chunk in _chunks(runs):
            outcomes += self._compare(chunk)
            if _differs(outcomes):
                break
        return outcomes

    def _compare(self, runs: Sequence[_Run]) -> list[_Outcome]:
        try:
            return self._execute(runs, share=True)
        except ProgramFailureError as error:
            if self._crashes >= _MOST_CRASHES and isinstance(error, RuntimeCrashError):
                return [_Outcome(run, "refused", f"{run.case} {run.dtypes}: {error}") for run in runs]
            if len(runs) > 1:
                middle = len(runs) // 2
                first = self._compare(runs[:middle])
                return first if _differs(first) else first + self._compare(runs[middle:])
            (run,) = runs
            if not self.takes(run):
                return [_Outcome(run, "not taken")]
            kind: Literal["different", "refused"] = "different" if isinstance(error, RuntimeCrashError) else "refused"
            return [_Outcome(run, kind, f"{run.case} {run.dtypes}: {error}")]

    def _execute(self, runs: Sequence[_Run], *, share: bool) -> list[_Outcome]:
        """One program with all runs. Raises :class:`ProgramFailureError` if one of them fails."""
        import torch

        built = _Builder(self.schema)
        pairs = [built.add(run, share=share) for run in runs]
        path = self._folder / "trial.pte"
        path.unlink(missing_ok=True)
        write_into(built.program(), path)
        before = built.content()
        self._runtime.load(path)
        (after,) = self._runtime.call("forward", [torch.from_numpy(before)])
        return [_outcome(pair, before, after.numpy()) for pair in pairs] if share else []


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes of a tensor in the program's only buffer."""

    offset: int
    nbytes: int

    def of(self, content: Bytes) -> Bytes:
        return content[self.offset : self.offset + self.nbytes]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Where the outputs of a run lie without and with shared memory."""

    run: _Run
    alone: tuple[_Place, ...]
    shared: tuple[_Place, ...]
    donor: _Place
    itemsizes: tuple[int, ...]


def _outcome(pair: _Pair, before: Bytes, after: Bytes) -> _Outcome:
    run = pair.run
    for alone, shared, itemsize in zip(pair.alone, pair.shared, pair.itemsizes, strict=True):
        differs = (alone.of(after) != shared.of(after)).reshape(-1, itemsize).any(1)
        if wrong := int(differs.sum()):
            text = f"{run.case} {run.dtypes}: {wrong:,} of {len(differs):,} elements"
            return _Outcome(run, "different", text)
    copies = bool((pair.donor.of(before) == pair.shared[run.donor.output].of(after)).all())
    return _Outcome(run, "identical", copies=copies)


def _dtypes_of(schema: Schema, run: _Run) -> dict[str, m.ScalarType]:
    """The element type of every tensor: that of the case, or else that of the trial."""
    donor, output = schema.arguments[run.donor.argument].name, schema.outputs[run.donor.output].name
    # What a kernel makes beside the output in question is of its kind, as mean and deviation are, or of the inputs'.
    beside = run.dtypes.others if run.case.outputs[run.donor.output].dtype else run.dtypes.output
    dtypes = {item.name: run.dtypes.others for item in schema.arguments}
    dtypes |= {item.name: beside for item in schema.outputs}
    dtypes |= {donor: run.dtypes.donor, output: run.dtypes.output}
    made = {item.name: spec for item, spec in zip(schema.outputs, run.case.outputs, strict=True)}
    given = {**run.case.arguments, **made}
    return dtypes | {name: spec.dtype for name, spec in given.items() if isinstance(spec, TensorArg) and spec.dtype}


class _Builder:
    """A program whose only input is its whole memory, and whose only output is that memory after all calls.

    So every byte that a kernel reads is known, and every byte that it leaves is seen.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._values: list[m.Value] = []
        self._plains: dict[m.Value, int] = {}
        self._calls: list[m.KernelCall] = []
        self._filled: list[tuple[_Place, TensorArg, m.ScalarType]] = []
        self._end = 0

    def add(self, run: _Run, *, share: bool) -> _Pair:
        """Call the kernel once, and once more with the chosen output on the chosen input if ``share``."""
        schema, case = self._schema, run.case
        dtypes = _dtypes_of(schema, run)
        named: dict[str, int] = {}
        for item in schema.arguments:
            value = case.arguments[item.name]
            same = value.same_as if isinstance(value, TensorArg) else None
            named[item.name] = named[same] if same else self._value(item, value, dtypes)
        given = tuple(named.values())
        donor = self._place_of(given[run.donor.argument])
        kinds = [dtypes[item.name] for item in schema.outputs]
        alone = [self._tensor(spec, kind) for spec, kind in zip(case.outputs, kinds, strict=True)]
        self._call(given, alone)
        shared = alone
        if share:
            shared = [
                self._tensor(spec, kind, donor.offset if number == run.donor.output else None)
                for number, (spec, kind) in enumerate(zip(case.outputs, kinds, strict=True))
            ]
            self._call(given, shared)
        places, shared_places = (tuple(map(self._place_of, outs)) for outs in (alone, shared))
        return _Pair(run, places, shared_places, donor, tuple(kind.itemsize for kind in kinds))

    def program(self) -> m.Program:
        """All calls so far."""
        size = self._end + _GAP
        memory = m.Tensor(m.ScalarType.BYTE, (size,), (0,), allocation_info=m.AllocationDetails(1, 0))
        name, _, overload = self._schema.operator.partition(".")
        count = len(self._values)
        plan = m.ExecutionPlan(
            name="forward",
            values=(*self._values, memory, memory),
            inputs=(count,),
            outputs=(count + 1,),
            chains=(m.Chain(tuple(self._calls)),),
            operators=(m.Operator(name, overload),),
            delegates=(),
            non_const_buffer_sizes=(0, size),
        )
        return m.Program((plan,), segments=(m.Segment(0, Blob()),), constant_segment=m.SubsegmentOffsets(0, (0,)))

    def content(self) -> Bytes:
        """What the memory holds before the first call: inputs, and noise where outputs will be."""
        import numpy as np

        random = np.random.default_rng(0)
        memory = random.integers(0, 256, self._end + _GAP, dtype=np.uint8)
        for place, spec, dtype in self._filled:
            place.of(memory)[:] = _numbers(spec, dtype, random).view(np.uint8)
        return memory

    def _call(self, given: Sequence[int], outs: Sequence[int]) -> None:
        # A kernel's outputs stand after its arguments, and once more as what it returns: several of them as a list.
        returned = outs[0] if len(outs) == 1 else self._add(m.TensorList(tuple(outs)))
        self._calls.append(m.KernelCall(0, (*given, *outs, returned)))

    def _value(self, argument: Argument, value: Any, dtypes: Mapping[str, m.ScalarType]) -> int:
        match value:
            case TensorArg():
                return self._tensor(value, value.dtype or dtypes[argument.name], fill=True)
            case bool():
                return self._plain(m.Bool(value))
            case int():
                is_float = argument.kind in ("float", "Optional[float]")
                return self._plain(m.Double(float(value)) if is_float else m.Int(value))
            case float():
                return self._plain(m.Double(value))
            case str():
                return self._plain(m.String(value))
            case None:
                return self._plain(m.Null())
        return self._list(argument, value, dtypes)

    def _list(self, argument: Argument, value: Sequence[Any], dtypes: Mapping[str, m.ScalarType]) -> int:
        if "float" in argument.kind:
            return self._plain(m.DoubleList(tuple(map(float, value))))
        if "bool" in argument.kind:
            return self._plain(m.BoolList(tuple(value)))
        items = tuple(self._value(argument, item, dtypes) for item in value)
        if argument.kind == "List[Tensor]":
            return self._plain(m.TensorList(items))
        return self._plain(m.OptionalTensorList(items) if "Tensor" in argument.kind else m.IntList(items))

    def _tensor(self, spec: TensorArg, dtype: m.ScalarType, at: int | None = None, *, fill: bool = False) -> int:
        nbytes = prod(spec.shape) * dtype.itemsize
        if at is None:
            at = self._end
            self._end = at + nbytes + _GAP - nbytes % _GAP
        if fill:
            self._filled.append((_Place(at, nbytes), spec, dtype))
        rank = len(spec.shape)
        order = (0, *range(2, rank), 1) if spec.channels_last else tuple(range(rank))
        return self._add(m.Tensor(dtype, spec.shape, order, allocation_info=m.AllocationDetails(1, at)))

    def _place_of(self, index: int) -> _Place:
        tensor = self._values[index]
        assert isinstance(tensor, m.Tensor)
        assert tensor.allocation_info is not None
        return _Place(tensor.allocation_info.memory_offset, tensor.nbytes)

    def _plain(self, value: m.Value) -> int:
        """The index of a value that nobody changes."""
        if value not in self._plains:
            self._plains[value] = self._add(value)
        return self._plains[value]

    def _add(self, value: m.Value) -> int:
        self._values.append(value)
        return len(self._values) - 1


_GAP = 64
"""Bytes at least that lie after each tensor, and the multiple that each begins at."""


def _numbers(spec: TensorArg, dtype: m.ScalarType, random: Generator) -> Bytes:
    """Content of a tensor, flat in the order in which it lies in memory."""
    import numpy as np

    count = prod(spec.shape)
    numbers: Bytes
    if spec.ones:
        numbers = np.ones(count)
    elif spec.below is not None:
        distinct = random.permutation(spec.below)[:count]
        numbers = np.concatenate([distinct, random.integers(0, spec.below, count - len(distinct))])
    elif dtype is m.ScalarType.BOOL:
        numbers = random.integers(0, 2, count)
    elif dtype in _FLOATING:
        numbers = 2 * random.standard_normal(count)
    else:
        # Never 0, which no whole number is divided by.
        sign = 1 if dtype is m.ScalarType.BYTE else 2 * random.integers(0, 2, count) - 1
        numbers = sign * random.integers(1, 100, count)
    if dtype is m.ScalarType.BFLOAT16:
        # NumPy has no such type: it is the upper half of a float32.
        return np.ascontiguousarray(numbers.astype(np.float32).view(np.uint16)[1::2])
    return numbers.astype(_DTYPES[dtype])
