"""Workers that are Ray's actors: what Ray must not do by itself, and what is left when it ends (D7)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from etdev.errors import ExitCode, MissingRequirementError, UsageError
from etdev.runtime.orchestrator import Orchestrator, WorkerLost, WorkerSpec
from etdev.runtime.orchestrator.messages import Job
from orchestrator import jobs

pytestmark = pytest.mark.integration

LIMIT = 60.0
"""Seconds that nothing takes."""
SOON = 10.0
"""Seconds in which processes are gone."""


@pytest.fixture
def o(used_actors: None) -> Iterator[Orchestrator]:
    """An orchestrator with one worker."""
    with Orchestrator(["sim"], "ray") as found:
        yield found


def wait_until(condition: Callable[[], bool], seconds: float = LIMIT) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    """Does a process run?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


# What an actor does


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_task_that_wants_to_end_its_process_fails_and_no_more(o: Orchestrator, end: type[BaseException]) -> None:
    def leave() -> None:
        raise end(3)

    before = o.submit(jobs.pid).result(LIMIT)
    assert isinstance(o.submit(leave).exception(LIMIT), end)
    assert o.submit(jobs.pid).result(LIMIT) == before == o.health(0).pid


def test_functions_without_a_name_go_to_actors_and_their_classes_come_back(o: Orchestrator) -> None:
    class Odd(Exception):  # noqa: N818 - a class that no module has
        pass

    def fail() -> None:
        raise Odd("quite")

    assert o.submit(lambda value: value + 1, 2).result(LIMIT) == 3
    with pytest.raises(Odd, match="quite"):
        o.submit(fail).result(LIMIT)


def test_an_error_tells_where_on_the_actor_it_was_raised(o: Orchestrator) -> None:
    error = o.submit(jobs.fail, "no number").exception(LIMIT)
    assert isinstance(error, ValueError)
    assert "jobs.py" in str(error.__cause__)
    assert "in fail" in str(error.__cause__)


@pytest.mark.parametrize(
    ("call", "args", "words"),
    [
        (jobs.give, [1, (number for number in [1])], "argument 1 of give is a generator, which cannot be sent"),
        (lambda: (number for number in [1]), [], "the result of .* is a generator, which cannot be sent"),
    ],
)
def test_what_cannot_be_pickled_is_named(o: Orchestrator, call: Callable[..., object], args: list, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        o.submit(call, *args).result(LIMIT)


@pytest.mark.nightly
def test_more_bytes_than_ray_holds_in_shared_memory(o: Orchestrator) -> None:
    array = np.arange(65 << 20, dtype=np.float32)
    handle = o.malloc(0, array.nbytes)
    o.copy_to(handle, array).result(LIMIT)
    assert np.array_equal(np.frombuffer(o.copy_from(handle).result(LIMIT), np.float32), array)


# The end of an actor


def test_an_idle_actor_that_is_killed_is_noticed_without_a_command(used_actors: None) -> None:
    with Orchestrator(["sim"], "ray") as o:
        os.kill(o.health(0).pid, signal.SIGKILL)
        wait_until(lambda: not o.health(0).alive, 5)
        with pytest.raises(WorkerLost, match=r"worker 0 is lost: its worker process has died\n"):
            o.submit(jobs.nothing).result(LIMIT)


@pytest.mark.parametrize("by", ["signal", "kill"])
def test_an_actor_is_lost_once_and_answers_nothing_afterwards(used_actors: None, tmp_path: Path, by: str) -> None:
    from etdev.runtime.orchestrator.transports.ray import RayTransport

    transport = RayTransport([WorkerSpec("sim")])
    lost: list[tuple[int, str]] = []
    answers: list[object] = []
    begun = tmp_path / "begun"
    transport.start(lambda worker, reason: lost.append((worker, reason)))
    try:
        job = Job(jobs.begin_and_wait, (str(begun), str(tmp_path / "end")))
        for each in (job, Job(jobs.nothing, ())):
            transport.run(0, each, lambda result, error: answers.append((result, error)))
        wait_until(begun.exists)
        if by == "signal":
            os.kill(transport.health(0).pid, signal.SIGKILL)
        else:
            transport.kill(0)
            transport.kill(0)
        wait_until(lambda: not transport.health(0).alive, 5)
        wait_until(lambda: not is_there(transport.health(0).pid), SOON)
        time.sleep(0.2)
        assert [worker for worker, _ in lost] == [0]
        assert answers == []
        transport.restart(0)
        transport.run(0, Job(jobs.give, (1,)), lambda result, error: answers.append(result.value))
        wait_until(lambda: answers == [1])
    finally:
        transport.close()
    assert len(lost) == 1


def test_actors_end_with_their_orchestrator_and_the_cluster_stays(ray_cluster: None) -> None:
    with Orchestrator(["sim", "sim"], "ray") as o:
        pids = [o.health(worker).pid for worker in (0, 1)]
        with Orchestrator(["sim"], "ray") as other:
            assert other.submit(jobs.give, 1).result(LIMIT) == 1
        assert o.submit(jobs.give, 2).result(LIMIT) == 2
    wait_until(lambda: not any(map(is_there, pids)), SOON)


# Clusters


def test_where_ray_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingRequirementError, match="the transport `ray` needs the package ray") as caught:
        Orchestrator(transport="ray")
    assert caught.value.hint == 'install it: pip install "etdev[ray]"'
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_a_process_has_one_cluster(ray_cluster: None) -> None:
    with pytest.raises(UsageError, match=r"this process already has a Ray cluster at 127\.0\.0\.1:\d+"):
        Orchestrator(transport="ray", ray_address="127.0.0.1:1")


