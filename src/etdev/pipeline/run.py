"""Running a ``.pte``: in the stock runtime where that can, else by the interpreter."""

from __future__ import annotations

import hashlib
import io
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.errors import MissingRequirementError, UsageError
from etdev.files import atomic_write_bytes
from etdev.pipeline.result import Part
from etdev.pipeline.run_inputs import input_names, read_calls
from etdev.pipeline.verify.execution import stock_obstacle
from etdev.pipeline.verify.file import requirements
from etdev.pipeline.verify.made_up import random_inputs
from etdev.pipeline.verify.replay import open_replay, replay_obstacle, torch_obstacle
from etdev.pipeline.verify.subject import Runtime
from etdev.program import Program, read
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.errors import RunError
from etdev.runtime.stock import ProgramFailureError, StockRuntime

if TYPE_CHECKING:
    import torch

RuntimeName = Literal["stock", "replay"]


class OutputResult(Part):
    """One output of a call."""

    position: int
    type: str
    """``tensor``, ``int``, ``bool``, ``float``, ``str`` or ``NoneType``."""
    value: str | None = None
    """Of what is no tensor, as text."""
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    smallest: float | None = None
    """None for a tensor without elements, or where it is NaN."""
    largest: float | None = None
    mean: float | None = None
    strange: int = 0
    """Elements that are NaN or infinite; the other figures leave them out."""
    digest: str
    """Beginning of the sha256 of the bytes, in the order of the elements."""
    saved: str | None = None
    """The file that it was written to."""


class CallResult(Part):
    """One call."""

    seconds: float
    outputs: tuple[OutputResult, ...]


class RunResult(Part):
    """All calls, in order, on one state."""

    format: Literal[1] = 1
    file: str
    method: str
    runtime: RuntimeName
    reason: str | None
    """Why not the stock runtime, if it was not asked to run it."""
    calls: tuple[CallResult, ...]


@dataclass(frozen=True)
class RunOptions:
    """What is run, and how."""

    method: str = "forward"
    inputs: Sequence[str] = ()
    """As for ``--input``."""
    random: bool = False
    """Makes inputs up instead."""
    seed: int = 0
    repeat: int = 1
    """How often all calls are made."""
    runtime: RuntimeName | None = None
    """None takes the stock runtime if it can run the program."""
    device_map: DeviceMap = field(default_factory=lambda: NO_MAP)
    save: Path | None = None
    """Folder for the outputs."""


def run_file(file: Path, options: RunOptions) -> RunResult:
    """Call a method of a program, and say what came out.

    Raises :class:`~etdev.errors.UsageError` for inputs that do not fit, :class:`~etdev.runtime.errors.RunError` for a
    program that fails, :class:`~etdev.errors.MissingRequirementError` for what this machine lacks.
    """
    program = read(file)
    plan = program.method(options.method)
    problem = torch_obstacle()
    if problem is not None:
        raise MissingRequirementError(f"programs are run with torch: {problem}")
    if options.random and options.inputs:
        raise UsageError("inputs are given and made up at once", where="--random", hint="leave one out")
    if options.random:
        calls = [random_inputs(plan, options.seed)]
    else:
        calls = read_calls(plan, input_names(file, plan), options.inputs)
    with _chosen(program, options) as (name, reason, runtime):
        try:
            runtime.load(file)
            found = [_call(runtime, options.method, inputs) for _ in range(options.repeat) for inputs in calls]
        except ProgramFailureError as error:
            raise RunError(f"the program failed: {error}", where=str(file)) from error
    results = tuple(
        CallResult(seconds=seconds, outputs=tuple(_describe(at, value) for at, value in enumerate(outputs)))
        for seconds, outputs in found
    )
    if options.save is not None:
        results = _saved(options.save, results, [outputs for _, outputs in found])
    return RunResult(file=str(file), method=options.method, runtime=name, reason=reason, calls=results)


def _call(runtime: Runtime, method: str, inputs: tuple[Any, ...]) -> tuple[float, tuple[Any, ...]]:
    began = time.perf_counter()
    outputs = runtime.call(method, inputs)
    return time.perf_counter() - began, outputs


@contextmanager
def _chosen(program: Program, options: RunOptions) -> Iterator[tuple[RuntimeName, str | None, Runtime]]:
    """The runtime, its name, and why it is not the stock runtime."""
    reason = "--device-map was given" if options.device_map else None
    if options.runtime != "replay" and (reason is None or options.runtime == "stock"):
        with StockRuntime() as stock:
            reason = _stock_obstacle(program, stock)
            if reason is None:
                yield "stock", None, stock
                return
        if options.runtime == "stock":
            raise MissingRequirementError(reason, hint="leave out `--runtime stock`: the interpreter may run it")
    obstacle = replay_obstacle(program, options.device_map)
    if obstacle is not None:
        raise MissingRequirementError(obstacle if reason is None else f"{reason}; {obstacle}")
    with open_replay(options.device_map) as replay:
        yield "replay", reason, replay


def _stock_obstacle(program: Program, stock: StockRuntime) -> str | None:
    package = find_packages("executorch", remedy=BUILD_EXTRA)
    if not package.available:
        return package.reason
    try:
        return stock_obstacle(program, requirements(program), stock)
    except MissingRequirementError as error:
        return error.message


def _describe(position: int, value: Any) -> OutputResult:
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


def _saved(folder: Path, results: Sequence[CallResult], calls: Sequence[tuple[Any, ...]]) -> tuple[CallResult, ...]:
    """Each output as a ``.npy`` of its own, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    done = []
    for number, (result, outputs) in enumerate(zip(results, calls, strict=True)):
        prefix = f"call-{number}." if len(calls) > 1 else ""
        written = []
        for item, value in zip(result.outputs, outputs, strict=True):
            place = folder / f"{prefix}output-{item.position}.npy"
            atomic_write_bytes(place, _npy(value))
            written.append(item.model_copy(update={"saved": str(place)}))
        done.append(result.model_copy(update={"outputs": tuple(written)}))
    return tuple(done)


def _npy(value: Any) -> bytes:
    """A ``.npy``. Types that numpy lacks (``bfloat16``) become float32, which holds all their values."""
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
