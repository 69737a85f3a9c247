"""Programs whose devices are workers compute what they do on devices, and only what they copy crosses (D1, D2)."""

from __future__ import annotations

import pytest
import torch

from etdev.errors import EtdevError
from etdev.program import Program
from etdev.runtime.memory import DeviceMemoryBuffer
from etdev.runtime.method import load_program
from etdev.runtime.on_workers import across_workers
from etdev.runtime.orchestrator import Orchestrator, WorkerLost
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.replay import ReplayRuntime
from etdev.runtime.stock import ProgramFailureError
from runtime.test_devices import CUDA0, CUDA1, PROGRAMS, X, simulated
from support.on_devices import two_devices

PLACES = {CUDA0: 0, CUDA1: 1}


def calls(made: Program, runtime: ReplayRuntime) -> list[tuple[torch.Tensor, ...]]:
    runtime.load(made)
    first = [runtime.call("forward", (factor * X,)) for factor in (1, 2)]
    return [*first, runtime.call("forward", (X,), fresh=True)]


@pytest.mark.parametrize(
    ("name", "transport", "memory"),
    [
        *((name, "thread", "sim") for name in PROGRAMS),
        ("weights", "thread", "cpu"),
        pytest.param("weights", "process", "sim", marks=pytest.mark.nightly),
    ],
)
def test_a_program_computes_what_it_does_on_devices(name: str, transport: str, memory: str) -> None:
    _, registry = simulated()
    with ReplayRuntime(registry=registry) as runtime:
        expected = calls(PROGRAMS[name](), runtime)
    with Orchestrator([memory, memory], transport) as o:
        registry, executors = across_workers(o, PLACES)
        with ReplayRuntime(registry=registry, executors=executors) as runtime:
            found = calls(PROGRAMS[name](), runtime)
        o.wait()
        assert o.stats().buffers == ()
    torch.testing.assert_close(found, expected)


def test_what_crosses_is_what_the_program_copies() -> None:
    with Orchestrator(["sim", "sim"]) as o:
        registry, executors = across_workers(o, PLACES)
        with load_program(two_devices(), registry=registry, executors=executors) as loaded:
            before = o.stats().workers
            loaded.execute("forward", (X,))
            after = o.stats().workers
    for one, other in zip(before, after, strict=True):
        assert (other.bytes_to - one.bytes_to, other.bytes_from - one.bytes_from) == (16, 16)
        assert other.bytes_avoided - one.bytes_avoided >= 32


def test_a_worker_that_dies_fails_the_call_that_needs_it() -> None:
    with Orchestrator(["sim", "sim"]) as o:
        registry, executors = across_workers(o, PLACES)
        with load_program(two_devices(), registry=registry, executors=executors) as loaded:
            loaded.execute("forward", (X,))
            o.kill(1)
            with pytest.raises(WorkerLost, match="worker 1 is lost"):
                loaded.execute("forward", (X,))


def test_a_worker_with_too_little_memory_is_named_with_the_buffer() -> None:
    with Orchestrator([WorkerSpec("sim", capacity=100), WorkerSpec("sim", capacity=20)]) as o:
        registry, executors = across_workers(o, PLACES)
        words = r"planned buffer 3 on cuda:1 needs 32 bytes.* cannot allocate 32 bytes: 20 bytes free"
        with ReplayRuntime(registry=registry, executors=executors) as runtime, pytest.raises(EtdevError, match=words):
            runtime.load(two_devices())
        o.wait()
        assert o.stats().buffers == ()


def test_a_device_that_no_worker_is() -> None:
    with Orchestrator(["sim"]) as o:
        registry, executors = across_workers(o, {CUDA0: 0})
        with (
            ReplayRuntime(registry=registry, executors=executors) as runtime,
            pytest.raises(ProgramFailureError) as caught,
        ):
            runtime.load(two_devices())
    assert "cuda:1" in str(caught.value)


def test_memory_that_the_garbage_collector_finds_is_freed_when_that_can_be_done() -> None:
    """A buffer that ends while this thread is in the orchestrator, or in the allocator, waits for the next occasion."""
    with Orchestrator(["sim"]) as o:
        registry, _ = across_workers(o, {CUDA0: 0})
        devices = registry.get(CUDA0.type)
        one, two = (DeviceMemoryBuffer.create(16, CUDA0.type, registry=registry) for _ in range(2))
        with o._engine.lock:
            one.close()
        with devices._lock:
            two.close()
        assert len(devices.live()) == 2
        three = DeviceMemoryBuffer.create(16, CUDA0.type, registry=registry)
        assert [item.address for item in devices.live()] == [three.data()]
        three.close()
        o.wait()
        assert o.stats().buffers == ()
