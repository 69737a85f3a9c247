"""Runs of a ``.pte``: in the stock runtime if it can run the program, else in etdev's interpreter (the replay)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.errors import MissingRequirementError, UsageError
from etdev.execution.availability import describe_unused, left_out, remedy
from etdev.execution.call_inputs import Calls, input_names, read_calls
from etdev.execution.native import open_native
from etdev.execution.random_inputs import random_inputs
from etdev.execution.run_results import (
    CallResult,
    RunResult,
    RuntimeName,
    WorkerResult,
    describe_output,
    saved_outputs,
)
from etdev.execution.runtimes import Runtime, open_replay, replay_obstacle, stock_obstacle, torch_obstacle
from etdev.execution.workers import Each, OnWorkers, WorkerOptions
from etdev.pipeline.project import Project
from etdev.pipeline.project.runtime_contents import requirements
from etdev.program import Program
from etdev.program import model as m
from etdev.program.data_files.joined import read_joined
from etdev.program.data_files.lookups import missing_data
from etdev.program.devices import named_devices
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.errors import RunError
from etdev.runtime.stock import ProgramFailureError, StockRuntime

CallProgress = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Context manager that shows progress: takes the number of calls, and yields a function to call after each one."""


@contextmanager
def no_progress(total: int) -> Iterator[Callable[[], None]]:
    """Yield a function that does nothing, for callers without progress."""
    yield lambda: None


@dataclass(frozen=True)
class CallSpec:
    """Specification of the calls of a program: the method, its inputs and the runtime."""

    method: str = "forward"
    inputs: Sequence[str] = ()
    """Texts of the options ``--input``."""
    random: bool = False
    """True to use random inputs."""
    seed: int = 0
    runtime: RuntimeName | None = None
    """Runtime to use; None for the stock runtime if it can run the program, else the replay."""
    device_map: DeviceMap = field(default_factory=lambda: NO_MAP)
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    project: Project | None = None
    """Project with the target that the program was built for; its samples are used if there are no inputs."""


@dataclass(frozen=True)
class RunOptions(CallSpec):
    """Options of a run: a call specification, and where the outputs are saved."""

    repeat: int = 1
    """Number of times to make the whole series of calls."""
    save: Path | None = None
    """Folder to save the outputs to; None to save nothing."""
    fresh: bool = False
    """True if each call starts from initial state, False if it continues from the previous call's state."""
    workers: WorkerOptions | None = None
    """Options for workers; None to run the calls in this process, one after another."""
    progress: CallProgress = no_progress


def run_file(file: Path, options: RunOptions) -> RunResult:
    """Call a method of a program, and return the results.

    Raises :class:`~etdev.errors.UsageError` for invalid inputs, :class:`~etdev.runtime.errors.RunError` if the program
    fails, and :class:`~etdev.errors.MissingRequirementError` if this machine lacks a requirement.
    """
    program, plan, calls = read_program(file, options)
    found: list[tuple[float, tuple[Any, ...]]] = []
    workers: tuple[WorkerResult, ...] = ()
    count = len(calls.samples) * options.repeat
    with (
        chosen_runtime(program, options.runtime, options.device_map) as (name, reason, runtime),
        options.progress(count) as advance,
    ):

        def each(seconds: float, outputs: tuple[Any, ...]) -> None:
            found.append((seconds, outputs))
            advance()

        try:
            if options.workers is None:
                runtime.load(file, data=options.data)
                seconds = _one_after_the_other(runtime, options, calls.samples, each)
            else:
                on_workers = OnWorkers(
                    file, program, plan, name, options.device_map, options.workers, options.fresh, options.data
                )
                seconds, workers = on_workers.run(calls.samples, options.repeat, each)
        except ProgramFailureError as error:
            raise program_failed(error, file, plan, options) from error
    results = tuple(
        CallResult(seconds=seconds, outputs=tuple(describe_output(at, value) for at, value in enumerate(outputs)))
        for seconds, outputs in found
    )
    if options.save is not None:
        results = saved_outputs(options.save, results, [outputs for _, outputs in found], calls.cut)
    return RunResult(
        file=str(file),
        method=options.method,
        runtime=name,
        reason=reason,
        inputs=calls.source,
        notes=tuple(describe_unused(named_devices(program), options.device_map)),
        calls=results,
        seconds=seconds,
        workers=workers,
    )


