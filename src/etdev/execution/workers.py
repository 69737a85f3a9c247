"""Calls of a program on workers.

If the user sets a number of workers, each worker has the whole program and runs some of the samples. Otherwise, each
worker runs the work of one device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etdev.devices import Device
from etdev.errors import LinkError, UsageError
from etdev.execution.native import libraries_for
from etdev.execution.run_results import RuntimeName, WorkerResult
from etdev.pipeline.stages.link.nested import nested_program, reference_delegates
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import effects
from etdev.program.analysis.flow import flow_graph
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_inputs
from etdev.program.devices import named_devices
from etdev.runtime.device_map import DeviceMap
from etdev.runtime.native import host_executable
from etdev.runtime.native.devices import devices_for
from etdev.runtime.on_workers import across_workers
from etdev.runtime.orchestrator import Orchestrator
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.pool import ProgramPool, ProgramSource
from etdev.runtime.replay import ReplayRuntime

Each = Callable[[float, tuple[Any, ...]], None]
"""Function that takes the duration in seconds and the outputs of a call. It is called once for each call, in order."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options for the workers on which calls run."""

    count: int | None = None
    """Number of workers, each with the whole program. If None, use one worker for each device of the program."""
    transport: str = "process"
    ray_address: str | None = None
    """Address of a running Ray cluster; if None, Ray starts a cluster."""


@dataclass(frozen=True, slots=True)
class OnWorkers:
    """A program, with all data needed to call it on workers."""

    file: Path
    program: Program
    plan: m.ExecutionPlan
    runtime: RuntimeName
    device_map: DeviceMap
    options: WorkerOptions
    fresh: bool
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    libraries: tuple[Path, ...] = ()
    """Native libraries for the native runtime to open, in addition to those that packages register."""

    def run(
        self, samples: Sequence[tuple[Any, ...]], repeat: int, each: Each
    ) -> tuple[float, tuple[WorkerResult, ...]]:
        """Make all calls, ``repeat`` times, and return the elapsed seconds and the workers' statistics.

        Loading the program on the workers is not included in the seconds. Raises the errors of
        :class:`~etdev.runtime.pool.ProgramPool`.
        """
        again = (sample for _ in range(repeat) for sample in samples)
        if self.options.count is None:
            return self._across_devices(again, each)
        if (
            len(samples) * repeat > 1
            and self.options.count > 1
            and not self.fresh
            and keeps_state(self.program, self.plan)
        ):
            raise UsageError(
                f"method {self.plan.name!r} keeps state from call to call, but calls on several workers have no fixed "
                "order",
                where="--workers",
                hint="use `--fresh` to start each call from initial state, or `--workers 1` to make the calls in order",
            )
        count = self.options.count
        with self.opened(count, samples, pinned=count > 1) as (orchestrator, pool):
            began = time.perf_counter()
            for seconds, outputs in pool.map(self.plan.name, again, fresh=self.fresh):
                each(seconds, outputs)
            return time.perf_counter() - began, _results(orchestrator)

    @contextmanager
    def opened(
        self, count: int, samples: Sequence[tuple[Any, ...]], *, pinned: bool
    ) -> Iterator[tuple[Orchestrator, ProgramPool]]:
        """Start workers that load the whole program, and yield the orchestrator and the pool of programs.

        If ``pinned`` is True, each worker is pinned to one core. An input on the workers' device may be the same tensor
        in all samples. If the method does not overwrite this input, each worker receives it only once.
        """
        home = self._home(tuple(named_devices(self.program)))
        spec = self._spec(home) if home is not None and self.runtime == "replay" else WorkerSpec()
        data = tuple(path.absolute() for path in self.data)
        source = ProgramSource(self.file.absolute(), self.runtime, data=data, pinned=pinned)
        if self.runtime == "native":
            source = replace(
                source,
                host=host_executable(),
                libraries=tuple(path.absolute() for path in libraries_for(self.program, self.libraries)),
                devices=devices_for(tuple(named_devices(self.program)), self.device_map),
            )
        with self._orchestrator([spec] * count) as orchestrator, ProgramPool(orchestrator, source) as pool:
            changed = _changed(self.program, self.plan)
            for position, value in enumerate(self.plan.inputs):
                if value in changed:
                    continue  # The method overwrites the input, and the next call needs it unchanged.
                declared = self.plan.values[value]
                if isinstance(declared, m.Tensor) and not declared.device.is_host and declared.device == home:
                    given = samples[0][position]
                    if all(sample[position] is given for sample in samples):
                        pool.keep(self.plan.name, position, given, declared)
            yield orchestrator, pool

    def _across_devices(self, again: Iterable[tuple[Any, ...]], each: Each) -> tuple[float, tuple[WorkerResult, ...]]:
        devices = tuple(named_devices(self.program))
        if not devices or self.runtime != "replay":
            raise UsageError(
                "one worker for each device requires the interpreter and a program that uses devices",
                where="--workers",
                hint="set a number of workers, such as `--workers 2`",
            )
        with ExitStack() as stack:
            orchestrator = stack.enter_context(self._orchestrator([self._spec(device) for device in devices]))
            registry, executors = across_workers(
                orchestrator, {device: worker for worker, device in enumerate(devices)}
            )
            runtime = stack.enter_context(ReplayRuntime(registry=registry, executors=executors))
            runtime.load(self.file, data=self.data)
            start = time.perf_counter()
            for sample in again:
                began = time.perf_counter()
                outputs = runtime.call(self.plan.name, sample, fresh=self.fresh)
                each(time.perf_counter() - began, outputs)
            return time.perf_counter() - start, _results(orchestrator)

    def _orchestrator(self, specs: Sequence[WorkerSpec]) -> Orchestrator:
        return Orchestrator(specs, self.options.transport, ray_address=self.options.ray_address)

    def _spec(self, device: Device) -> WorkerSpec:
        text = ",".join(f"{one}={target}" for one, target in self.device_map.items())
        return WorkerSpec(str(device), device_map=text)

    def _home(self, devices: Sequence[Device]) -> Device | None:
        """Return the device on which workers allocate memory; None if the program uses only the host.

        This is the device of the first input that is not on the host. If there is no such input, this is the program's
        first device.
        """
        declared = [self.plan.values[value] for value in self.plan.inputs]
        ends = [one.device for one in declared if isinstance(one, m.Tensor) and not one.device.is_host]
        return next(iter([*ends, *devices]), None)


