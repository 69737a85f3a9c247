"""Inputs of a program, read from files of arrays or passed as numbers; formats that can run code are rejected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

from etdev.config.keys import nearest
from etdev.errors import UsageError
from etdev.execution.arrays import FORMATS, NAMED, WHERE, read_arrays
from etdev.execution.fit import misfit, size_hint, wanted, wrong_axes
from etdev.execution.float_ends import quantize
from etdev.execution.literals import BOOLEANS, literal_tensor, literal_value
from etdev.files import describe_os_error, read_file
from etdev.pipeline.results.report import find_report, report_beside
from etdev.program import model as m
from etdev.program.analysis.quantized_ends import QuantizedEnd
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch

_REFUSED = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib"})
_TEXT = frozenset({".txt", ".csv"})


@dataclass(frozen=True, slots=True)
class _Given:
    """One ``--input`` option of the form ``NAME=FILE``, ``NAME=NUMBER`` or ``NAME=LIST``."""

    label: str
    """Label of the input in messages."""
    names: tuple[str, ...]
    """Names under which a file of several arrays may contain the array: the input's names and the input's position."""
    text: str


def input_names(file: Path, plan: m.ExecutionPlan) -> tuple[str, ...]:
    """Return the names of a method's inputs, from the ``report.json`` next to the file.

    If there is no such report, return the inputs' positions as names: ``0``, ``1`` and so on.
    """
    positions = tuple(map(str, range(len(plan.inputs))))
    report = find_report(report_beside(file))
    for target in () if report is None else report.targets:
        for method in target.methods:
            if PurePath(target.artifact).name == file.name and method.name == plan.name:
                names = method.input_names
                return names if len(names) == len(positions) == len(set(names)) else positions
    return positions


@dataclass(frozen=True, slots=True)
class Calls:
    """Inputs of one or more calls."""

    samples: Sequence[tuple[Any, ...]]
    cut: Literal["rows", "axis"] | None = None
    """Way in which a data set is split into calls; None if the inputs contain no data set.

    ``axis``: each call uses one index of an additional first axis. ``rows``: each call uses several rows of the first
    axis.
    """
    source: str | None = None
    """Description of the origin of the inputs; None if the user passed them."""


def read_calls(
    plan: m.ExecutionPlan, names: Sequence[str], texts: Sequence[str], ends: Sequence[QuantizedEnd] = ()
) -> Calls:
    """Return the inputs of each call, in the order of the method's inputs.

    Each of ``texts`` is ``NAME=FILE``, ``NAME=NUMBER`` (for an input with one element), ``NAME=LIST``, or a file of
    several arrays. ``NAME`` may be a position, and may be omitted if the method has one input. A text for an input that
    already has a value starts the next call.

    An array with more rows than the input is a data set. It is split into pieces, one for each call. Inputs that are
    not data sets are the same in all of these calls.

    ``ends`` contains the method's quantized inputs and outputs. For a quantized input, arrays of float32 and numbers in
    a text file are quantized. Arrays of the program's own data type are not changed.

    Raises :class:`~etdev.errors.UsageError`, whose message states the input and its expected type.
    """
    quantized = {end.position: end for end in ends if end.side == "input"}
    given: list[dict[int, Any]] = [{}]
    for text in texts:
        for position, value in _read(plan, names, text, quantized):
            if position in given[-1]:
                given.append({})
            given[-1][position] = value
    calls: list[tuple[Any, ...]] = []
    for number, call in enumerate(given):
        missing = [position for position in range(len(plan.inputs)) if position not in call]
        if missing:
            which = f" in call {number}" if len(given) > 1 else ""
            raise UsageError(
                f"there is no value for {_labels(names, missing)}{which}",
                where=WHERE,
                hint=f"pass the inputs of method {plan.name!r} ({describe_inputs(plan, names)}), or use `--random` "
                "for random inputs",
            )
        calls += _each(names, call)
    sets = {value.cut for call in given for value in call.values() if isinstance(value, DataSet)}
    return Calls(calls, "rows" if sets == {"rows"} else "axis" if sets else None)


def _each(names: Sequence[str], call: Mapping[int, Any]) -> list[tuple[Any, ...]]:
    """Return the calls for one set of inputs.

    Call N takes piece N of each data set. Without data sets, there is only one call.
    """
    counts = {position: len(value.pieces) for position, value in call.items() if isinstance(value, DataSet)}
    if len(set(counts.values())) > 1:
        (one, first), (other, second) = list(counts.items())[:2]
        raise UsageError(
            f"{input_label(names, one)} has values for {first} calls, "
            f"but {input_label(names, other)} has values for {second}",
            where=WHERE,
            hint="pass data sets that contain inputs for the same number of calls",
        )
    return [
        tuple(call[position].pieces[number] if position in counts else call[position] for position in range(len(call)))
        for number in range(next(iter(counts.values()), 1))
    ]


@dataclass(frozen=True, slots=True)
class DataSet:
    """An array that contains an input's values for several calls, split into one piece for each call."""

    pieces: Sequence[torch.Tensor]
    cut: Literal["rows", "axis"]


