"""Orchestrators over every transport, with memory that the host cannot read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from etdev.runtime.orchestrator import Orchestrator
from etdev.runtime.orchestrator.transports import TRANSPORTS

Make = Callable[..., Orchestrator]


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One cluster for all tests of a process: it takes seconds to start."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    from etdev.runtime.orchestrator.transports.ray_cluster import SHARED

    SHARED.join(None)
    yield
    SHARED.leave()


@pytest.fixture(scope="session")
def idle_actors() -> list[Any]:
    """Actors whose orchestrators were closed."""
    return []


@pytest.fixture
def used_actors(ray_cluster: None, idle_actors: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors of one test go on in the next one: each takes a second to start."""
    from etdev.runtime.orchestrator.transports import ray

    class Thrifty(ray.RayTransport):
        def _actor(self) -> Any:
            return idle_actors.pop() if idle_actors else super()._actor()

        def _retire(self, lane: Any) -> None:
            if lane.alive:
                idle_actors.append(lane.actor)
                lane.gone.set()

    monkeypatch.setattr(ray, "RayTransport", Thrifty)


# A process takes 0.4 s of processor time to start, in each of a hundred tests, and an actor more. `test_process.py`
# and `test_ray.py` run in every case.
_MARKS = {"thread": (), "process": pytest.mark.integration, "ray": pytest.mark.nightly}


@pytest.fixture(params=[pytest.param(name, marks=_MARKS[name]) for name in TRANSPORTS])
def transport(request: pytest.FixtureRequest) -> str:
    """The name of a transport."""
    if request.param == "ray":
        request.getfixturevalue("used_actors")
    return str(request.param)


@pytest.fixture
def make(transport: str) -> Iterator[Make]:
    """Makes orchestrators, and ends them."""
    made: list[Orchestrator] = []

    def one(workers: object = ("sim", "sim"), **more: object) -> Orchestrator:
        made.append(Orchestrator(workers, transport, **more))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for orchestrator in made:
        orchestrator.close(cancel=True)