def keeps_state(program: Program, plan: m.ExecutionPlan) -> bool:
    """Return True if a method, or a nested program in its reference delegates, keeps state from call to call.

    Also return True if the data flow cannot be analyzed. State in delegates of other backends is unknown and is
    ignored.
    """
    nested = (
        nested_program(program, owner, index) for owner, index, _ in reference_delegates(program) if owner is plan
    )
    try:
        return _plans_state(program, plan) or any(
            _plans_state(each, inside) for each in nested for inside in each.execution_plan
        )
    except LinkError:
        return True


def _changed(program: Program, plan: m.ExecutionPlan) -> frozenset[int]:
    """Return the indices of the values that instructions write.

    If the outputs of a delegate call are unknown, assume that the call writes no values.
    """
    known = delegate_inputs(program, plan)
    found: set[int] = set()
    for position, call in enumerate(flow_graph(plan).instructions):
        inputs = known.get(position, len(call.args)) if isinstance(call, m.DelegateCall) else None
        does = effects(plan, call, inputs)
        found.update((*does.writes, *does.updates))
    return frozenset(found)


def _plans_state(program: Program, plan: m.ExecutionPlan) -> bool:
    return any(storage.persistent for storage in method_memory(plan, delegate_inputs(program, plan)).storages)


def _results(orchestrator: Orchestrator) -> tuple[WorkerResult, ...]:
    return tuple(
        WorkerResult(
            worker=found.worker,
            memory=spec.memory,
            tasks=found.tasks,
            bytes_to=found.bytes_to,
            bytes_from=found.bytes_from,
            bytes_avoided=found.bytes_avoided,
        )
        for found, spec in zip(orchestrator.stats().workers, orchestrator.specs, strict=True)
    )