def input_label(names: Sequence[str], position: int) -> str:
    """Return a label for an input: ``input 'image'``, or ``input 0`` if the input has no name."""
    return f"input {_called(names, position)}"


def _labels(names: Sequence[str], positions: Sequence[int]) -> str:
    if len(positions) == 1:
        return input_label(names, positions[0])
    *most, last = (_called(names, position) for position in positions)
    return f"inputs {', '.join(most)} and {last}"


def _called(names: Sequence[str], position: int) -> str:
    return str(position) if names[position] == str(position) else repr(names[position])


def describe_inputs(plan: m.ExecutionPlan, names: Sequence[str]) -> str:
    """Describe a method's inputs, such as ``image: float32 [32, 1, 8, 8] at most, n: int``."""
    called = [f"input {name}" if name == str(position) else name for position, name in enumerate(names)]
    parts = [f"{name}: {wanted(plan.values[index])}" for name, index in zip(called, plan.inputs, strict=True)]
    return ", ".join(parts) or "nothing"


def _read(
    plan: m.ExecutionPlan, names: Sequence[str], text: str, quantized: Mapping[int, QuantizedEnd]
) -> Iterator[tuple[int, Any]]:
    if not names:
        raise UsageError(f"method {plan.name!r} has no inputs", where=WHERE, hint="remove the option `--input`")
    name, equals, rest = text.partition("=")
    if not equals and len(names) == 1:
        name, equals, rest = names[0], "=", text
    if equals:
        position = _position(plan, names, name)
        given = _Given(input_label(names, position), (name, names[position], str(position)), rest)
        yield position, _value(plan.values[plan.inputs[position]], given, quantized.get(position))
        return
    path = Path(text)
    if path.suffix.lower() not in NAMED:
        raise UsageError(
            f"{text!r} does not state the name of an input",
            where=WHERE,
            hint=f"write `NAME={text}`; the name may be omitted only for .npz and .safetensors files, which have names",
        )
    for key, array in read_arrays(path).items():
        position = _position(plan, names, key)
        tensor = _integers(array, quantized.get(position))
        yield position, _checked(plan.values[plan.inputs[position]], tensor, input_label(names, position))