HEAD = """
import os, signal, sys, threading, time
from pathlib import Path
from etdev.runtime.orchestrator import Orchestrator

def descendants():
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
        except OSError:
            pass
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}
"""


def start(script: str) -> subprocess.Popen[str]:
    """Run a script in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def lines(process: subprocess.Popen[str]) -> list[str]:
    """All that a process prints until it ends, which it does well."""
    text, _ = process.communicate(timeout=4 * LIMIT)
    assert process.returncode == 0, text
    return text.splitlines()


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find processes in")


@pytest.mark.slow
@needs_proc
def test_a_cluster_of_its_own_ends_with_its_last_orchestrator(tmp_path: Path) -> None:
    """It stays when the thread that opened it ends, is reached from here only, prints nothing, and leaves nothing."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    process = start(f"""
os.environ["TMPDIR"] = {str(tmp_path)!r} if len({str(tmp_path)!r}) < 30 else "/tmp"
os.environ.pop("RAY_AUTH_TOKEN", None)
home = dict(os.environ)
made = []
thread = threading.Thread(target=lambda: made.append(Orchestrator(2, "ray")))
thread.start()
thread.join()
time.sleep(0.5)
import ray
from etdev.runtime.orchestrator.transports.ray_cluster import SHARED
folder = SHARED._cluster._folder
with made[0] as o:
    print(o.submit(lambda: 5, worker=1).result(60))
    os.kill(o.health(0).pid, signal.SIGKILL)
    while o.health(0).alive:
        time.sleep(0.01)
    time.sleep(0.5)
    print(ray.get_runtime_context().gcs_address.partition(":")[0], Path(folder).is_dir(), len(descendants()) > 3)
print(ray.is_initialized(), descendants(), Path(folder).exists(), dict(os.environ) == home)
o = Orchestrator(1, "ray")  # Another one, which nobody closes.
print(o.submit(lambda: 6).result(60))
print(*descendants())
""")
    *found, pids = lines(process)
    assert found == ["5", "127.0.0.1 True True", "False set() False True", "6"], pids
    assert len(pids.split()) > 3
    wait_until(lambda: not any(is_there(int(pid)) for pid in pids.split()), 2)


@needs_proc
@pytest.mark.nightly
def test_nothing_runs_on_behind_a_process_that_is_killed() -> None:
    """But agents of Ray's, which try to write logs for a minute."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    process = start("""
o = Orchestrator(1, "ray")
o.submit(time.sleep, 1000)
names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in descendants()}
print(*(pid for pid, name in names.items() if not name.startswith(("ray::Dash", "ray::RuntimeE"))), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""")
    text, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == -signal.SIGKILL, text
    pids = [int(word) for word in text.split()]
    assert len(pids) > 2
    wait_until(lambda: not any(map(is_there, pids)), 2)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a cluster that is there before and stays."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef" * 4)
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", raising=False)
    folder = tempfile.mkdtemp(prefix="etdev-ray-", dir="/tmp")
    options = ["--port=0", "--num-cpus=0", "--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", *options]
    log = tmp_path / "log"
    with log.open("w") as file:
        head = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: "--block" in log.read_text() or head.poll() is not None)
        found = re.search(r"--address='(\S+)'", log.read_text())
        assert found, log.read_text()
        yield found[1]
    finally:
        head.terminate()
        head.wait(LIMIT)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@needs_proc
def test_a_cluster_that_was_there_before_is_used_and_left_alone(address: str) -> None:
    """One that is joined by its address, and one that the caller's code has joined; no worker outlives its process."""
    joins = start(f"""
import ray
with Orchestrator(["sim", "sim"], "ray", ray_address={address!r}) as o:
    print(ray.get_runtime_context().gcs_address, o.submit(lambda: 5, worker=1).result(60))
    with Orchestrator(1, "ray") as other:
        print(other.submit(lambda: 6).result(60))
print(ray.is_initialized())
ray.init({address!r}, log_to_driver=False, logging_level="error")
with Orchestrator(1, "ray") as o:
    print(o.submit(lambda: 7).result(60))
print(ray.is_initialized())
""")
    assert lines(joins) == [f"{address} 5", "6", "False", "7", "True"]
    dies = start(f"""
o = Orchestrator(2, "ray", ray_address={address!r})
o.submit(time.sleep, 1000)
print(o.health(0).pid, o.health(1).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""")
    pids = [int(word) for word in dies.communicate(timeout=LIMIT)[0].split()]
    assert len(pids) == 2
    wait_until(lambda: not any(map(is_there, pids)), SOON)


def test_no_cluster_at_an_address() -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    process = start("""
from etdev.errors import MissingRequirementError
try:
    Orchestrator(1, "ray", ray_address="127.0.0.1:1")
except MissingRequirementError as error:
    print(str(error).partition(": ")[0], error.hint)
""")
    hint = "start a cluster with `ray start --head`, or omit the address, so that Ray starts one"
    assert lines(process)[-1] == f"cannot join a Ray cluster at 127.0.0.1:1 {hint}"
