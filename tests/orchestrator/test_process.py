"""Workers in processes of their own: how they start and end, and that nothing is left of them (D5, D7)."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etdev.errors import MissingRequirementError, UsageError
from etdev.runtime.orchestrator import InOut, Orchestrator, OrchestratorError, RemoteError, WorkerLost
from etdev.runtime.orchestrator.transports.process_wire import LARGE, Channel, Message
from orchestrator import jobs, process_jobs
from orchestrator.graphs import Serial, check, draw_steps

LIMIT = 60.0
"""Seconds that nothing takes."""
SOON = 10.0
"""Seconds in which a process is gone."""
TESTS = Path(__file__).parents[1]
NAMES = Path("/dev/shm")


def segments() -> set[str]:
    """Names of shared memory, but for those that other tests may make at the same time."""
    others = ("etdev-test-", ".org.chromium.")
    return {path.name for path in NAMES.iterdir() if not path.name.startswith(others)} if NAMES.is_dir() else set()


def children() -> set[int]:
    """Processes that this one started and that are not over."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat=,comm="], capture_output=True, text=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return {int(pid) for pid, parent, state, name in rows if int(parent) == os.getpid() and name != "ps"}


def is_gone(pid: int) -> bool:
    """Is a process over? It may wait for someone to ask how it ended."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return not found or found.startswith("Z")


def wait_until(condition: Callable[[], bool], seconds: float = LIMIT) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Of processes and shared memory."""
    before, names = children(), segments()
    yield
    assert children() <= before
    assert segments() <= names


@pytest.fixture
def one() -> Iterator[Orchestrator]:
    """One worker in a process."""
    with Orchestrator(1, "process") as o:
        yield o


def run_script(text: str, *args: str, **more: Any) -> subprocess.Popen[str]:
    """A script that uses workers in processes, in a group of processes of its own."""
    script = Path(args[0]) / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n{text}")
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", str(script), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


# Start


