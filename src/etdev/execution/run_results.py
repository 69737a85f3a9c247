"""Results of calls: descriptions of the outputs, and the files in which outputs are saved."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etdev.files import atomic_write_bytes
from etdev.inspection.naming import dtype_name
from etdev.pipeline.results.result import Part
from etdev.program.analysis.quantized_ends import QuantizedEnd
from etdev.runtime.errors import RunError

if TYPE_CHECKING:
    import torch

_MAX_VALUES = 16
"""Maximum number of elements of a tensor whose elements are part of the result."""
RuntimeName = Literal["stock", "replay", "native"]


class OutputResult(Part):
    """One output of a call."""

    position: int
    name: str | None = None
    """Name in the model's result, such as ``mask`` for ``{"mask": x}``; None if it has no name."""
    type: str
    """Type of the output: ``tensor``, ``int``, ``bool``, ``float``, ``str`` or ``NoneType``."""
    value: str | None = None
    """The value as text, if the output is not a tensor; otherwise None."""
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    scale: float | None = None
    """Scale of a quantized output: ``float = (integer - zero_point) * scale``; None if the output is not quantized."""
    zero_point: int | None = None
    smallest: float | None = None
    """Smallest finite element of the tensor; None if the output has no finite elements."""
    largest: float | None = None
    mean: float | None = None
    values: tuple[bool | int, ...] | None = None
    """Elements of a tensor of integers or booleans with at most 16 elements, in logical order; otherwise None."""
    strange: int = 0
    """Number of NaN or infinite elements. ``smallest``, ``largest`` and ``mean`` do not include them."""
    digest: str
    """First 16 hexadecimal digits of the SHA-256 of the output's elements, in logical order."""
    saved: str | None = None
    """Path of the file in which the output was saved; None if it was not saved."""


class CallResult(Part):
    """Results of one call."""

    seconds: float
    outputs: tuple[OutputResult, ...]


class WorkerResult(Part):
    """Statistics of one worker."""

    worker: int
    memory: str
    """Device on which the worker's memory is allocated, such as ``cuda:0``."""
    tasks: int
    bytes_to: int
    """Number of bytes copied to the worker's memory."""
    bytes_from: int
    bytes_avoided: int
    """Number of bytes that tasks used without a copy, because these bytes were already in the worker's memory."""


class RunResult(Part):
    """Results of all calls, in order."""

    format: Literal[1] = 1
    file: str
    method: str
    runtime: RuntimeName
    reason: str | None
    """Reason why etdev chose the replay; None for another runtime or if the user chose the replay."""
    inputs: str | None = None
    """Description of the origin of the inputs; None if the user passed them."""
    notes: tuple[str, ...] = ()
    """Notes on quantized inputs and outputs, and on devices in the device map that the program does not use."""
    calls: tuple[CallResult, ...]
    seconds: float
    """Seconds from the start of the first call to the end of the last call; loading is not included."""
    workers: tuple[WorkerResult, ...] = ()
    """Statistics of each worker; empty without ``--workers``."""


def describe_end(end: QuantizedEnd, names: Sequence[str]) -> str:
    """Return a note on a quantized input or output. ``names`` contains the names of the inputs."""
    dtype, scale = dtype_name(end.dtype), f"scale {end.scale:.6g} and zero point {end.zero_point}"
    if end.side == "input":
        return f"input {names[end.position]} is {dtype} with {scale}; etdev quantizes floats"
    return f"output {end.position} is {dtype} with {scale}"


