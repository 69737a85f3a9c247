"""Generated programs that run the cases of one operator in the stock runtime."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from etdev.kernel_trials.case import Case, TensorArg
from etdev.kernel_trials.op_schema import Argument, Schema
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.analysis.inplace import Donor
from etdev.program.writer import write_into
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError, StockRuntime

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    Bytes: TypeAlias = "NDArray[Any]"

DTYPES = {
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
"""Maps each element type that trials use to PyTorch's name for it."""
_FLOATING = frozenset({m.ScalarType.FLOAT, m.ScalarType.HALF, m.ScalarType.DOUBLE, m.ScalarType.BFLOAT16})
_MOST_BYTES = 16 << 20
_FIRST_CASES = 8
"""Maximum number of cases in the first program of a trial. If its outputs differ, no larger program runs."""
_MOST_CASES = 400
_MOST_CRASHES = 3
"""Maximum number of crashes of one operator in calls without shared memory.

After this number of crashes, etdev tries no other cases without shared memory, and assumes that the kernel does not
accept them. If a program with shared memory crashes after that, all of its runs count as ``refused``.
"""


@dataclass(frozen=True, slots=True)
class Dtypes:
    """Element types of the tensors whose type the case does not state.

    ``donor`` is the type of the input whose bytes the output reuses.
    """

    donor: m.ScalarType
    output: m.ScalarType
    others: m.ScalarType

    def __str__(self) -> str:
        if self.donor is self.output:
            return DTYPES[self.donor]
        return f"{DTYPES[self.donor]} to {DTYPES[self.output]}"

    @property
    def are_one(self) -> bool:
        return self.donor is self.output is self.others


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a case with certain element types, in which an output reuses the bytes of an input."""

    case: Case
    dtypes: Dtypes
    donor: Donor


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run."""

    run: Run
    kind: Literal["identical", "different", "refused", "not taken"]
    example: str = ""
    copies: bool = False
    """True if the output equals the previous content of the overwritten input, byte for byte."""


def _differs(outcomes: Iterable[Outcome]) -> bool:
    return any(outcome.kind == "different" for outcome in outcomes)


class Bench:
    """Runner for the cases of one operator, with and without shared memory."""

    def __init__(self, runtime: StockRuntime, schema: Schema, folder: Path) -> None:
        self.schema = schema
        self._runtime, self._folder = runtime, folder
        self._crashes = 0
        self._taken: dict[tuple[object, ...], bool] = {}

    def takes(self, run: Run) -> bool:
        """Return True if the kernel accepts a case when no tensors share memory."""
        key = (id(run.case), *_dtypes_of(self.schema, run).values())
        if key not in self._taken:
            self._taken[key] = self._runs(run)
        return self._taken[key]

    def _runs(self, run: Run) -> bool:
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

    def compare(self, runs: Sequence[Run]) -> list[Outcome]:
        """Run each case without and with shared memory, compare the outputs, and return the outcomes.

        Stop after the first program in which outputs differ.
        """
        outcomes: list[Outcome] = []
        for chunk in _chunks(runs):
            outcomes += self._compare(chunk)
            if _differs(outcomes):
                break
        return outcomes

    def _compare(self, runs: Sequence[Run]) -> list[Outcome]:
        try:
            return self._execute(runs, share=True)
        except ProgramFailureError as error:
            if self._crashes >= _MOST_CRASHES and isinstance(error, RuntimeCrashError):
                return [Outcome(run, "refused", f"{run.case} {run.dtypes}: {error}") for run in runs]
            if len(runs) > 1:
                middle = len(runs) // 2
                first = self._compare(runs[:middle])
                return first if _differs(first) else first + self._compare(runs[middle:])
            (run,) = runs
            if not self.takes(run):
                return [Outcome(run, "not taken")]
            kind: Literal["different", "refused"] = "different" if isinstance(error, RuntimeCrashError) else "refused"
            return [Outcome(run, kind, f"{run.case} {run.dtypes}: {error}")]

    def _execute(self, runs: Sequence[Run], *, share: bool) -> list[Outcome]:
        """Execute all runs in one program.

        If ``share`` is True, call each kernel again with an output in the bytes of an input. Return one outcome for
        each run; if ``share`` is False, return an empty list. Raises :class:`ProgramFailureError` if a call fails.
        """
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