def test_a_process_is_started_anew(one: Orchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    """It shares nothing with the one that starts it, has imported only what it needs, and reads no terminal."""
    monkeypatch.setattr(process_jobs, "MARK", "changed here")
    assert one.submit(process_jobs.mark).result(LIMIT) == "as it was imported"
    found = one.submit(process_jobs.describe).result(LIMIT)
    assert found == {"stdin": "", "parent": os.getpid(), "modules": []}


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    made: list[Orchestrator] = []
    thread = threading.Thread(target=lambda: made.append(Orchestrator(1, "process")))
    thread.start()
    thread.join(LIMIT)
    time.sleep(0.05)
    with made[0] as o:
        assert o.submit(jobs.give, 1).result(LIMIT) == 1


@pytest.mark.parametrize(
    ("program", "words"),
    [("/bin/false", "worker 0 did not start: process .* ended with exit code 1"), ("/no/such", "No such file")],
)
def test_processes_that_do_not_start(program: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = children()
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(OrchestratorError, match=words):
        Orchestrator(2, "process")
    assert children() == before


def test_one_worker_that_does_not_start_ends_the_others() -> None:
    before = children()
    with pytest.raises(MissingRequirementError, match="there is no such device") as caught:
        Orchestrator(["cpu", process_jobs.Absent(), "cpu"], "process")
    assert caught.value.hint == "plug it in"
    assert children() == before


def test_a_worker_that_does_not_start_again_is_still_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with Orchestrator(1, "process") as o:
        o.kill(0)
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/bin/false")
            with pytest.raises(OrchestratorError, match="worker 0 did not start"):
                o.restart(0)
        with pytest.raises(WorkerLost):
            o.malloc(0, 8)
        o.restart(0)
        assert o.submit(jobs.give, 1).result(LIMIT) == 1


MAIN = """
from etdev.runtime.orchestrator import Orchestrator
class Found:
    pass
def find():
    return Found()
def main():
    with Orchestrator(1, "process") as o:
        print(type(o.submit(find).result(60)) is Found)
"""


def test_functions_of_the_main_module(tmp_path: Path) -> None:
    text = f"{MAIN}if __name__ == '__main__': main()"
    out, err = run_script(text, str(tmp_path)).communicate(timeout=LIMIT)
    assert (out, err) == ("True\n", "")


def test_a_main_module_without_a_guard_starts_no_workers_of_workers(tmp_path: Path) -> None:
    out, err = run_script(f"{MAIN}main()", str(tmp_path)).communicate(timeout=LIMIT)
    assert out == ""
    assert "worker 0 cannot unpickle a task: RuntimeError" in err
    assert "if __name__ == '__main__':" in err


# What is sent


def test_errors_have_the_place_where_they_were_raised(one: Orchestrator) -> None:
    with pytest.raises(ValueError, match="no number") as caught:
        one.submit(jobs.fail, "no number").result(LIMIT)
    assert 'jobs.py", line' in str(caught.value.__cause__)
    assert "raise ValueError(words)" in str(caught.value.__cause__)


def test_an_error_that_does_not_survive_the_way(one: Orchestrator) -> None:
    with pytest.raises(RemoteError, match="StubbornError: 1 and 2") as caught:
        one.submit(jobs.fail_stubbornly).result(LIMIT)
    assert "raise StubbornError(1, 2)" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("call", "args", "words"),
    [
        (
            lambda: 1,
            (),
            r"<lambda> cannot be sent to another process(.|\n)*help: submit a function that is defined in a module",
        ),
        (jobs.give, ((n for n in ()),), "argument 0 of give is a generator, which cannot be sent"),
        (jobs.give, ([threading.Lock()],), "argument 0 of give is a list, which cannot be sent(.|\n)*lock"),
        (process_jobs.generate, (), "the result of generate is a generator, which cannot be sent(.|\n)*help: return"),
    ],
)
def test_what_cannot_be_sent_is_an_error_of_its_task(one: Orchestrator, call: Any, args: tuple, words: str) -> None:
    before, wrong, after = one.submit(jobs.give, 1), one.submit(call, *args), one.submit(jobs.give, 2)
    with pytest.raises(UsageError, match=words):
        wrong.result(LIMIT)
    assert (before.result(LIMIT), after.result(LIMIT)) == (1, 2)


@pytest.mark.parametrize(
    ("call", "args", "kind"), [(process_jobs.interrupt, (), KeyboardInterrupt), (process_jobs.leave, (3,), SystemExit)]
)
def test_a_task_that_asks_for_the_end_fails_and_ends_nothing(
    one: Orchestrator, call: Any, args: tuple, kind: type[BaseException]
) -> None:
    with pytest.raises(kind):
        one.submit(call, *args).result(LIMIT)
    assert one.submit(jobs.give, 1).result(LIMIT) == 1


def test_values_that_come_back_are_the_callers_own(one: Orchestrator) -> None:
    """They can be written, and hold no descriptors."""
    big = np.arange(1 << 16, dtype=np.float32)
    found = one.submit(jobs.give, {"a": big, "b": bytearray(1 << 17)}).result(LIMIT)
    found["a"] += 1
    found["b"][0] = 1
    assert np.array_equal(found["a"], big + 1)


def test_full_connections_in_both_directions_block_nobody(one: Orchestrator) -> None:
    """Neither side waits for the other to read: 24 MB are on the way each way, and a connection holds less than 1."""
    size = 60_000
    handles = [one.malloc(0, size) for _ in range(4)]
    data = [np.full(size, number, np.uint8) for number in range(4)]
    for handle, array in zip(handles, data, strict=True):
        one.copy_to(handle, array).result(LIMIT)
    gets = [one.copy_from(handle) for _ in range(100) for handle in handles]
    puts = [one.copy_to(handle, array) for _ in range(100) for handle, array in zip(handles, data, strict=True)]
    assert {bytes(future.result(LIMIT)[:1]) for future in gets} == {bytes([number]) for number in range(4)}
    for future in puts:
        future.result(LIMIT)


@pytest.mark.parametrize(("module", "call"), [(os, ""), (os, "memfd_create"), (socket, "send_fds")])
def test_messages_arrive_as_they_were_sent(module: object, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order and whole, also where the system gives no shared memory or does not take more of it."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ETOOMANYREFS, "too many descriptors are on the way")

    if call:
        monkeypatch.setattr(module, call, refuse, raising=False)
    one, other = (Channel(end) for end in socket.socketpair())
    sizes = [
        (),
        (0,),
        (1, 2),
        (LARGE,),
        (LARGE, 1),
        (3, 20 * LARGE, 0, 5),
        *[(100,)] * 1000,
        (LARGE - 1,),
        (2 * LARGE,),
    ]
    sent = [Message(number, 7, [bytes([number % 251]) * size for size in each]) for number, each in enumerate(sizes)]
    found: list[tuple[int, list[bytes]]] = []
    for message in sent:
        one.send(message)
    while len(found) < len(sent):
        found += [(message.number, [bytes(part) for part in message.parts]) for message in other.receive(0.0)]
        one.receive(0.0)
    assert found == [(message.number, list(message.parts)) for message in sent]
    one.close()
    assert not other.receive(LIMIT)
    with pytest.raises(EOFError):
        other.receive(LIMIT)
    other.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Orchestrator]:
    """Four workers for many programs."""
    with Orchestrator(["sim"] * 4, "process", timeout=LIMIT) as o:
        yield o


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chance=st.randoms(use_true_random=False))
def test_any_graph_gives_what_serial_execution_gives(four: Orchestrator, chance: Random) -> None:
    """As over threads, with answers that come from several processes in any order."""
    workers = chance.randint(1, 4)
    serial = Serial(four, workers)
    draw_steps(chance, serial, workers, faults=True)
    check(serial)
    for cell in serial.live():
        serial.free(cell)
    four.wait()