def read_program(file: Path, spec: CallSpec) -> tuple[Program, m.ExecutionPlan, Calls]:
    """Return a program, its method to call, and the inputs of each call; raises the errors of :func:`run_file`."""
    program = read_joined(file, spec.data)
    outside = sorted(missing.name for missing in missing_data(program))
    if outside:
        message = f"the program needs weights from another file: {outside[0]!r}"
        more = f" and {len(outside) - 1:,} more" if len(outside) > 1 else ""
        raise UsageError(message + more, where=str(file), hint="pass that file: `--data FILE.ptd`")
    plan = program.method(spec.method)
    devices = named_devices(program)
    forgotten = left_out(devices, spec.device_map)
    if forgotten is not None:
        raise UsageError(forgotten, where="--device-map", hint=remedy(devices))
    problem = torch_obstacle()
    if problem is not None:
        raise MissingRequirementError(f"running a program requires torch: {problem}")
    if spec.random and spec.inputs:
        raise UsageError(
            "`--random` and `--input` cannot be used together",
            where="--random",
            hint="remove one of them",
        )
    return program, plan, _calls(file, plan, spec)


def _calls(file: Path, plan: m.ExecutionPlan, spec: CallSpec) -> Calls:
    """Return the inputs of each call: from the user, random ones, or the config's samples."""
    if spec.random:
        return Calls([random_inputs(plan, spec.seed)], source=f"random, seed {spec.seed}")
    names = input_names(file, plan)
    if spec.project is not None and not spec.inputs:
        from etdev.execution.samples import config_calls

        calls = config_calls(spec.project, plan, names)
        if calls is not None:
            return calls
    return read_calls(plan, names, spec.inputs)


def program_failed(error: ProgramFailureError, file: Path, plan: m.ExecutionPlan, spec: CallSpec) -> RunError:
    """Return the error for a program that failed.

    If the program's delegates may lack weights in a data file, the hint says so. Backends report this differently;
    XNNPACK crashes.
    """
    lacks = not spec.data and plan.delegates
    hint = (
        "if the program's delegates have weights in another file, pass that file: `--data FILE.ptd`" if lacks else None
    )
    return RunError(f"the program failed: {error}", where=str(file), hint=hint)


def _one_after_the_other(
    runtime: Runtime, options: RunOptions, samples: Sequence[tuple[Any, ...]], each: Each
) -> float:
    """Make all calls in this process, one after another; return the seconds that they took."""
    start = time.perf_counter()
    for _ in range(options.repeat):
        for inputs in samples:
            began = time.perf_counter()
            outputs = runtime.call(options.method, inputs, fresh=options.fresh)
            each(time.perf_counter() - began, outputs)
    return time.perf_counter() - start


@contextmanager
def chosen_runtime(
    program: Program, wanted: RuntimeName | None, device_map: DeviceMap, *, watch: bool = True
) -> Iterator[tuple[RuntimeName, str | None, Runtime]]:
    """Yield the runtime's name, the reason why it is not the stock runtime, and the runtime.

    The reason is None if this is the stock runtime, or if the user chose the runtime. ``watch`` is for the native
    runtime (:func:`open_native`).
    """
    if wanted == "native":
        with open_native(program, device_map, watch=watch) as native:
            yield "native", None, native
        return
    reason = "--device-map was given" if device_map else None
    if wanted != "replay" and (reason is None or wanted == "stock"):
        with StockRuntime() as stock:
            reason = _stock_obstacle(program, stock)
            if reason is None:
                yield "stock", None, stock
                return
        if wanted == "stock":
            raise MissingRequirementError(
                reason, hint="remove `--runtime stock`: the interpreter may be able to run the program"
            )
    obstacle = replay_obstacle(program, device_map)
    if obstacle is not None:
        why = obstacle.reason if reason is None or device_map else f"{reason}; {obstacle.reason}"
        raise MissingRequirementError(why, hint=obstacle.remedy)
    with open_replay(device_map) as replay:
        yield "replay", reason, replay


def _stock_obstacle(program: Program, stock: StockRuntime) -> str | None:
    package = find_packages("executorch", remedy=BUILD_EXTRA)
    if not package.available:
        return package.reason
    try:
        return stock_obstacle(program, requirements(program), stock)
    except MissingRequirementError as error:
        return error.message