def describe_output(
    position: int, value: Any, ends: Sequence[QuantizedEnd] = (), name: str | None = None
) -> OutputResult:
    """Return a description of an output: its type, its figures and its digest.

    ``ends`` contains the method's quantized inputs and outputs.
    """
    kind = type(value).__name__
    if not hasattr(value, "data_ptr"):
        text = repr(value)
        return OutputResult(position=position, name=name, type=kind, value=text, digest=_digest(text.encode()))
    import torch

    dense: torch.Tensor = value.detach().contiguous()
    numbers = dense.to(torch.float64).reshape(-1)
    usual = numbers[torch.isfinite(numbers)]
    end = next((end for end in ends if end.side == "output" and end.position == position), None)
    figures = [float(part) for part in (usual.min(), usual.max(), usual.mean())] if usual.numel() else [None] * 3
    return OutputResult(
        position=position,
        name=name,
        type="tensor",
        dtype=str(dense.dtype).removeprefix("torch."),
        shape=tuple(dense.shape),
        scale=None if end is None else end.scale,
        zero_point=None if end is None else end.zero_point,
        smallest=figures[0],
        largest=figures[1],
        mean=figures[2] if figures[2] is None or math.isfinite(figures[2]) else None,
        values=_few_values(dense),
        strange=numbers.numel() - usual.numel(),
        digest=_digest(dense.reshape(-1).view(torch.uint8).numpy().data if dense.numel() else b""),
    )


def _few_values(dense: torch.Tensor) -> tuple[bool | int, ...] | None:
    if dense.is_floating_point() or dense.is_complex() or dense.numel() > _MAX_VALUES:
        return None
    return tuple(dense.reshape(-1).tolist())


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def saved_outputs(
    folder: Path,
    results: Sequence[CallResult],
    calls: Sequence[tuple[Any, ...]],
    cut: Literal["rows", "axis"] | None,
) -> tuple[CallResult, ...]:
    """Write the outputs to ``.npy`` files, each atomically, and return the results with the files' paths.

    Each output of each call has its own file by default. If the calls are pieces of a data set (``cut``), each file
    contains the values of one output from all calls.
    """
    if cut is not None:
        places = [folder / f"output-{item.position}.npy" for item in results[0].outputs]
        arrays = [_together([outputs[position] for outputs in calls], cut) for position in range(len(places))]
        for place, array in zip(places, arrays, strict=True):
            atomic_write_bytes(place, _npy(array))
        return tuple(_with_places(result, places) for result in results)
    done = []
    for number, (result, outputs) in enumerate(zip(results, calls, strict=True)):
        prefix = f"call-{number}." if len(calls) > 1 else ""
        places = [folder / f"{prefix}output-{item.position}.npy" for item in result.outputs]
        for place, value in zip(places, outputs, strict=True):
            atomic_write_bytes(place, _npy(value))
        done.append(_with_places(result, places))
    return tuple(done)


def _with_places(result: CallResult, places: Sequence[Path]) -> CallResult:
    saved = [item.model_copy(update={"saved": str(place)}) for item, place in zip(result.outputs, places, strict=True)]
    return result.model_copy(update={"outputs": tuple(saved)})


def _together(values: Sequence[Any], cut: Literal["rows", "axis"]) -> Any:
    """Join the values of one output from all calls into one array.

    ``cut`` states how the data set was split into calls. Raises :class:`~etdev.runtime.errors.RunError` if the shapes
    differ.
    """
    import torch

    if not isinstance(values[0], torch.Tensor):
        return values
    shapes = {tuple(value.shape[1:] if cut == "rows" else value.shape) for value in values}
    if len(shapes) > 1:
        raise RunError(
            f"the outputs of the calls have different shapes, {' and '.join(map(str, sorted(shapes)[:2]))}",
            where="--save",
            hint="pass each sample with a separate `--input`, so that each call has its own output files",
        )
    return torch.cat(list(values)) if cut == "rows" and values[0].dim() else torch.stack(list(values))


def _npy(value: Any) -> bytes:
    """Return the content of a ``.npy`` file with this value.

    A dtype that numpy does not support (``bfloat16``) is converted to float32 without loss.
    """
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        try:
            array = value.detach().contiguous().numpy()
        except TypeError:
            array = value.detach().to(torch.float32).contiguous().numpy()
    else:
        array = np.asarray(value)
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()