# The end of a worker


@pytest.mark.parametrize(
    ("call", "arg", "words"),
    [
        (process_jobs.end_with, 3, "process [0-9]+ ended with exit code 3"),
        (process_jobs.end_by, signal.SIGSEGV, "process [0-9]+ was killed by SIGSEGV"),
        (process_jobs.end_by, signal.SIGTERM, "process [0-9]+ was killed by SIGTERM"),
    ],
)
def test_the_reason_of_a_loss_says_what_the_process_ended_by(call: Any, arg: int, words: str) -> None:
    with Orchestrator(1, "process") as o, pytest.raises(WorkerLost, match=words):
        o.submit(call, arg).result(LIMIT)


def test_a_worker_is_lost_also_if_another_process_has_its_connection(one: Orchestrator) -> None:
    left = one.submit(process_jobs.leave_a_child, 60).result(LIMIT)
    try:
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="exit code 1"):
            one.submit(process_jobs.end_with, 1).result(LIMIT)
        assert time.monotonic() - began < SOON
    finally:
        os.kill(left, signal.SIGKILL)


def test_a_worker_that_is_killed_at_any_moment() -> None:
    """While it takes, copies, computes on and gives back megabytes: all that was asked ends, and nothing is left."""
    array = np.ones(1 << 20, np.float32)
    gc.collect()  # What earlier tests left open closes before the count.
    with Orchestrator(1, "process") as o:
        descriptors = count_descriptors()
        for moment in range(8):
            handle = o.malloc(0, array.nbytes)
            timer = threading.Timer(0.01 * moment, os.kill, (o.health(0).pid, signal.SIGKILL))
            timer.start()
            ends = [how_it_ends(future) for future in busy(o, handle, array)]
            timer.join()
            wait_until(lambda: not o.health(0).alive)
            assert set(ends) <= {"done", "lost"}
            with pytest.raises(WorkerLost, match="was killed by SIGKILL"):
                o.copy_from(handle)
            o.restart(0)
        assert o.submit(jobs.give, 1).result(LIMIT) == 1
        assert count_descriptors() <= descriptors


def busy(o: Orchestrator, handle: Any, array: np.ndarray) -> Iterator[Future]:
    """Many megabytes on the way, as far as the worker is there."""
    found = []
    try:
        for _ in range(4):
            found += [o.copy_to(handle, array), o.copy_from(handle), o.submit(jobs.give, [array])]
            found += [o.submit(jobs.add, InOut(array), 0.0), o.submit(jobs.total, handle.resident(dtype="float32"))]
    except WorkerLost:
        pass
    return iter(found)


