"""Functions that call the methods of a ``.pte``.

The default runtime is the stock runtime or, if necessary, etdev's interpreter (the replay).
"""

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
from etdev.execution.call_inputs import Calls, describe_inputs, input_names, read_calls
from etdev.execution.native import open_native
from etdev.execution.random_inputs import random_inputs
from etdev.execution.run_results import (
    CallResult,
    RunResult,
    RuntimeName,
    WorkerResult,
    describe_end,
    describe_output,
    saved_outputs,
)
from etdev.execution.runtimes import Runtime, open_replay, replay_obstacle, stock_obstacle, torch_obstacle
from etdev.execution.workers import Each, OnWorkers, WorkerOptions
from etdev.inspection.output_names import output_names
from etdev.pipeline.project import Project
from etdev.pipeline.project.runtime_contents import requirements
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.quantized_ends import QuantizedEnd, quantized_ends
from etdev.program.data_files.joined import read_joined
from etdev.program.data_files.lookups import missing_data
from etdev.program.devices import named_devices
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.errors import RunError
from etdev.runtime.native.executable import Notify, ignore_notice
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError, StockRuntime

CallProgress = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Function that takes the number of calls and returns a context manager that shows progress.

The context manager yields a function that must be called after each call.
"""


@contextmanager
def no_progress(total: int) -> Iterator[Callable[[], None]]:
    """Yield a function that does nothing, for callers that show no progress."""
    yield lambda: None


@dataclass(frozen=True)
class CallSpec:
    """Specification of the calls of a program: the method, its inputs and the runtime."""

    method: str = "forward"
    inputs: Sequence[str] = ()
    """Arguments of the ``--input`` options."""
    random: bool = False
    """True if the inputs are random."""
    seed: int = 0
    runtime: RuntimeName | None = None
    """Runtime to use. None means the stock runtime or, if that runtime cannot run the program, the replay."""
    device_map: DeviceMap = field(default_factory=lambda: NO_MAP)
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    libraries: tuple[Path, ...] = ()
    """Native libraries for the native runtime to open, in addition to those that packages register."""
    project: Project | None = None
    """Project of the program's target. If the user passes no inputs, the project's samples are used."""
    notify: Notify = ignore_notice
    """Function that receives a message before the native runtime is compiled."""


@dataclass(frozen=True)
class RunOptions(CallSpec):
    """Options of ``etdev run``: the calls, the workers, and the folder for outputs."""

    repeat: int = 1
    """Number of times that the whole series of calls runs."""
    save: Path | None = None
    """Folder to save the outputs to; None to save nothing."""
    fresh: bool = False
    """True if each call starts from initial state, False if each call continues from the previous state."""
    workers: WorkerOptions | None = None
    """Options for workers; None to run the calls in this process, one after another."""
    progress: CallProgress = no_progress


def run_file(file: Path, options: RunOptions) -> RunResult:
    """Run the calls that the options specify, and return the results.

    Raises :class:`~etdev.errors.UsageError` for invalid inputs, :class:`~etdev.runtime.errors.RunError` if the program
    fails, and :class:`~etdev.errors.MissingRequirementError` if this machine lacks a requirement.
    """
    program, plan, calls = read_program(file, options)
    ends = quantized_ends(program).get(plan.name, ())
    found: list[tuple[float, tuple[Any, ...]]] = []
    workers: tuple[WorkerResult, ...] = ()
    count = len(calls.samples) * options.repeat
    with (
        chosen_runtime(program, options) as (name, reason, runtime),
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
                    file,
                    program,
                    plan,
                    name,
                    options.device_map,
                    options.workers,
                    options.fresh,
                    options.data,
                    options.libraries,
                )
                seconds, workers = on_workers.run(calls.samples, options.repeat, each)
        except ProgramFailureError as error:
            raise program_failed(error, file, plan, options) from error
    results = _results(found, ends, output_names(plan))
    if options.save is not None:
        results = saved_outputs(options.save, results, [outputs for _, outputs in found], calls.cut)
    return RunResult(
        file=str(file),
        method=options.method,
        runtime=name,
        reason=reason,
        inputs=calls.source,
        notes=(
            *(describe_end(end, input_names(file, plan)) for end in ends),
            *describe_unused(named_devices(program), options.device_map),
        ),
        calls=results,
        seconds=seconds,
        workers=workers,
    )


def _results(
    calls: Sequence[tuple[float, tuple[Any, ...]]], ends: Sequence[QuantizedEnd], names: Sequence[str | None]
) -> tuple[CallResult, ...]:
    """Describe the outputs of each call. ``calls`` has the seconds and the outputs of each call."""
    return tuple(
        CallResult(
            seconds=seconds,
            outputs=tuple(
                describe_output(at, value, ends, name)
                for at, (value, name) in enumerate(zip(outputs, names, strict=True))
            ),
        )
        for seconds, outputs in calls
    )


def read_program(file: Path, spec: CallSpec) -> tuple[Program, m.ExecutionPlan, Calls]:
    """Return the program, the method to call, and the inputs of each call; raise the errors of :func:`run_file`."""
    program = read_joined(file, spec.data)
    outside = sorted(missing.name for missing in missing_data(program))
    if outside:
        message = f"the program needs weights from another file: {outside[0]!r}"
        more = f" and {len(outside) - 1:,} more" if len(outside) > 1 else ""
        raise UsageError(message + more, where=str(file), hint="pass that file: `--data FILE.ptd`")
    plan = _method(program, spec.method, file)
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
    calls = _calls(file, plan, spec, quantized_ends(program).get(plan.name, ()))
    if spec.inputs and spec.project is not None:
        _check_declared_sizes(spec.project, plan.name, calls)
    return program, plan, calls


def _check_declared_sizes(project: Project, method: str, calls: Calls) -> None:
    """Raise an error if an input has a size that the target's config excludes, such as one below a minimum.

    ExecuTorch's runtime only refuses sizes above the maximum of a dimension.
    """
    import torch

    from etdev.pipeline.stages.inputs import check_shape

    declared = project.config.methods.get(method)
    if declared is None or declared.inputs is None:
        return
    for sample in calls.samples:
        bound: dict[str, int] = {}
        for item, value in zip(declared.inputs, sample, strict=False):
            problem = check_shape(item, tuple(value.shape), declared.dims, bound) if torch.is_tensor(value) else None
            if problem is not None:
                hint = f"pass a size that the config declares: {project.where('methods', method)}"
                raise UsageError(problem, where="--input", hint=hint)


def _method(program: Program, name: str, file: Path) -> m.ExecutionPlan:
    try:
        return program.method(name)
    except UsageError as error:
        names = ", ".join(plan.name for plan in program.execution_plan)
        raise UsageError(error.message, where=str(file), hint=f"choose one with `--method`: {names}") from None


def _calls(file: Path, plan: m.ExecutionPlan, spec: CallSpec, ends: Sequence[QuantizedEnd]) -> Calls:
    """Return the inputs of each call: random inputs, the user's inputs, or the config's samples.

    ``ends`` contains the method's quantized inputs and outputs.
    """
    if spec.random:
        return Calls([random_inputs(plan, spec.seed, ends)], source=f"random, seed {spec.seed}")
    names = input_names(file, plan)
    if spec.project is not None and not spec.inputs:
        from etdev.execution.samples import config_calls

        calls = config_calls(spec.project, plan, names, ends)
        if calls is not None:
            return calls
    if not spec.inputs and plan.inputs:
        source = "the file has no samples" if spec.project is None else "the config sets no samples for it"
        raise UsageError(
            f"method {plan.name!r} needs inputs, and {source}",
            where=str(file),
            hint=f"pass `--input` ({describe_inputs(plan, names)}), or use `--random` for random inputs",
        )
    return read_calls(plan, names, spec.inputs, ends)


def program_failed(error: ProgramFailureError, file: Path, plan: m.ExecutionPlan, spec: CallSpec) -> RunError:
    """Return the error for a program that failed.

    If a kernel failed or the process crashed, the hint suggests checking the inputs. If delegates may lack weights in a
    data file, the hint suggests passing that file. Missing weights cannot be detected reliably: each backend fails in
    its own way, and XNNPACK crashes.
    """
    hints: list[str] = []
    if "Propagating input shapes failed" in str(error):  # By XNNPACK.
        hints = ["check the sizes of the inputs: the model takes only some of the sizes up to the maximum"]
    elif "KernelCall failed" in str(error):
        hints = [
            "check the values and sizes of the inputs: the kernel rejects some, such as an index that is out of range"
        ]
    else:
        if isinstance(error, RuntimeCrashError):
            hints.append("check the values of the inputs: some kernels do not check an index that is out of range")
        if not spec.data and plan.delegates:
            hints.append("if the program's delegates have weights in another file, pass that file: `--data FILE.ptd`")
    hint = "; ".join(hints) or None
    return RunError(f"the program failed: {error}", where=str(file), hint=hint)


def _one_after_the_other(
    runtime: Runtime, options: RunOptions, samples: Sequence[tuple[Any, ...]], each: Each
) -> float:
    """Make all calls in this process, one after another, and return the elapsed seconds."""
    start = time.perf_counter()
    for _ in range(options.repeat):
        for inputs in samples:
            began = time.perf_counter()
            outputs = runtime.call(options.method, inputs, fresh=options.fresh)
            each(time.perf_counter() - began, outputs)
    return time.perf_counter() - start


@contextmanager
def chosen_runtime(
    program: Program, spec: CallSpec, *, watch: bool = True
) -> Iterator[tuple[RuntimeName, str | None, Runtime]]:
    """Yield the name of the runtime, the reason why etdev chose the replay, and the runtime.

    For runtimes other than the replay, the reason is None. If ``spec.runtime`` is None, etdev prefers the stock
    runtime. etdev chooses the replay if there is a device map, or if the stock runtime cannot run the program.
    ``watch`` is an option of the native runtime (:func:`open_native`).
    """
    wanted, device_map = spec.runtime, spec.device_map
    if wanted == "native":
        with open_native(program, device_map, libraries=spec.libraries, watch=watch, notify=spec.notify) as native:
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
