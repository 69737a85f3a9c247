"""What every transport does alike, on simulated devices that the host cannot read (D1 to D7).

A copy that is skipped is an error, or other bytes: never luck.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from etdev.errors import UsageError
from etdev.runtime.errors import OutOfDeviceMemoryError
from etdev.runtime.orchestrator import (
    BackPressureError,
    ClosedError,
    Handle,
    HandleError,
    InOut,
    Orchestrator,
    Out,
    PlacementError,
    PoisonedError,
    TaskFuture,
    WorkerLost,
    WorkerSpec,
)
from orchestrator import jobs
from orchestrator.conftest import Make

FLOATS = np.arange(8, dtype=np.float32)
LIMIT = 60.0
"""Seconds that nothing takes."""


def upload(o: Orchestrator, worker: int, array: np.ndarray) -> Handle:
    """Memory with the bytes of an array."""
    handle = o.malloc(worker, array.nbytes)
    o.copy_to(handle, array)
    return handle


def download(o: Orchestrator, handle: Handle) -> np.ndarray:
    return np.frombuffer(o.copy_from(handle).result(LIMIT), np.float32)


@contextmanager
def busy(o: Orchestrator, worker: int, folder: Path, *args: object) -> Iterator[TaskFuture]:
    """A worker is at a task within the block."""
    begun, end = folder / f"begun{time.monotonic_ns()}", folder / f"end{time.monotonic_ns()}"
    future = o.submit(jobs.begin_and_wait, str(begun), str(end), *args, worker=worker)
    wait_until(begun.exists)
    try:
        yield future
    finally:
        end.touch()


def wait_until(condition: object) -> None:
    end = time.monotonic() + LIMIT
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.002)


# Arguments and results (D1, D6)


def test_resident_memory_is_not_copied(make: Make) -> None:
    o = make()
    weights = upload(o, 0, FLOATS)
    for _ in range(3):
        assert o.submit(jobs.total, weights.resident(dtype="float32")).result(LIMIT) == FLOATS.sum()
    found = o.stats().workers[0]
    assert (found.bytes_to, found.copies_to) == (FLOATS.nbytes, 1)
    assert (found.bytes_avoided, found.copies_avoided) == (3 * FLOATS.nbytes, 3)
    assert (found.tasks, found.live_bytes, found.bytes_from) == (3, FLOATS.nbytes, 0)


def test_other_arrays_have_memory_for_the_time_of_the_task(make: Make) -> None:
    o = make()
    future = o.submit(jobs.total, FLOATS, FLOATS, worker=1)
    assert future.result(LIMIT) == 2 * FLOATS.sum()
    assert future.cost[0].bytes_to == 2 * FLOATS.nbytes
    assert o.health(1).live_bytes == 0


def test_results_come_back_by_the_position_of_their_argument(make: Make) -> None:
    """One argument is resident between two outputs."""
    o = make()
    weights = upload(o, 0, FLOATS)
    low, high = np.zeros_like(FLOATS), np.zeros_like(FLOATS)
    future = o.submit(jobs.split, Out(low), weights.resident(dtype="float32"), Out(high))
    future.result(LIMIT)
    assert np.array_equal(low, FLOATS - 1)
    assert np.array_equal(high, FLOATS + 1)
    assert {position: id(array) for position, array in future.outputs[0].items()} == {0: id(low), 2: id(high)}
    assert future.cost[0].bytes_from == 2 * FLOATS.nbytes


def test_an_array_goes_there_and_comes_back(make: Make) -> None:
    o = make()
    array = FLOATS.copy()
    o.submit(jobs.add, InOut(array), 2.0).result(LIMIT)
    assert np.array_equal(array, FLOATS + 2)


def test_an_array_of_the_worker_as_a_result(make: Make) -> None:
    o = make()
    weights = upload(o, 0, FLOATS)
    found = o.submit(jobs.back, weights.resident(dtype="float32", shape=(2, 4))).result(LIMIT)
    assert np.array_equal(found, FLOATS.reshape(2, 4))


def test_arrays_of_no_elements_and_of_no_dimensions(make: Make) -> None:
    o = make()
    empty, one = np.zeros(0, np.float32), np.array(3, np.float32)
    assert o.submit(jobs.total, empty, one).result(LIMIT) == 3
    handle = o.malloc(0, 0)
    assert o.copy_from(handle).result(LIMIT) == b""
    o.free(handle).result(LIMIT)


def test_many_bytes(make: Make) -> None:
    o = make()
    array = np.arange(1 << 20, dtype=np.float32)
    handle = upload(o, 1, array)
    assert np.array_equal(download(o, handle), array)
    back = array.copy()
    o.submit(jobs.add, InOut(back), 1.0, worker=0).result(LIMIT)
    assert np.array_equal(back, array + 1)
    assert np.array_equal(o.submit(jobs.give, [array]).result(LIMIT)[0], array)


def test_values_go_as_they_are(make: Make) -> None:
    value = {"a": [1, None, "b"], "c": (2.5, b"\0")}
    assert make().submit(jobs.give, value).result(LIMIT) == value


def test_the_host_cannot_read_what_lies_on_a_device(make: Make) -> None:
    o = make()
    weights = upload(o, 0, FLOATS)
    with pytest.raises(UsageError, match="host code cannot access an array in CUDA memory"):
        o.submit(jobs.read_on_the_host, weights.resident(dtype="float32")).result(LIMIT)


def test_a_worker_on_the_host_shares_its_memory_with_numpy(make: Make) -> None:
    o = make(["cpu"])
    weights = upload(o, 0, FLOATS)
    assert o.submit(jobs.read_on_the_host, weights.resident(dtype="float32")).result(LIMIT) == FLOATS.sum()


def test_an_argument_that_is_only_read_is_not_written(make: Make) -> None:
    o = make()
    weights = upload(o, 0, FLOATS)
    with pytest.raises(ValueError, match="read-only"):
        o.submit(jobs.sneak, weights.resident(dtype="float32"), 1.0).result(LIMIT)
    assert np.array_equal(download(o, weights), FLOATS)


@pytest.fixture
def torch_workers(make: Make) -> Orchestrator:
    """Workers for tasks that need torch."""
    pytest.importorskip("torch", reason="needs the extra `build`")
    return make()


@pytest.mark.sampled(2)
def test_an_argument_that_is_only_read_is_not_written_by_torch(torch_workers: Orchestrator) -> None:
    """D3: the order of tasks rests on it. Neither by views, nor by what gets at the address."""
    o = torch_workers
    weights = upload(o, 0, FLOATS)
    ways = "fill item out view bytes detached data inference list set numpy flags"
    for how in [*ways.split(), "address", "storage", "capsule", "norm", "relu", "copy"]:
        error = o.submit(jobs.sneak_by_torch, weights.resident(dtype="float32"), how).exception(LIMIT)
        assert isinstance(error, UsageError | ValueError), (how, error)
        assert np.array_equal(download(o, weights), FLOATS), how
    o.submit(jobs.sneak_by_torch, weights.resident("update", dtype="float32"), "view").result(LIMIT)
    assert np.array_equal(download(o, weights), FLOATS + np.array([0] * 4 + [1] * 4, np.float32))


@pytest.mark.sampled(1)
def test_an_argument_that_is_only_read_is_read_by_torch(torch_workers: Orchestrator) -> None:
    o = torch_workers
    weights = upload(o, 0, FLOATS)
    assert o.submit(jobs.read_by_torch, weights.resident(dtype="float32")).result(LIMIT) == FLOATS.sum()
    assert o.submit(jobs.give_tensor, weights.resident(dtype="float32")).result(LIMIT).tolist() == FLOATS.tolist()


@pytest.mark.parametrize("how", ["device_numpy", "to_bytes", "tensor"])
def test_an_argument_is_not_used_after_its_task(make: Make, how: str) -> None:
    """No other task would wait for it."""
    o = make()
    weights = upload(o, 0, FLOATS)
    kept = o.create(jobs.keep, weights.resident("update"), worker=0)
    with pytest.raises(UsageError, match="an argument was used after its task ended"):
        o.submit(jobs.use_kept, kept.resident(), how).result(LIMIT)


def test_bytes_that_a_task_does_not_see_are_not_its_to_write(make: Make, tmp_path: Path) -> None:
    """They keep the error of the task that was to write them, and no task waits for this one because of them."""
    o = make()
    data = upload(o, 0, FLOATS)
    o.submit(jobs.fill, data.resident("write"), "no number").exception(LIMIT)
    future = o.submit(jobs.fill, data.resident("write", dtype="float32", shape=(2,)), 1.0)
    future.result(LIMIT)
    assert future.cost[0].bytes_avoided == 8
    assert np.array_equal(download(o, data.view(0, 8)), [1, 1])
    with pytest.raises(PoisonedError):
        download(o, data)


@pytest.mark.parametrize("memory", ["sim", "cpu"])
@pytest.mark.parametrize(("dtype", "at"), [("float32", 2), ("int16", 1), ("complex64", 4), ("bfloat16", 3)])
def test_elements_begin_at_a_multiple_of_their_size(memory: str, dtype: str, at: int) -> None:
    """One rule for all memory, before a task is submitted. Torch refuses others on CUDA devices, and takes them of the
    host."""
    with Orchestrator([memory]) as o:
        data = o.malloc(0, 32)
        with pytest.raises(UsageError, match=f"argument 0: an array of {dtype} begins at byte {at}, which is not"):
            o.submit(jobs.nothing, data.view(at, 16).resident(dtype=dtype))
        assert o.stats().waiting == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"shape": (-1,)}, r"\(-1,\) is not a shape"),
        ({"shape": (-2, -4)}, r"\(-2, -4\) is not a shape"),
        ({"shape": (2.0, 4)}, "is not a shape"),
        ({"shape": (True, 4)}, "is not a shape"),
        ({"shape": ("2", 4)}, "is not a shape"),
        ({"shape": (None,)}, "is not a shape"),
        ({"shape": 8}, "8 is not a shape"),
        ({"shape": "24"}, "'24' is not a shape"),
        ({"shape": (1,) * 33}, "is not a shape"),
        ({"shape": (9,)}, "takes 36 bytes, which do not fit"),
        ({"shape": (1 << 62, 4)}, "larger than any memory"),
        ({"shape": (0, 1 << 63)}, "larger than any memory"),
        ({"dtype": "float64", "shape": (5,)}, "takes 40 bytes, which do not fit"),
        ({"dtype": "float99"}, "'float99' is not an element type"),
        ({"dtype": "O"}, "'O' is not an element type"),
        ({"dtype": "S"}, "'S' is not an element type"),
        ({"dtype": ">f4"}, "'>f4' is not an element type"),
        ({"dtype": None}, "None is not an element type"),
        ({"dtype": np.float32}, "is not an element type"),
        ({"access": "rw"}, "'rw' is not a kind of access"),
        ({"access": None}, "None is not a kind of access"),
    ],
)
def test_resident_memory_that_cannot_be_seen_so_is_refused_at_submit(more: dict, words: str) -> None:
    with Orchestrator(["sim"]) as o:
        data = o.malloc(0, 32)
        with pytest.raises(UsageError, match=words):
            o.submit(jobs.nothing, data.resident(**{"dtype": "float32", **more}))
        assert o.stats().waiting == 0


def test_bytes_that_are_no_whole_number_of_elements_are_refused() -> None:
    with Orchestrator(["sim"]) as o:
        data = o.malloc(0, 30)
        with pytest.raises(UsageError, match="30 bytes are not a whole number of float32"):
            o.submit(jobs.nothing, data.resident(dtype="float32"))
        assert o.submit(jobs.back, data.resident(dtype="float32", shape=[0, 7])).result(LIMIT).shape == (0, 7)


@pytest.mark.parametrize("array", [np.zeros(2, object), np.zeros(2, [("a", "<i4")])])
def test_arrays_whose_elements_are_not_numbers_are_refused(array: np.ndarray) -> None:
    with Orchestrator(["sim"]) as o:
        with pytest.raises(UsageError, match="cannot be copied to a worker"):
            o.submit(jobs.nothing, array)
        assert o.stats().waiting == 0


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (lambda w: w, "argument 0 is a handle"),
        (lambda w: w.resident(dtype="float99"), "'float99' is not an element type"),
        (lambda w: w.resident(dtype="float32", shape=(9,)), "takes 36 bytes, which do not fit"),
        (lambda w: w.readonly().resident("update"), "through a read-only handle"),
        (lambda w: w.view(30, 4), "bytes 30 to 34 are out of bounds of"),
        (lambda w: Out([1, 2]), "argument 0 is a list"),
        (lambda w: w.readonly().resident("write"), "through a read-only handle"),
    ],
)
@pytest.mark.sampled(9)
def test_arguments_that_cannot_be(make: Make, argument: object, words: str) -> None:
    o = make()
    weights = upload(o, 0, FLOATS)
    with pytest.raises(UsageError, match=words):
        o.submit(jobs.total, argument(weights))  # type: ignore[operator]


# Order


def test_reads_wait_for_writes_and_writes_for_reads(make: Make, tmp_path: Path) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    with busy(o, 0, tmp_path):
        first = o.submit(jobs.total, data.resident(dtype="float32"))
        o.copy_to(data, FLOATS + 1)
        second = o.submit(jobs.total, data.resident(dtype="float32"))
        o.submit(jobs.add, data.resident("update", dtype="float32"), 1.0)
        third = o.copy_from(data)
        o.submit(jobs.fill, data.resident("write", dtype="float32"), 9.0)
    assert first.result(LIMIT) == FLOATS.sum()
    assert second.result(LIMIT) == (FLOATS + 1).sum()
    assert np.array_equal(np.frombuffer(third.result(LIMIT), np.float32), FLOATS + 2)
    assert np.array_equal(download(o, data), np.full(8, 9, np.float32))


def test_parts_of_a_buffer_that_share_nothing_do_not_wait(make: Make, tmp_path: Path) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    left, right = data.view(0, 16), data.view(16, 16)
    with busy(o, 0, tmp_path, left.resident("update")) as task:
        o.copy_to(right, FLOATS[:4]).result(LIMIT)
        late = o.copy_to(left, FLOATS[:4])
        over = o.copy_from(data.view(12, 8))
        time.sleep(0.05)
        assert not late.done()
        assert not over.done()
        assert not task.done()
    assert np.array_equal(np.frombuffer(over.result(LIMIT), np.float32), [3, 0])


def test_memory_is_copied_and_made_while_a_task_runs(make: Make, tmp_path: Path) -> None:
    """D5."""
    o = make()
    with busy(o, 0, tmp_path) as task:
        other = upload(o, 0, FLOATS)
        assert np.array_equal(download(o, other), FLOATS)
        o.free(other).result(LIMIT)
        assert not task.done()


def test_equal_addresses_on_two_workers_are_two_buffers(make: Make, tmp_path: Path) -> None:
    """D3: nobody waits for what happens on the other worker, and each has its own bytes."""
    o = make()
    one, two = upload(o, 0, FLOATS), upload(o, 1, FLOATS + 1)
    addresses = [o.submit(jobs.give, 0, worker=worker) for worker in (0, 1)]
    assert [each.result(LIMIT) for each in addresses] == [0, 0]
    with busy(o, 0, tmp_path, one.resident("update")):
        assert np.array_equal(download(o, two), FLOATS + 1)
        o.copy_to(two, FLOATS + 2).result(LIMIT)
    assert np.array_equal(download(o, one), FLOATS)


def test_memory_is_freed_after_its_last_task(make: Make, tmp_path: Path) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    with busy(o, 0, tmp_path):
        late = o.submit(jobs.total, data.resident(dtype="float32"))
        freed = o.free(data)
        assert [(found.state, found.size) for found in o.stats().buffers] == [("freeing", 32)]
        with pytest.raises(HandleError, match="was already freed"):
            o.copy_from(data)
    assert late.result(LIMIT) == FLOATS.sum()
    freed.result(LIMIT)
    assert o.stats().buffers == ()
    assert o.health(0).live_bytes == 0


def test_memory_that_is_being_freed_is_waited_for(make: Make, tmp_path: Path) -> None:
    o = make([WorkerSpec("sim", capacity=100)])
    data = o.malloc(0, 60)
    with busy(o, 0, tmp_path):
        o.submit(jobs.give, 1, worker=0)
        o.submit(jobs.total, data.resident())
        o.free(data)
        found: list[Handle] = []
        thread = threading.Thread(target=lambda: found.append(o.malloc(0, 80)))
        thread.start()
        time.sleep(0.05)
        assert not found
    thread.join(LIMIT)
    assert found[0].size == 80


def test_too_little_memory(make: Make) -> None:
    o = make([WorkerSpec("sim", capacity=100)])
    with pytest.raises(OutOfDeviceMemoryError, match="cannot allocate 101 bytes: 100 bytes free"):
        o.malloc(0, 101)
    assert o.malloc(0, 100).size == 100


def test_memory_is_not_freed_by_a_handle_for_reading(make: Make) -> None:
    o = make()
    data = o.malloc(0, 32)
    with pytest.raises(HandleError, match="cannot be freed through a read-only handle"):
        o.free(data.readonly())
    with pytest.raises(HandleError, match="through a read-only handle"):
        o.copy_to(data.readonly(), bytes(32))
    o.free(data).result(LIMIT)


@pytest.mark.parametrize("which", ["whole", "view"])
def test_a_second_free_and_one_of_a_part(make: Make, which: str) -> None:
    o = make()
    data = o.malloc(0, 32)
    if which == "whole":
        o.free(data).result(LIMIT)
        words = "was already freed"
    else:
        data, words = data.view(16, 16), "is only a part of a buffer, so it cannot be freed"
    with pytest.raises(HandleError, match=words):
        o.free(data)


def test_a_scope_frees_what_was_made_in_it(make: Make, tmp_path: Path) -> None:
    o = make()
    log = str(tmp_path / "log")
    with o.scope() as scope:
        kept, early = scope.malloc(0, 32), scope.malloc(1, 32)
        counter = scope.create(jobs.Counter, 1, log, worker=0)
        assert o.submit(jobs.count, counter.resident(), 2).result(LIMIT) == 3
        o.free(early)
        late = o.submit(jobs.fill, kept.resident("write"), 1)
    late.result(LIMIT)
    o.wait()
    assert o.stats().buffers == ()
    assert Path(log).read_text() == "closed\n"


# Objects


def test_an_object_stays_on_its_worker(make: Make) -> None:
    o = make()
    counter = o.create(jobs.Counter, 5, worker=1)
    o.ready(counter)
    assert [o.submit(jobs.count, counter.resident(), by).result(LIMIT) for by in (1, 2)] == [6, 8]
    o.free(counter).result(LIMIT)
    with pytest.raises(HandleError, match="was already freed"):
        o.submit(jobs.count, counter.resident(), 1)


def test_an_object_that_is_not_to_be_had(make: Make) -> None:
    o = make()
    nothing = o.create(jobs.refuse, worker=0)
    with pytest.raises(ValueError, match="no such object"):
        o.ready(nothing)
    with pytest.raises(PoisonedError, match="no such object"):
        o.submit(jobs.count, nothing.resident(), 1).result(LIMIT)


# Placement (D4)


def test_a_task_goes_where_its_memory_is(make: Make) -> None:
    o = make()
    data = upload(o, 1, FLOATS)
    o.submit(jobs.total, data.resident(dtype="float32")).result(LIMIT)
    o.submit(jobs.nothing, worker=1).result(LIMIT)
    assert [found.tasks for found in o.stats().workers] == [0, 2]


def test_what_may_run_anywhere_fills_the_idle_workers(make: Make, tmp_path: Path) -> None:
    o = make()
    with busy(o, 0, tmp_path):
        pinned = o.submit(jobs.give, 0, worker=0)
        assert [o.submit(jobs.give, value).result(LIMIT) for value in range(3)] == [0, 1, 2]
        assert not pinned.done()


@pytest.mark.parametrize("wanted", [-1, 2])
def test_a_worker_that_there_is_not(make: Make, wanted: int) -> None:
    o = make()
    for ask in (lambda: o.malloc(wanted, 8), lambda: o.submit(jobs.nothing, worker=wanted), lambda: o.health(wanted)):
        with pytest.raises(PlacementError, match=f"there is no worker {wanted}"):
            ask()


def test_owners_that_conflict(make: Make) -> None:
    o = make()
    one, two = o.malloc(0, 8), o.malloc(1, 8)
    with pytest.raises(PlacementError, match="argument 0 is on worker 0, but argument 1 is on worker 1"):
        o.submit(jobs.total, one.resident(), two.resident())
    with pytest.raises(PlacementError, match="the task is for worker 1, but its argument 0 is on worker 0"):
        o.submit(jobs.total, one.resident(), worker=1)


@pytest.mark.sampled(2)
def test_a_handle_of_another_orchestrator(make: Make) -> None:
    one, two = make(), make()
    handle = one.malloc(0, 8)
    two.malloc(0, 8)
    with pytest.raises(HandleError, match="belongs to another orchestrator"):
        two.copy_from(handle)


# Groups (D4)


def test_a_group_runs_on_all_of_its_workers(make: Make) -> None:
    o = make()
    one, two = upload(o, 0, FLOATS), upload(o, 1, FLOATS + 1)
    future = o.submit_group(
        jobs.total, [[one.resident(dtype="float32")], [two.resident(dtype="float32")]], workers=[0, 1]
    )
    assert future.result(LIMIT) == [FLOATS.sum(), (FLOATS + 1).sum()]
    assert len(future.cost) == 2


@pytest.mark.parametrize("wanted", [[0, None], [None, 0], [None, None], None])
@pytest.mark.sampled(4)
def test_members_of_a_group_that_may_run_anywhere_get_workers_of_their_own(make: Make, wanted: list | None) -> None:
    o = make()
    assert o.submit_group(jobs.give, [[1], [2]], workers=wanted).result(LIMIT) == [1, 2]
    assert [found.tasks for found in o.stats().workers] == [1, 1]


@pytest.mark.parametrize("wanted", [[None, None], None])
def test_a_member_of_a_group_goes_where_its_memory_is(make: Make, wanted: list | None) -> None:
    """The other one gets the worker that is left, though the first is listed before it."""
    o = make()
    data = upload(o, 0, FLOATS)
    future = o.submit_group(jobs.total, [[FLOATS], [data.resident(dtype="float32")]], workers=wanted)
    assert future.result(LIMIT) == [FLOATS.sum()] * 2
    assert [cost.bytes_avoided for cost in future.cost] == [0, FLOATS.nbytes]


def test_a_group_waits_for_the_worker_that_has_least_to_do(make: Make, tmp_path: Path) -> None:
    o = make(["sim"] * 3)
    with busy(o, 1, tmp_path):
        assert o.submit_group(jobs.give, [[1], [2]], workers=[0, None]).result(LIMIT) == [1, 2]
    assert [found.tasks for found in o.stats().workers][::2] == [1, 1]


def test_a_group_begins_on_all_or_none_and_nothing_overtakes_it(make: Make, tmp_path: Path) -> None:
    o = make()
    logs = [str(tmp_path / f"log{worker}") for worker in (0, 1)]
    with busy(o, 0, tmp_path):
        group = o.submit_group(jobs.note, [[log, "group"] for log in logs], workers=[0, 1])
        singles = [o.submit(jobs.note, logs[worker], "single", worker=worker) for worker in (0, 1, 1, 0)]
        time.sleep(0.1)
        assert not Path(logs[1]).exists()
    for future in (group, *singles):
        future.result(LIMIT)
    assert [Path(log).read_text().split() for log in logs] == [["group", "single", "single"]] * 2


@pytest.mark.parametrize(
    ("args", "workers", "words"),
    [
        ([[1], [2]], [0, 0], "worker 0 is in a group more than once"),
        ([[1]], [0, 1], "the group has 1 lists of arguments, but 2 workers"),
        ([], [], "the group has 0 lists of arguments, but 0 workers"),
        ([], None, "the group has 0 lists of arguments, but 0 workers"),
        ([[1], [2]], [0, 5], "there is no worker 5"),
        ([[1], [2]], [None, 5], "there is no worker 5"),
        ([[1], [2]], [None, "1"], "'1' is not the number of a worker"),
        ([[1], [2]], [None, True], "True is not the number of a worker"),
        ([[1], [2], [3]], None, "a group of 3 members needs one worker for each member, but there are only 2 workers"),
        ([[1], 2], None, "member 1 of the group: the arguments must be a list, but are a int"),
    ],
)
@pytest.mark.sampled(12)
def test_groups_that_cannot_be(make: Make, args: list, workers: list | None, words: str) -> None:
    o = make()
    with pytest.raises(PlacementError, match=words):
        o.submit_group(jobs.give, args, workers=workers)
    assert o.stats().waiting == 0


@pytest.mark.parametrize("wanted", [None, [None, 0], [1, None]])
def test_members_of_a_group_with_memory_on_one_worker(make: Make, wanted: list | None) -> None:
    o = make()
    one, two = o.malloc(0, 8), o.malloc(0, 8)
    with pytest.raises(PlacementError, match=r"worker 0 is in a group more|member 0 of the group: the task"):
        o.submit_group(jobs.total, [[one.resident()], [two.resident()]], workers=wanted)
    assert o.stats().waiting == 0


def test_the_first_error_of_a_group_is_the_groups(make: Make) -> None:
    o = make()
    with pytest.raises(ValueError, match="first"):
        o.submit_group(jobs.fail, [["first"], ["first"]], workers=[0, 1]).result(LIMIT)
    assert o.submit_group(jobs.give, [[1], [2]], workers=[1, 0]).result(LIMIT) == [1, 2]


# Failures (D7)


def test_what_needs_what_was_never_written_fails_too(make: Make, tmp_path: Path) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    with busy(o, 0, tmp_path):
        failed = o.submit(jobs.fill, data.resident("update"), "no number")
        read = o.submit(jobs.total, data.resident())
        after = o.submit(jobs.total, FLOATS, worker=0)
        healed = o.copy_to(data, FLOATS)
        again = o.submit(jobs.total, data.resident(dtype="float32"))
    with pytest.raises(ValueError, match="no number"):
        failed.result(LIMIT)
    with pytest.raises(PoisonedError, match=r"task \d+ \(total\) did not run.*no number") as caught:
        read.result(LIMIT)
    assert isinstance(caught.value.cause, ValueError)
    assert after.result(LIMIT) == FLOATS.sum()
    healed.result(LIMIT)
    assert again.result(LIMIT) == FLOATS.sum()


def test_a_failed_reader_leaves_what_it_read(make: Make) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    with pytest.raises(TypeError):
        o.submit(jobs.nothing, data.resident()).result(LIMIT)
    assert np.array_equal(download(o, data), FLOATS)


def test_an_error_that_cannot_be_sent_keeps_its_words(make: Make) -> None:
    with pytest.raises(Exception, match="1 and 2"):
        make().submit(jobs.fail_stubbornly).result(LIMIT)


def test_a_task_that_did_not_begin_can_be_cancelled(make: Make, tmp_path: Path) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    with busy(o, 0, tmp_path) as running:
        task = o.submit(jobs.fill, data.resident("write", dtype="float32"), 1.0)
        needs = o.submit(jobs.total, data.resident())
        assert task.cancel()
        assert task.cancelled()
        assert not running.cancel()
    assert running.result(LIMIT) == "waited"
    with pytest.raises(PoisonedError, match="was cancelled"):
        needs.result(LIMIT)
    assert not task.running()


def test_there_is_room_for_so_many_tasks(make: Make, tmp_path: Path) -> None:
    o = make(max_tasks=3, timeout=0.2)
    with busy(o, 0, tmp_path):
        for _ in range(2):
            o.submit(jobs.nothing, worker=0)
        with pytest.raises(BackPressureError, match=r"3 tasks .*begin_and_wait\), which is running, is the oldest"):
            o.submit(jobs.nothing, worker=0)
    o.wait()
    o.submit(jobs.nothing, worker=0).result(LIMIT)


def test_there_is_room_for_so_many_bytes(make: Make, tmp_path: Path) -> None:
    o = make(max_bytes=64, timeout=0.2)
    with busy(o, 0, tmp_path, FLOATS):
        o.submit(jobs.total, FLOATS, worker=0)
        with pytest.raises(BackPressureError, match="a task with 32 bytes to copy could not be submitted"):
            o.submit(jobs.total, FLOATS, worker=0)
    o.wait()
    big = np.zeros(100, np.float32)
    assert o.submit(jobs.total, big).result(LIMIT) == 0


# The end of a worker (D7)


def end(o: Orchestrator, worker: int, transport: str) -> None:
    """Kill a worker as the system does it, where it is a process."""
    if transport == "thread":
        o.kill(worker)
    else:
        os.kill(o.health(worker).pid, signal.SIGKILL)
        wait_until(lambda: not o.health(worker).alive)


def test_an_idle_worker_that_is_killed(make: Make, transport: str) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    o.wait()
    end(o, 0, transport)
    with pytest.raises(WorkerLost, match="worker 0 is lost"):
        o.submit(jobs.total, data.resident())
    with pytest.raises(WorkerLost, match="worker 0 is lost"):
        o.malloc(0, 8)
    assert o.submit(jobs.give, 3).result(LIMIT) == 3
    assert o.stats().buffers == ()
    assert not o.stats().workers[0].alive


def test_a_worker_that_is_killed_while_it_runs_something(make: Make, transport: str, tmp_path: Path) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    o.wait()
    with busy(o, 0, tmp_path) as running:
        behind = o.submit(jobs.total, data.resident(dtype="float32"))
        group = o.submit_group(jobs.give, [[1], [2]], workers=[0, 1])
        single = o.submit(jobs.give, 5, worker=1)
        end(o, 0, transport)
        for future in (running, behind, group):
            with pytest.raises(WorkerLost, match="worker 0 is lost"):
                future.result(LIMIT)
        assert single.result(LIMIT) == 5


def test_a_group_that_may_run_anywhere_runs_without_a_worker_that_is_gone(
    make: Make, transport: str, tmp_path: Path
) -> None:
    """Also if that worker was chosen already. Where too few are left, the group is lost too."""
    o = make(["sim"] * 3)
    with busy(o, 0, tmp_path), busy(o, 1, tmp_path):
        group = o.submit_group(jobs.give, [[1], [2]], workers=[0, None])
        chosen = o.submit_group(jobs.give, [[1], [2]])
        too_many = o.submit_group(jobs.give, [[1], [2], [3]])
        end(o, 2, transport)
        with pytest.raises(WorkerLost, match="worker 2 is lost"):
            too_many.result(LIMIT)
        with pytest.raises(WorkerLost, match="worker 2 is lost"):
            o.submit_group(jobs.give, [[1], [2], [3]])
    assert group.result(LIMIT) == chosen.result(LIMIT) == [1, 2]
    assert o.stats().waiting == 0


def test_a_worker_that_is_killed_with_the_only_copy(make: Make, transport: str) -> None:
    """What was on it is an error, not other bytes; what goes on elsewhere goes on."""
    o = make()
    data, other = upload(o, 0, FLOATS), upload(o, 1, FLOATS)
    o.submit(jobs.add, data.resident("update", dtype="float32"), 1.0).result(LIMIT)
    end(o, 0, transport)
    for ask in (lambda: o.copy_from(data), lambda: o.free(data), lambda: o.copy_to(data, FLOATS)):
        with pytest.raises(WorkerLost, match="worker 0 is lost"):
            ask()
    assert np.array_equal(download(o, other), FLOATS)


def test_a_handle_from_before_a_restart_is_stale(make: Make, transport: str) -> None:
    o = make()
    data = upload(o, 0, FLOATS)
    with pytest.raises(PlacementError, match="worker 0 is alive"):
        o.restart(0)
    o.wait()
    end(o, 0, transport)
    o.restart(0)
    fresh = upload(o, 0, FLOATS + 5)
    with pytest.raises(HandleError, match="was lost before the worker was restarted"):
        o.copy_from(data)
    assert np.array_equal(download(o, fresh), FLOATS + 5)
    assert o.health(0).alive


def test_all_workers_are_gone(make: Make, transport: str, tmp_path: Path) -> None:
    o = make(["sim"])
    with busy(o, 0, tmp_path):
        waiting = o.submit(jobs.nothing)
        end(o, 0, transport)
        with pytest.raises(WorkerLost):
            waiting.result(LIMIT)
        with pytest.raises(WorkerLost):
            o.submit(jobs.nothing).result(LIMIT)
    o.restart(0)
    assert o.submit(jobs.give, 2).result(LIMIT) == 2


# The end


def test_nothing_is_taken_after_the_end(make: Make) -> None:
    o = make()
    handle = o.malloc(0, 8)
    o.close()
    o.close()
    for ask in (
        lambda: o.submit(jobs.nothing),
        lambda: o.submit_group(jobs.nothing, [[]], workers=[0]),
        lambda: o.malloc(0, 8),
        lambda: o.copy_to(handle, b"12345678"),
        lambda: o.copy_from(handle),
        lambda: o.free(handle),
        lambda: o.create(jobs.Counter, 1, worker=0),
    ):
        with pytest.raises(ClosedError, match="is closed"):
            ask()


def test_the_end_waits_for_what_was_submitted(make: Make) -> None:
    with make() as o:
        futures = [o.submit(jobs.give, number) for number in range(20)]
    assert [future.result(0) for future in futures] == list(range(20))


def test_an_error_in_the_block_cancels_what_did_not_begin(make: Make, tmp_path: Path) -> None:
    o = make()
    done = tmp_path / "done"
    running = o.submit(jobs.wait_for, str(done), worker=0)
    waiting = o.submit(jobs.nothing, worker=0)
    wait_until(running.running)
    threading.Timer(0.1, done.touch).start()
    with pytest.raises(KeyError), o:
        raise KeyError
    assert running.result(0) == "waited"
    assert waiting.cancelled()