def how_it_ends(future: Future) -> str:
    try:
        future.result(LIMIT)
    except (WorkerLost, OrchestratorError) as error:
        return "lost" if "worker 0 is lost" in str(error) else str(error)
    return "done"


def count_descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_objects_that_do_not_end_do_not_keep_their_process() -> None:
    o = Orchestrator(1, "process")
    o.ready(o.create(process_jobs.Stubborn, worker=0))
    pid, began = o.health(0).pid, time.monotonic()
    o.close()
    assert time.monotonic() - began < 2 * SOON
    assert is_gone(pid)
    assert not o.health(0).alive


# The end of the process that started them


SLEEPING = """
from orchestrator import process_jobs
from etdev.runtime.orchestrator import Orchestrator
if __name__ == "__main__":
    o = Orchestrator(3, "process")
    begun = [sys.argv[1] + "/a", sys.argv[1] + "/b"]
    o.submit(process_jobs.begin_and_sleep, begun[0], worker=0)
    o.submit(process_jobs.begin_and_hold, begun[1], worker=1)
    handle = o.malloc(2, 1 << 24)
    print(*[o.health(worker).pid for worker in range(3)], flush=True)
    while True:
        o.copy_to(handle, bytes(1 << 24))
        o.copy_from(handle).result()
"""


def test_workers_are_gone_soon_after_the_process_that_started_them(tmp_path: Path) -> None:
    """Asleep in a task, in one that lets no other thread run, and in the middle of copies."""
    names = segments()
    script = run_script(SLEEPING, str(tmp_path))
    with script:
        assert script.stdout is not None
        pids = [int(pid) for pid in script.stdout.readline().split()]
        wait_until(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists())
        time.sleep(0.1)
        assert not any(is_gone(pid) for pid in pids)
        script.kill()
        wait_until(lambda: all(is_gone(pid) for pid in pids), SOON)
    assert segments() <= names


INTERRUPTED = """
import os, signal, threading, time
from orchestrator import jobs
from etdev.runtime.orchestrator import Orchestrator
if __name__ == "__main__":
    count = 0
    def seen(*_):
        global count
        count += 1
    signal.signal(signal.SIGINT, seen)
    made = []
    starting = threading.Thread(target=lambda: made.append(Orchestrator(2, "process")))
    starting.start()
    while starting.is_alive():
        os.killpg(0, signal.SIGINT)
        time.sleep(0.002)
    with made[0] as o:
        future = o.submit(jobs.wait_for, sys.argv[1] + "/end", worker=0)
        os.killpg(0, signal.SIGINT)
        time.sleep(0.1)
        open(sys.argv[1] + "/end", "w").close()
        print(count > 5, future.result(60), o.submit(jobs.give, 1, worker=1).result(60))
"""


def test_an_interruption_of_the_group_ends_no_worker(tmp_path: Path) -> None:
    """Not while they start either."""
    out, err = run_script(INTERRUPTED, str(tmp_path)).communicate(timeout=LIMIT)
    assert (out, err) == ("True waited 1\n", "")


ORDINARY = """
import numpy as np
from orchestrator import jobs
from etdev.runtime.orchestrator import InOut, Orchestrator
if __name__ == "__main__":
    o = Orchestrator(2, "process")
    array = np.ones(1 << 20, np.float32)
    handle = o.malloc(0, array.nbytes)
    o.copy_to(handle, array)
    futures = [o.copy_from(handle), o.submit(jobs.give, [array]), o.submit(jobs.add, InOut(array), 1.0)]
    for future in futures:
        future.result(60)
    {end}
"""


@pytest.mark.parametrize("end", ["o.close()", "pass"])
@pytest.mark.sampled(1)
def test_an_ordinary_run_says_nothing(tmp_path: Path, end: str) -> None:
    """No warnings of what was left open, whether it was closed or not."""
    script = run_script(ORDINARY.format(end=end), str(tmp_path))
    out, err = script.communicate(timeout=LIMIT)
    assert (out, err, script.returncode) == ("", "", 0)