def _position(plan: m.ExecutionPlan, names: Sequence[str], name: str) -> int:
    if name in names:
        return names.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(names):
        return int(name)
    near = nearest(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    raise UsageError(
        f"method {plan.name!r} has no input {name!r}",
        where=WHERE,
        hint=f"{hint}use the name or position of an input: {describe_inputs(plan, names)}",
    )


def _integers(tensor: torch.Tensor, end: QuantizedEnd | None) -> torch.Tensor:
    """Convert the floats for a quantized input to integers. Return other tensors unchanged."""
    import torch

    return tensor if end is None or tensor.dtype != torch.float32 else quantize(end, tensor)


def _value(declared: m.Value, given: _Given, end: QuantizedEnd | None) -> Any:
    if isinstance(declared, m.Tensor):
        numbers = declared if end is None else replace(declared, scalar_type=m.ScalarType.FLOAT)
        return _checked(declared, _integers(_tensor(numbers, given), end), given.label)
    try:
        match declared:
            case m.Int() if -(1 << 63) <= (number := int(given.text)) < 1 << 63:
                return number
            case m.Int():
                raise UsageError(
                    f"{given.label} must be an integer of 64 bits, but its value is {given.text}",
                    where=WHERE,
                    hint="write a number from -2^63 to 2^63 - 1",
                )
            case m.Double():
                return float(given.text)
            case m.Bool():
                return BOOLEANS[given.text.lower()]
            case m.String():
                return given.text
            case _:
                return None
    except (ValueError, KeyError):
        kind = type(declared).__name__.lower()
        raise UsageError(
            f"{given.label} must be a single {kind}, but its value is {given.text!r}",
            where=WHERE,
            hint=f"write `--input {given.names[1]}={_EXAMPLES[kind]}`",
        ) from None


def _tensor(declared: m.Tensor, given: _Given) -> torch.Tensor:
    value = literal_value(given.text)
    if value is not None:
        return literal_tensor(declared, value, given.label)
    path = Path(given.text)
    suffix = path.suffix.lower()
    if suffix in _TEXT:
        return _numbers(declared, path, given.label)
    if suffix in _REFUSED:
        raise UsageError(
            f"{given.label}: etdev does not read files like {path.name!r}, because they may run code",
            where=WHERE,
            hint=f"save the array as {FORMATS}",
        )
    found = read_arrays(path, given.label)
    name = next((name for name in given.names if name in found), None)
    if name is not None:
        return found[name]
    if len(found) == 1:
        return next(iter(found.values()))
    raise UsageError(
        f"{path} contains {', '.join(map(repr, found)) or 'nothing'}, but no array for {given.label}",
        where=WHERE,
        hint="pass a file with only one array, or give the array the name of the input",
    )


def _numbers(declared: m.Tensor, path: Path, label: str) -> torch.Tensor:
    """Read numbers from a text file, and return them as a tensor of the declared type and shape.

    White space or commas separate the numbers.
    """
    import torch

    try:
        words = read_file(path).decode("utf-8").replace(",", " ").split()
        numbers = [float(word) if declared.scalar_type.name in _FLOATS else int(word) for word in words]
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise UsageError(f"cannot read {label}: {path}: {cause}", where=WHERE, hint=remedy) from error
    except ValueError:
        kind = "numbers" if declared.scalar_type.name in _FLOATS else "whole numbers"
        raise UsageError(
            f"{label}: {path} must contain only {kind}", where=WHERE, hint=f"separate {kind} with spaces or commas"
        ) from None
    try:
        return torch.tensor(numbers, dtype=torch_dtype(declared.scalar_type)).reshape(declared.sizes)
    except (RuntimeError, OverflowError):
        raise UsageError(
            f"{label} is {wanted(declared)}, but {path} contains {len(numbers)} number{'s' * (len(numbers) != 1)}",
            where=WHERE,
            hint="to pass sizes below the maximum, use a .npy file, which contains the shape",
        ) from None


_FLOATS = frozenset({"HALF", "FLOAT", "DOUBLE", "BFLOAT16"})
_EXAMPLES = {"int": "3", "double": "0.5", "bool": "true"}


def _conversion(declared: m.Tensor, tensor: torch.Tensor) -> str:
    """Return advice on an array with another dtype or another number of axes than the input."""
    dtype, axes = torch_dtype(declared.scalar_type), len(declared.sizes)
    if tensor.dtype == dtype and tensor.dim() == axes - 1 and not wrong_axes(declared, (1, *tensor.shape)):
        return "add an axis of one batch: array[None]"
    if tensor.dtype != dtype and tensor.dim() == axes and not dtype.is_floating_point:
        return f"convert the array to {wanted(declared)}; etdev converts only float32 arrays for quantized inputs"
    return f"convert the array to {wanted(declared)}"


def _checked(declared: m.Value, tensor: torch.Tensor, called: str) -> torch.Tensor | DataSet:
    import torch

    problem = misfit(declared, tensor, called)
    if problem is None:
        return tensor
    if not isinstance(declared, m.Tensor):
        raise UsageError(problem, where=WHERE, hint="write `NAME=VALUE`")
    axes = len(declared.sizes)
    if tensor.dtype != torch_dtype(declared.scalar_type) or tensor.dim() not in (axes, axes + 1):
        hint = _conversion(declared, tensor)
        if tensor.dtype == torch.uint8 and torch_dtype(declared.scalar_type) == torch.int8:
            hint += ". For bytes of an image, subtract 128 first if the zero point is -128 (`etdev inspect` shows it)"
        raise UsageError(problem, where=WHERE, hint=hint)
    if tensor.dim() > axes:
        if not wrong_axes(declared, tensor.shape[1:]):
            return DataSet(tensor.unbind(), "axis")
        hint = f"pass an array of {wanted(declared)}, or a data set of such arrays along an additional first axis"
        raise UsageError(problem, where=WHERE, hint=hint)
    rows = declared.sizes[0] if axes > 1 and declared.is_static else 0
    if wrong_axes(declared, tensor.shape) == [0] and rows and tensor.shape[0] % rows == 0:
        return DataSet(torch.split(tensor, rows), "rows")
    raise UsageError(problem, where=WHERE, hint=size_hint(declared, tensor.shape))
