"""Results of calls: descriptions of the outputs, and the files in which outputs are saved."""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etdev.files import atomic_write_bytes
from etdev.pipeline.results.result import Part
from etdev.runtime.errors import RunError

if TYPE_CHECKING:
    import torch

RuntimeName = Literal["stock", "replay", "native"]


class OutputResult(Part):
    """One output of a call."""

    position: int
    type: str
    """``tensor``, ``int``, ``bool``, ``float``, ``str`` or ``NoneType``."""
    value: str | None = None
    """The value as text, if the output is not a tensor; otherwise None."""
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    smallest: float | None = None
    """Smallest finite element; None if there are no finite elements."""
    largest: float | None = None
    mean: float | None = None
    strange: int = 0
    """Number of elements that are NaN or infinite; smallest, largest and mean ignore these elements."""
    digest: str
    """First digits of the SHA-256 of the output's bytes, with elements in logical order."""
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
    """Device that has the worker's memory, such as ``cuda:0``."""
    tasks: int
    bytes_to: int
    """Bytes copied to the worker's memory."""
    bytes_from: int
    bytes_avoided: int
    """Bytes that were not copied because they were already in the worker's memory, summed over the worker's tasks."""


class RunResult(Part):
    """Results of all calls, in order; the calls shared one state unless the options had ``fresh``."""

    format: Literal[1] = 1
    file: str
    method: str
    runtime: RuntimeName
    reason: str | None
    """Reason why the replay ran the program by default; None if the stock runtime ran it or the user chose the replay.
    """
    inputs: str | None = None
    """Description of the source of the inputs; None if the user passed them."""
    notes: tuple[str, ...] = ()
    """Notes on entries of the device map that the program does not use."""
    calls: tuple[CallResult, ...]
    seconds: float
    """Seconds from the start of the first call to the end of the last call, without loading."""
    workers: tuple[WorkerResult, ...] = ()
    """Statistics of each worker; empty without ``--workers``."""


def describe_output(position: int, value: Any) -> OutputResult:
    """Return the description of an output: its type, figures and digest."""
    kind = type(value).__name__
    if not hasattr(value, "data_ptr"):
        text = repr(value)
        return OutputResult(position=position, type=kind, value=text, digest=_digest(text.encode()))
    import torch

    dense: torch.Tensor = value.detach().contiguous()
    numbers = dense.to(torch.float64).reshape(-1)
    usual = numbers[torch.isfinite(numbers)]
    figures = [float(part) for part in (usual.min(), usual.max(), usual.mean())] if usual.numel() else [None] * 3
    return OutputResult(
        position=position,
        type="tensor",
        dtype=str(dense.dtype).removeprefix("torch."),
        shape=tuple(dense.shape),
        smallest=figures[0],
        largest=figures[1],
        mean=figures[2] if figures[2] is None or math.isfinite(figures[2]) else None,
        strange=numbers.numel() - usual.numel(),
        digest=_digest(dense.reshape(-1).view(torch.uint8).numpy().data if dense.numel() else b""),
    )


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def saved_outputs(
    folder: Path,
    results: Sequence[CallResult],
    calls: Sequence[tuple[Any, ...]],
    cut: Literal["rows", "axis"] | None,
) -> tuple[CallResult, ...]:
    """Write the outputs to ``.npy`` files, each atomically, and return the results with the files' paths.

    By default, each output of each call has its own file. If the calls are pieces of a data set (``cut``), the values
    of an output from all calls are joined in one file.
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
    """Join one output's values from all calls of a data set in one array; raise an error if the shapes differ."""
    import torch

    if not isinstance(values[0], torch.Tensor):
        return values
    shapes = {tuple(value.shape[1:] if cut == "rows" else value.shape) for value in values}
    if len(shapes) > 1:
        raise RunError(
            f"the outputs of the calls have different shapes, {' and '.join(map(str, sorted(shapes)[:2]))}",
            where="--save",
            hint="pass the samples one by one, so that each call has its own files",
        )
    return torch.cat(list(values)) if cut == "rows" and values[0].dim() else torch.stack(list(values))


def _npy(value: Any) -> bytes:
    """Return a value as the content of a ``.npy`` file.

    A dtype that numpy lacks (``bfloat16``) becomes float32, which represents all its values.
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
