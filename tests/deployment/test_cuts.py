"""E5: a deployment that is cut at any moment leaves the old release or the new one, and the next one cleans up."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deployment.places import Maker, Target, check_serves, strays
from etdev.deployment.release import Terms, deploy, roll_back
from etdev.deployment.transports.base import Transport
from etdev.errors import DeployError

TERMS = Terms(keep=1)


class Cut:
    """A transport that is lost at its ``turn``-th step, before or after what the step does, and stays lost."""

    def __init__(self, inner: Transport, turn: int, *, after: bool) -> None:
        self._inner, self._turn, self._after = inner, turn, after
        self.steps = 0

    @property
    def is_lost(self) -> bool:
        return self.steps > self._turn

    def __getattr__(self, name: str) -> Callable[..., object]:
        step = getattr(self._inner, name)

        def taken(*arguments: object) -> object:
            self.steps += 1
            if self.steps <= self._turn:
                return step(*arguments)
            if self.steps == self._turn + 1 and self._after:
                step(*arguments)
            raise DeployError("the connection is cut")

        return taken


def _now() -> datetime:
    return datetime.now(UTC)


def _each_cut(
    target: Target, act: Callable[[Transport], object], check: Callable[[Transport], None], *, after: bool
) -> int:
    """Cut what ``act`` does at each of its steps, one after the other, and check what is there then."""
    turn = 0
    with target.open() as transport:
        while True:
            cut = Cut(transport, turn, after=after)
            try:
                act(cut)  # type: ignore[arg-type]
            except DeployError:
                assert cut.is_lost
            check(transport)
            if not cut.is_lost:
                return turn
            turn += 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
class TestLostConnections:
    """The connection is lost at each step, and what was asked for last may have happened or not."""

    def test_of_a_first_deployment(self, after: bool, tried_target: Target, make: Maker) -> None:
        release = make("one", 100)

        def check(transport: Transport) -> None:
            check_serves(tried_target.place, release, None)
            deploy(transport, release, TERMS, _now())
            assert check_serves(tried_target.place, release)
            assert strays(tried_target.place) == []
            for name in transport.names(""):
                transport.remove(name)

        steps = _each_cut(tried_target, lambda cut: deploy(cut, release, TERMS, _now()), check, after=after)
        assert steps > 12

    def test_of_a_deployment_that_removes_an_old_release(self, after: bool, tried_target: Target, make: Maker) -> None:
        served = [make("a", 100), make("b", 100)]
        with tried_target.open() as transport:
            for release in served:
                deploy(transport, release, TERMS, _now())
        new = make("c0", 100)
        made = [0]

        def act(cut: Transport) -> None:
            deploy(cut, new, TERMS, _now())

        def check(transport: Transport) -> None:
            nonlocal new
            check_serves(tried_target.place, served[-1], new)
            deploy(transport, new, TERMS, _now())
            assert check_serves(tried_target.place, new) is new
            assert strays(tried_target.place) == []
            assert len(transport.names("releases")) == 2
            served.append(new)
            made[0] += 1
            new = make(f"c{made[0]}", 100)

        assert _each_cut(tried_target, act, check, after=after) > 15

    def test_of_a_rollback(self, after: bool, tried_target: Target, make: Maker) -> None:
        old, new = make("old", 100), make("new", 100)
        with tried_target.open() as transport:
            deploy(transport, old, TERMS, _now())
            deploy(transport, new, TERMS, _now())

        def check(transport: Transport) -> None:
            check_serves(tried_target.place, old, new)
            assert deploy(transport, new, TERMS, _now()).action in ("switched", "unchanged")
            assert check_serves(tried_target.place, new) is new
            assert strays(tried_target.place) == []

        assert _each_cut(tried_target, lambda cut: roll_back(cut, TERMS, _now()), check, after=after) > 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_request_to_s3(s3_target: Target, make: Maker) -> None:
    """What is one step elsewhere is many requests there: copying to the place, removing."""
    target = s3_target
    with target.open() as transport:
        deploy(transport, make("a", 100), TERMS, _now())
        deploy(transport, make("b", 100), TERMS, _now())
        events = transport._client.meta.events  # type: ignore[attr-defined]
        served = [make("b", 100)]
        turn = 0
        while True:
            new, sent = make(f"c{turn}", 100), [0]

            def cut(turn: int = turn, sent: list[int] = sent, **_: object) -> None:
                sent[0] += 1
                if sent[0] > turn:
                    raise ConnectionResetError("the connection is cut")

            events.register("before-send.s3", cut)
            try:
                deploy(transport, new, TERMS, _now())
            except DeployError:
                assert sent[0] > turn
            finally:
                events.unregister("before-send.s3", cut)
            check_serves(target.place, served[-1], new)
            deploy(transport, new, TERMS, _now())
            assert check_serves(target.place, new) is new
            assert strays(target.place) == []
            served.append(new)
            if sent[0] <= turn:
                break
            turn += 1
    assert turn > 24


_CHILD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from deployment.places import Maker, Target
from etdev.deployment.release import Terms, deploy

uri, reach, folder, label, size = sys.argv[1:]
target = Target("", None, uri, {key: value for key, value in [item.split("=", 1) for item in reach.split()]})
if "known_hosts" in target.reach:
    target.reach["known_hosts"] = Path(target.reach["known_hosts"])
release = Maker(Path(folder))(label, int(size))
with target.open() as transport:
    print("ready", flush=True)
    deploy(transport, release, Terms(keep=1), datetime.now(UTC))
print("done", flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_processes(any_target: Target, make: Maker, repository: Path) -> None:
    """SIGKILL at twenty moments, drawn over the time that a deployment takes."""
    size, drawn = 4_000_000, random.Random(0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(repository / "tests"), *filter(None, sys.path)])}
    reach = " ".join(f"{key}={value}" for key, value in any_target.reach.items())

    def start(label: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _CHILD, any_target.uri, reach, str(make.folder), label, str(size)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    with start("0") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        began = time.monotonic()
        assert child.stdout.readline() == "done\n"
        takes = time.monotonic() - began
    served = make("0", size)
    killed = 0
    for turn in range(1, 21):
        new = make(str(turn), size)
        with start(str(turn)) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(drawn.uniform(0, takes))
            child.kill()
            child.wait()
        killed += child.returncode == -signal.SIGKILL
        check_serves(any_target.place, served, new)
        with any_target.open() as transport:
            deploy(transport, new, TERMS, _now())
        assert check_serves(any_target.place, new) is new
        assert strays(any_target.place) == []
        served = new
    assert killed >= 10
