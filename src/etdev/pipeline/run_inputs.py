"""Inputs of a program from files: arrays, tensors and numbers, never anything that runs code when it is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.config.keys import nearest
from etdev.errors import MissingRequirementError, UsageError
from etdev.files import describe_os_error
from etdev.pipeline.naming import dtype_name
from etdev.program import model as m
from etdev.runtime.interpreter.layout import torch_dtype

if TYPE_CHECKING:
    import torch

FORMATS = ".npy, .npz, .safetensors, .txt or .csv"
_WHERE = "--input"
_REFUSED = frozenset({".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib"})
_TEXT = frozenset({".txt", ".csv"})
_NAMED = frozenset({".npz", ".safetensors"})


@dataclass(frozen=True, slots=True)
class _Given:
    """One ``NAME=FILE``, ``NAME=NUMBER`` or ``FILE`` that holds several."""

    name: str
    text: str


def input_names(file: Path, plan: m.ExecutionPlan) -> tuple[str, ...]:
    """What the inputs of a method are called: by the ``report.json`` beside the file, or by their positions."""
    positions = tuple(map(str, range(len(plan.inputs))))
    try:
        report: Any = json.loads(file.with_name("report.json").read_bytes())
        methods = next(item for item in report["targets"] if Path(item["artifact"]).name == file.name)["methods"]
        texts = next(item for item in methods if item["name"] == plan.name)["inputs"]
        names = tuple(str(text).partition(":")[0] for text in texts)
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return positions
    return names if len(names) == len(positions) == len(set(names)) else positions


def read_calls(plan: m.ExecutionPlan, names: Sequence[str], texts: Sequence[str]) -> list[tuple[Any, ...]]:
    """The inputs of each call, in the method's order. An input that is given again begins the next call.

    ``texts`` are ``NAME=FILE``, with a name or a position, ``NAME=NUMBER`` for what is no tensor, or a file of several.
    Raises :class:`~etdev.errors.UsageError` naming the input and what the file wants.
    """
    calls: list[dict[int, Any]] = [{}]
    for text in texts:
        for position, value in _read(plan, names, text):
            if position in calls[-1]:
                calls.append({})
            calls[-1][position] = value
    for number, call in enumerate(calls):
        missing = [names[position] for position in range(len(plan.inputs)) if position not in call]
        if missing:
            which = f" in call {number}" if len(calls) > 1 else ""
            raise UsageError(
                f"nothing is given for the input{'s' * (len(missing) > 1)} {', '.join(map(repr, missing))}{which}",
                where=_WHERE,
                hint=f"method {plan.name!r} takes {describe_inputs(plan, names)}; `--random` makes some up",
            )
    return [tuple(call[position] for position in range(len(plan.inputs))) for call in calls]


def describe_inputs(plan: m.ExecutionPlan, names: Sequence[str]) -> str:
    """``image: float32 [32, 1, 8, 8] at most, n: int``."""
    parts = [f"{name}: {_wanted(plan.values[index])}" for name, index in zip(names, plan.inputs, strict=True)]
    return ", ".join(parts) or "nothing"


def _wanted(value: m.Value) -> str:
    if not isinstance(value, m.Tensor):
        return type(value).__name__.lower()
    text = f"{dtype_name(value.scalar_type)} {list(value.sizes)}"
    return text if value.shape_dynamism is m.TensorShapeDynamism.STATIC else f"{text} at most"


def _read(plan: m.ExecutionPlan, names: Sequence[str], text: str) -> Iterator[tuple[int, Any]]:
    name, equals, rest = text.partition("=")
    if equals:
        position = _position(plan, names, name)
        yield position, _value(plan.values[plan.inputs[position]], _Given(name, rest))
        return
    path = Path(text)
    if path.suffix.lower() not in _NAMED:
        raise UsageError(
            f"{text!r} does not say which input it is",
            where=_WHERE,
            hint=f"write `NAME={text}`; only .npz and .safetensors hold several by name",
        )
    for key, tensor in _tensors(path).items():
        position = _position(plan, names, key)
        yield position, _checked(plan.values[plan.inputs[position]], tensor, names[position])


def _position(plan: m.ExecutionPlan, names: Sequence[str], name: str) -> int:
    if name in names:
        return names.index(name)
    if name.isascii() and name.isdigit() and int(name) < len(names):
        return int(name)
    near = nearest(name, names)
    hint = f"did you mean {near!r}? " if near else ""
    raise UsageError(
        f"method {plan.name!r} has no input {name!r}",
        where=_WHERE,
        hint=f"{hint}it takes {describe_inputs(plan, names)}, by name or by position",
    )


def _value(declared: m.Value, given: _Given) -> Any:
    if isinstance(declared, m.Tensor):
        return _checked(declared, _tensor(declared, given), given.name)
    try:
        match declared:
            case m.Int():
                return int(given.text)
            case m.Double():
                return float(given.text)
            case m.Bool():
                return {"true": True, "false": False}[given.text.lower()]
            case m.String():
                return given.text
            case _:
                return None
    except (ValueError, KeyError):
        kind = type(declared).__name__.lower()
        raise UsageError(
            f"input {given.name!r} is no tensor but one {kind}, not {given.text!r}", where=_WHERE
        ) from None


def _tensor(declared: m.Tensor, given: _Given) -> torch.Tensor:
    path = Path(given.text)
    suffix = path.suffix.lower()
    if suffix in _TEXT:
        return _numbers(declared, path, given.name)
    if suffix in _REFUSED:
        raise UsageError(
            f"input {given.name!r}: files like {path.name!r} may run code when they are read, so they are not",
            where=_WHERE,
            hint=f"save it as {FORMATS}",
        )
    found = _tensors(path)
    if given.name in found:
        return found[given.name]
    if len(found) == 1:
        return next(iter(found.values()))
    raise UsageError(
        f"{path} holds {', '.join(map(repr, found)) or 'nothing'}, and none is named {given.name!r}",
        where=_WHERE,
        hint="give a file of one array, or name the array like the input",
    )


def _tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """Everything in a file, by name; the only array of a ``.npy`` has none."""
    readers = {".npy": _arrays, ".npz": _arrays, ".safetensors": _safetensors}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UsageError(f"{str(path)!r} is no kind of file that inputs are read from", where=_WHERE, hint=FORMATS)
    try:
        return reader(path)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {describe_os_error(error)[0]}", where=_WHERE) from error
    except (ValueError, EOFError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is malformed, or holds no plain arrays: {error}", where=_WHERE) from error


def _arrays(path: Path) -> dict[str, torch.Tensor]:
    import zipfile

    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    if isinstance(found, np.ndarray):
        return {"": _from_numpy(found)}
    with found:
        return {name: _from_numpy(found[name]) for name in found.files}


def _from_numpy(array: Any) -> torch.Tensor:
    import numpy as np
    import torch

    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).reshape(array.shape))


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    package = find_packages("safetensors", remedy=BUILD_EXTRA)
    if not package.available:
        raise MissingRequirementError(f"{path.name}: {package.reason}", hint=package.remedy)
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _numbers(declared: m.Tensor, path: Path, name: str) -> torch.Tensor:
    """Numbers with white space or commas between them, in the shape that the file states."""
    import torch

    try:
        words = path.read_text(encoding="utf-8").replace(",", " ").split()
        numbers = [float(word) if declared.scalar_type.name in _FLOATS else int(word) for word in words]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {describe_os_error(error)[0]}", where=_WHERE) from error
    except ValueError as error:
        raise UsageError(f"{path}, for input {name!r}: {error}", where=_WHERE) from error
    try:
        return torch.tensor(numbers, dtype=torch_dtype(declared.scalar_type)).reshape(declared.sizes)
    except (RuntimeError, OverflowError):
        raise UsageError(
            f"input {name!r} is {_wanted(declared)}, and {path} holds {len(numbers)} numbers",
            where=_WHERE,
            hint="for other sizes than the largest, give a .npy, which says its shape",
        ) from None


_FLOATS = frozenset({"HALF", "FLOAT", "DOUBLE", "BFLOAT16"})


def _checked(declared: m.Value, tensor: torch.Tensor, name: str) -> torch.Tensor:
    if not isinstance(declared, m.Tensor):
        raise UsageError(f"input {name!r} is no tensor but one {type(declared).__name__.lower()}", where=_WHERE)
    found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
    problem = f"input {name!r} is {_wanted(declared)}, and {found} is given"
    if tensor.dtype != torch_dtype(declared.scalar_type) or tensor.dim() != len(declared.sizes):
        raise UsageError(problem, where=_WHERE, hint="convert it before: nothing is converted here")
    for axis, (size, most) in enumerate(zip(tensor.shape, declared.sizes, strict=True)):
        fixed = declared.shape_dynamism is m.TensorShapeDynamism.STATIC
        bounded = declared.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_BOUND
        if (fixed and size != most) or (bounded and size > most):
            raise UsageError(f"{problem}: axis {axis} is {size}", where=_WHERE)
    return tensor
