"""A program on several workers: what one runtime gives, in order, whoever computes it (D1, E2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etdev.errors import EtdevError
from etdev.program import Program, write
from etdev.program import model as m
from etdev.runtime.orchestrator import Orchestrator, WorkerLost
from etdev.runtime.orchestrator.spec import WorkerSpec
from etdev.runtime.pool import ProgramPool, ProgramSource, outputs_of
from etdev.runtime.replay import ReplayRuntime
from runtime.test_devices import X, resident, simulated
from support.files import chain, counters
from support.on_devices import two_devices

pytestmark = pytest.mark.integration

MAP = "cuda:0=sim,cuda:1=sim"
SIMULATED = WorkerSpec("cuda:0", device_map=MAP)


def saved(made: Program, folder: Path) -> Path:
    file = folder / "program.pte"
    write(made, file)
    return file


@pytest.mark.parametrize("transport", ["thread", pytest.param("process", marks=pytest.mark.nightly)])
def test_samples_come_back_in_order(tmp_path: Path, transport: str) -> None:
    file = saved(two_devices(), tmp_path)
    samples = [(X * number,) for number in range(20)]
    _, registry = simulated()
    with ReplayRuntime(registry=registry) as runtime:
        runtime.load(file)
        expected = [runtime.call("forward", sample) for sample in samples]
    with (
        Orchestrator([SIMULATED, SIMULATED], transport) as o,
        ProgramPool(o, ProgramSource(file, "replay")) as pool,
    ):
        found = [outputs for _, outputs in pool.map("forward", iter(samples))]
        assert all(worker.tasks > 1 for worker in o.stats().workers)
    torch.testing.assert_close(found, expected)


def test_the_stock_runtime_on_workers(tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    file = saved(chain(3), tmp_path)
    with Orchestrator(2) as o, ProgramPool(o, ProgramSource(file, "stock")) as pool:
        found = [outputs[0] for _, outputs in pool.map("forward", [(X * number,) for number in range(6)])]
    torch.testing.assert_close(found, [(X * number).sin().sin().sin() for number in range(6)])


def test_state_stays_on_its_worker_and_begins_anew_where_that_is_asked(tmp_path: Path) -> None:
    file = saved(counters(), tmp_path)
    ones = torch.ones(4)
    with Orchestrator(2) as o, ProgramPool(o, ProgramSource(file, "replay")) as pool:
        on_one = [outputs_of(pool.call("first", (ones,), worker=0))[1][0] for _ in range(3)]
        (on_other,) = outputs_of(pool.call("first", (ones,), worker=1))[1]
        fresh = [outputs[0] for _, outputs in pool.map("first", [(ones,)] * 5, fresh=True)]
    torch.testing.assert_close(on_one, [ones, 2 * ones, 3 * ones])
    torch.testing.assert_close(on_other, ones)
    torch.testing.assert_close(fresh, [ones] * 5)


def test_an_input_on_a_device_is_placed_once_on_each_worker(tmp_path: Path) -> None:
    made = resident()
    file = saved(made, tmp_path)
    declared = made.execution_plan[0].values[0]
    assert isinstance(declared, m.Tensor)
    with (
        Orchestrator([SIMULATED, SIMULATED]) as o,
        ProgramPool(o, ProgramSource(file, "replay")) as pool,
    ):
        pool.keep("forward", 0, X, declared)
        found = [outputs[0] for _, outputs in pool.map("forward", [(None,)] * 10)]
        stats = o.stats().workers
    torch.testing.assert_close(found, [X.sin()] * 10)
    assert [worker.bytes_to for worker in stats] == [X.nbytes, X.nbytes]
    assert sum(worker.copies_avoided for worker in stats) == 10


def test_tensors_keep_the_order_of_their_dimensions(tmp_path: Path) -> None:
    from etdev.runtime.pool import _pack, _unpack

    for tensor in (torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.rand(3, 4).t(), torch.rand(())):
        found = _unpack(_pack(tensor))
        assert torch.equal(found, tensor)
        assert found.stride() == tensor.stride()


def test_a_program_that_does_not_load_and_a_call_that_fails(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(b"nothing")
    with Orchestrator(2) as o:
        with pytest.raises(Exception, match=r"broken\.pte"):
            ProgramPool(o, ProgramSource(broken, "replay"))
        with ProgramPool(o, ProgramSource(saved(chain(3), tmp_path), "replay")) as pool:
            with pytest.raises(Exception, match="input 0 of method 'forward'"):
                list(pool.map("forward", [(X,), (torch.zeros(5),), (X,)]))
            assert len(list(pool.map("forward", [(X,)] * 3))) == 3
        o.wait()
        assert o.stats().buffers == ()


def test_a_worker_that_dies_in_the_middle(tmp_path: Path) -> None:
    file = saved(chain(3), tmp_path)
    with Orchestrator(2) as o, ProgramPool(o, ProgramSource(file, "replay")) as pool:

        def samples() -> object:
            for number in range(50):
                if number == 10:
                    o.kill(0)
                yield (X,)

        with pytest.raises((WorkerLost, EtdevError), match="worker 0 is lost"):
            list(pool.map("forward", samples()))  # type: ignore[arg-type]
