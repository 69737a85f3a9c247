"""Programs at random: they give what serial execution gives, and with faults every future ends, in a result or a named
error (D3 to D7)."""

from __future__ import annotations

from concurrent.futures import CancelledError
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev.runtime.orchestrator import Orchestrator, PoisonedError, WorkerLost
from orchestrator import jobs
from orchestrator.graphs import LIMIT, Serial, check, draw_steps

RANDOMS = st.randoms(use_true_random=False)


def run_any(chance: Random, *, threads: bool, faults: bool) -> None:
    workers = chance.randint(1, 4)
    with Orchestrator(["sim"] * workers, seed=_seed(chance, threads=threads), timeout=LIMIT) as o:
        serial = Serial(o, workers)
        draw_steps(chance, serial, workers, faults=faults)
        check(serial)


def _seed(chance: Random, *, threads: bool) -> int | None:
    """Without threads, the order of tasks is drawn too."""
    return None if threads else chance.randint(0, 1 << 30)


@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("threads", [False, True])
@settings(max_examples=25)
@given(chance=RANDOMS)
@pytest.mark.sampled(2)
def test_any_graph_gives_what_serial_execution_gives(threads: bool, faults: bool, chance: Random) -> None:
    run_any(chance, threads=threads, faults=faults)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("threads", [False, True])
@settings(max_examples=1000)
@given(chance=RANDOMS)
def test_a_thousand_graphs_give_what_serial_execution_gives(threads: bool, faults: bool, chance: Random) -> None:
    run_any(chance, threads=threads, faults=faults)


@pytest.mark.parametrize("threads", [False, True])
@settings(max_examples=25)
@given(chance=RANDOMS)
def test_when_workers_die_every_future_ends(threads: bool, chance: Random) -> None:
    """What ends in a result has the right one."""
    workers = chance.randint(1, 4)
    with Orchestrator(["sim"] * workers, seed=_seed(chance, threads=threads), timeout=LIMIT) as o:
        serial = Serial(o, workers)
        draw_steps(chance, serial, workers, faults=False)
        for _ in range(0 if threads else chance.randint(0, 10)):
            o._engine.transport.step()
        killed = chance.randrange(workers)
        o.kill(killed)
        for step in serial.steps:
            try:
                assert step.future.result(LIMIT) == step.expected
            except (WorkerLost, PoisonedError, CancelledError):
                continue
        o.wait()
        o.restart(killed)
        assert o.submit(jobs.give, 1, worker=killed).result(LIMIT) == 1
        assert o.stats().waiting == 0
