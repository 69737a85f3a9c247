"""Running a ``.pte``: in the stock runtime where that can, else by the interpreter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.errors import MissingRequirementError, UsageError
from etdev.pipeline.project import Project
from etdev.pipeline.run_inputs import Calls, input_names, read_calls
from etdev.pipeline.run_results import (
    CallResult,
    RunResult,
    RuntimeName,
    WorkerResult,
    describe_output,
    saved_outputs,
)
from etdev.pipeline.run_workers import Each, OnWorkers, WorkerOptions
from etdev.pipeline.verify.devices import left_out, remedy, unused
from etdev.pipeline.verify.execution import stock_obstacle
from etdev.pipeline.verify.file import requirements
from etdev.pipeline.verify.random_inputs import random_inputs
from etdev.pipeline.verify.replay import open_replay, replay_obstacle, torch_obstacle
from etdev.pipeline.verify.subject import Runtime
from etdev.program import Program
from etdev.program import model as m
from etdev.program.devices import named_devices
from etdev.program.joined import read_joined
from etdev.program.lookups import missing_data
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.errors import RunError
from etdev.runtime.stock import ProgramFailureError, StockRuntime

CallProgress = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Shows how many of so many calls are made: what it gives is called after each."""


@contextmanager
def no_progress(total: int) -> Iterator[Callable[[], None]]:
    """Shows nothing."""
    yield lambda: None


@dataclass(frozen=True)
class CallSpec:
    """What is called: a method, with which inputs, in what runtime."""

    method: str = "forward"
    inputs: Sequence[str] = ()
    """As for ``--input``."""
    random: bool = False
    """Makes inputs up instead."""
    seed: int = 0
    runtime: RuntimeName | None = None
    """None takes the stock runtime if it can run the program."""
    device_map: DeviceMap = field(default_factory=lambda: NO_MAP)
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    project: Project | None = None
    """Of the target that the program was built for: where no inputs are given, it has samples."""


@dataclass(frozen=True)
class RunOptions(CallSpec):
    """How it is called, and what becomes of the outputs."""

    repeat: int = 1
    """How often all calls are made."""
    save: Path | None = None
    """Folder for the outputs."""
    fresh: bool = False
    """Whether each call begins in initial state."""
    workers: WorkerOptions | None = None
    """None runs the calls in this process, one after the other."""
    progress: CallProgress = no_progress


def run_file(file: Path, options: RunOptions) -> RunResult:
    """Call a method of a program, and say what came out.

    Raises :class:`~etdev.errors.UsageError` for inputs that do not fit, :class:`~etdev.runtime.errors.RunError` for a
    program that fails, :class:`~etdev.errors.MissingRequirementError` for what this machine lacks.
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
    superfluous = unused(named_devices(program), options.device_map)
    return RunResult(
        file=str(file),
        method=options.method,
        runtime=name,
        reason=reason,
        inputs=calls.source,
        notes=() if superfluous is None else (superfluous,),
        calls=results,
        seconds=seconds,
        workers=workers,
    )


def read_program(file: Path, asked: CallSpec) -> tuple[Program, m.ExecutionPlan, Calls]:
    """A program, the method of it that is called, and the inputs of each call. Raises as :func:`run_file` does."""
    program = read_joined(file, asked.data)
    outside = sorted(missing.name for missing in missing_data(program))
    if outside:
        message = f"the program has weights in another file: {outside[0]!r}"
        more = f" and {len(outside) - 1:,} more" if len(outside) > 1 else ""
        raise UsageError(message + more, where=str(file), hint="say which file: `--data FILE.ptd`")
    plan = program.method(asked.method)
    devices = named_devices(program)
    forgotten = left_out(devices, asked.device_map)
    if forgotten is not None:
        raise UsageError(forgotten, where="--device-map", hint=remedy(devices))
    problem = torch_obstacle()
    if problem is not None:
        raise MissingRequirementError(f"programs are run with torch: {problem}")
    if asked.random and asked.inputs:
        raise UsageError("inputs are given and made up at once", where="--random", hint="leave one out")
    return program, plan, _calls(file, plan, asked)


def _calls(file: Path, plan: m.ExecutionPlan, asked: CallSpec) -> Calls:
    """The inputs of each call: those that are given, made up, or the config's samples."""
    if asked.random:
        return Calls([random_inputs(plan, asked.seed)], source=f"made up, seed {asked.seed}")
    names = input_names(file, plan)
    if asked.project is not None and not asked.inputs:
        from etdev.pipeline.run_samples import config_calls

        calls = config_calls(asked.project, plan, names)
        if calls is not None:
            return calls
    return read_calls(plan, names, asked.inputs)


def program_failed(error: ProgramFailureError, file: Path, plan: m.ExecutionPlan, asked: CallSpec) -> RunError:
    """What is said of a program that does not run: a delegate that does not find its weights fails in its own way,
    that of XNNPACK crashes."""
    lacks = not asked.data and plan.delegates
    hint = "if its delegates have weights in another file, say which: `--data FILE.ptd`" if lacks else None
    return RunError(f"the program failed: {error}", where=str(file), hint=hint)


def _one_after_the_other(
    runtime: Runtime, options: RunOptions, samples: Sequence[tuple[Any, ...]], each: Each
) -> float:
    """Make all calls here; gives the seconds that they took."""
    start = time.perf_counter()
    for _ in range(options.repeat):
        for inputs in samples:
            began = time.perf_counter()
            outputs = runtime.call(options.method, inputs, fresh=options.fresh)
            each(time.perf_counter() - began, outputs)
    return time.perf_counter() - start


@contextmanager
def chosen_runtime(
    program: Program, wanted: RuntimeName | None, device_map: DeviceMap
) -> Iterator[tuple[RuntimeName, str | None, Runtime]]:
    """The runtime, its name, and why it is not the stock runtime if nobody said which."""
    reason = "--device-map was given" if device_map else None
    if wanted != "replay" and (reason is None or wanted == "stock"):
        with StockRuntime() as stock:
            reason = _stock_obstacle(program, stock)
            if reason is None:
                yield "stock", None, stock
                return
        if wanted == "stock":
            raise MissingRequirementError(reason, hint="leave out `--runtime stock`: the interpreter may run it")
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