def _chunks(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Divide runs into lists, each small enough for one program."""
    chunk: list[Run] = []
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
class _Place:
    """Range of a tensor's bytes in the program's only buffer."""

    offset: int
    nbytes: int

    def of(self, content: Bytes) -> Bytes:
        return content[self.offset : self.offset + self.nbytes]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Byte ranges of a run's outputs: ``alone`` for the call without shared memory, ``shared`` for the other call."""

    run: Run
    alone: tuple[_Place, ...]
    shared: tuple[_Place, ...]
    donor: _Place
    itemsizes: tuple[int, ...]


def _outcome(pair: _Pair, before: Bytes, after: Bytes) -> Outcome:
    run = pair.run
    for alone, shared, itemsize in zip(pair.alone, pair.shared, pair.itemsizes, strict=True):
        differs = (alone.of(after) != shared.of(after)).reshape(-1, itemsize).any(1)
        if wrong := int(differs.sum()):
            text = f"{run.case} {run.dtypes}: {wrong:,} of {len(differs):,} elements"
            return Outcome(run, "different", text)
    copies = bool((pair.donor.of(before) == pair.shared[run.donor.output].of(after)).all())
    return Outcome(run, "identical", copies=copies)


def _dtypes_of(schema: Schema, run: Run) -> dict[str, m.ScalarType]:
    """Map the name of each argument and output to its element type.

    If the case does not state a type, use the type in ``run.dtypes``.
    """
    donor, output = schema.arguments[run.donor.argument].name, schema.outputs[run.donor.output].name
    # Further outputs, such as the deviation that follows a mean, have the type of `output`. But if the case states the
    # type of `output`, they have the type of the other inputs.
    other_dtypes = run.dtypes.others if run.case.outputs[run.donor.output].dtype else run.dtypes.output
    dtypes = {item.name: run.dtypes.others for item in schema.arguments}
    dtypes |= {item.name: other_dtypes for item in schema.outputs}
    dtypes |= {donor: run.dtypes.donor, output: run.dtypes.output}
    made = {item.name: spec for item, spec in zip(schema.outputs, run.case.outputs, strict=True)}
    given = {**run.case.arguments, **made}
    return dtypes | {name: spec.dtype for name, spec in given.items() if isinstance(spec, TensorArg) and spec.dtype}


class _Builder:
    """Builder of a program whose input and output show every byte that a kernel reads or writes.

    The only input is the content of the program's memory before the calls. The only output is the content of the same
    memory after all calls.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._values: list[m.Value] = []
        self._plains: dict[m.Value, int] = {}
        self._calls: list[m.KernelCall] = []
        self._filled: list[tuple[_Place, TensorArg, m.ScalarType]] = []
        self._end = 0

    def add(self, run: Run, *, share: bool) -> _Pair:
        """Add a call of the kernel. If ``share`` is True, add a second call that overwrites an input with an output."""
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
        """Return a program with all calls added so far."""
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
        """Return the memory's content before the first call: numbers in the inputs, and random bytes elsewhere."""
        import numpy as np

        random = np.random.default_rng(0)
        memory = random.integers(0, 256, self._end + _GAP, dtype=np.uint8)
        for place, spec, dtype in self._filled:
            place.of(memory)[:] = _numbers(spec, dtype, random).view(np.uint8)
        return memory

    def _call(self, given: Sequence[int], outs: Sequence[int]) -> None:
        # In a call, outputs follow the arguments. The last value is the return value: the only output, or a list of
        # all.
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
            self._end = -(-(at + nbytes) // _GAP) * _GAP + _GAP
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
        """Return the index of a value that is not a tensor; add the value if needed. Equal values share an index."""
        if value not in self._plains:
            self._plains[value] = self._add(value)
        return self._plains[value]

    def _add(self, value: m.Value) -> int:
        self._values.append(value)
        return len(self._values) - 1


_GAP = 64
"""Alignment in bytes of each tensor, and minimum number of unused bytes after each tensor."""


def _numbers(spec: TensorArg, dtype: m.ScalarType, random: Generator) -> Bytes:
    """Return a tensor's bytes in memory order. The elements are ones or random numbers, as ``spec`` requires."""
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
        # No number is 0, since an integer division by 0 would crash.
        sign = 1 if dtype is m.ScalarType.BYTE else 2 * random.integers(0, 2, count) - 1
        numbers = sign * random.integers(1, 100, count)
    if dtype is m.ScalarType.BFLOAT16:
        # NumPy has no bfloat16. A bfloat16 is the upper half of a float32, so take these halves.
        return np.ascontiguousarray(numbers.astype(np.float32).view(np.uint16)[1::2])
    return numbers.astype(DTYPES[dtype])
