"""``etdev bench``: figures that were measured, and nothing that was not (E4, D1)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.running import SIMULATED, Run
from etdev.cli import app
from etdev.cli.bench import render
from etdev.errors import MissingRequirementError
from etdev.execution import bench as bench_module
from etdev.execution.comparison import measure_in_turn
from etdev.execution.runtimes import open_replay
from etdev.execution.timing import Thoroughness, summarize
from etdev.pipeline.project import machine
from etdev.program import read, write
from etdev.runtime.device_map import NO_MAP
from etdev.runtime.stock import StockRuntime
from etdev.units import format_size
from program.hand import tensor
from support.files import chain, method, program, sin
from support.native import native_host

pytestmark = pytest.mark.integration

QUICK = ("--calls", "6", "--warmup", "1", "--transport", "thread", "--workers", "1")
Bench = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bench(run: Run, capfd: pytest.CaptureFixture[str]) -> Bench:
    """Measure a file among those of ``run``: exit code, stdout, stderr."""

    def bench(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(["bench", *arguments])
        return code, *capfd.readouterr()

    return bench


def figures(found: tuple[int, str, str]) -> Any:
    code, out, err = found
    assert code == 0, err
    return json.loads(out)


def test_what_is_measured(bench: Bench) -> None:
    arguments = ("chain.pte", "--random", *QUICK[:-2], "--workers", "2,1", "--output", "json", "--quiet")
    found = figures(bench(*arguments))

    latency = found["latency"]
    order = [latency[name] for name in ("min", "p50", "p95", "p99", "max")]
    assert latency["calls"] == 6
    assert order == sorted(order)
    assert 0 < latency["min"] <= latency["mean"] <= latency["max"]
    assert [(item["workers"], item["calls"]) for item in found["throughput"]] == [(2, 6), (1, 6)]
    for item in found["throughput"]:
        assert item["calls_per_second"] == pytest.approx(item["calls"] / item["seconds"])
    two, one = found["throughput"]
    assert (one["factor"], one["no_factor"]) == (1, None)
    assert (two["factor"], two["calls_per_task"]) == (None, 1)
    assert two["no_factor"] == "2 workers had only 6 tasks: measure for longer with `--seconds`"
    assert (found["format"], found["runtime"], found["reason"]) == (1, "replay", "it is not here")
    assert (found["warmup"], found["transport"]) == (1, "thread")
    assert found["memory"]["planned"] == {"cpu": read("chain.pte").execution_plan[0].non_const_buffer_sizes[1]}
    assert found["way"] is None
    assert found["machine"]["cores"] == machine.usable_cores()
    assert {"etdev", "python", "torch"} <= set(found["machine"]["versions"])


def test_the_factor_is_not_known_without_one_worker(bench: Bench) -> None:
    (found,) = figures(bench("chain.pte", "--random", *QUICK[:-1], "2", "--output", "json"))["throughput"]
    assert (found["factor"], found["no_factor"]) == (None, None)
    assert "one worker" not in bench("chain.pte", "--random", *QUICK[:-1], "2")[1]


def test_a_factor_that_the_measurement_does_not_bear_is_not_shown(bench: Bench) -> None:
    """It was "13.49 times one worker" for calls that are shorter than their way to the worker."""
    out = bench("chain.pte", "--random", *QUICK[:-1], "1,2")[1]
    assert "times one worker" not in out
    assert "not comparable: 2 workers had only 6 tasks" in out


def test_the_text(bench: Bench) -> None:
    code, out, err = bench("chain.pte", "--random", *QUICK)

    assert code == 0
    shown = out.splitlines()
    assert shown[:3] == [
        "chain.pte  forward, by etdev's interpreter",
        "  why        it is not here",
        "  inputs     random, seed 0",
    ]
    assert shown[3].startswith("  latency    min ")
    assert "of 6 calls, after 1 call to warm up" in shown[4]
    assert shown[5].startswith("  workers    1  ")
    assert "workers are threads" in shown[6]
    assert shown[7] == f"  memory     file {format_size(Path('chain.pte').stat().st_size)}, planned cpu 32 B"
    assert f"Python {machine.describe_machine().versions['python']}, torch " in out
    assert "the interpreter checks each step" in out
    assert "with fewer than 100 calls, p99 is the slowest call" in out
    assert "chain.pte: latency " in err
    assert "chain.pte: 1 worker " in err


def test_quiet_leaves_the_figures_only(bench: Bench) -> None:
    assert bench("chain.pte", "--random", *QUICK, "--quiet")[2] == ""


@pytest.mark.parametrize(("load", "said"), [(0.1, False), (3.0, True), (None, False)])
def test_a_machine_that_was_busy(bench: Bench, monkeypatch: pytest.MonkeyPatch, load: float | None, said: bool) -> None:
    monkeypatch.setattr(machine, "_load", lambda: load)
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    out = bench("chain.pte", "--random", *QUICK)[1]
    assert ("the machine was busy before the measurement, with a load of 3.0" in out) is said
    assert ("load unknown" if load is None else f"2 cores, load {load:.1f} before") in out


def test_what_the_system_does_not_say_is_not_known(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "peak_resident", lambda _: None)
    monkeypatch.setattr(machine, "_cpu", lambda: None)
    _, out, _ = bench("chain.pte", "--random", *QUICK)
    assert "resident: unknown for etdev's own process" in out
    assert "  machine    CPU not known, " in out
    found = figures(bench("chain.pte", "--random", *QUICK, "--output", "json"))
    assert (found["memory"]["resident_before"], found["memory"]["resident_peak"]) == (None, None)
    assert found["machine"]["cpu"] is None


def test_the_memory_that_the_program_adds_comes_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([224 << 20, 237 << 20])
    monkeypatch.setattr(bench_module, "peak_resident", lambda _: next(sizes))
    _, out, _ = bench("chain.pte", "--random", *QUICK)
    assert "resident 13.0 MiB more than before loading: 237 MiB at most, 224 MiB before, in etdev's own process" in out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says what a process took")
def test_memory_is_that_of_the_process_that_runs_the_program(bench: Bench) -> None:
    """The interpreter's is this one; 64 MiB that a program plans have to show."""
    count = (64 << 20) // 8
    values = [tensor(count, at=0), tensor(count, at=4 * count)]
    write(program(method(values, [sin(0, 1)])), "large.pte")
    found = figures(bench("large.pte", "--random", *QUICK, "--output", "json"))["memory"]
    assert found["planned"] == {"cpu": 64 << 20}
    assert found["resident_peak"] >= found["resident_before"] > 0
    assert found["resident_peak"] > 64 << 20
    assert machine.peak_resident(2**30) is None


def test_a_program_that_keeps_state(bench: Bench) -> None:
    """Its calls go on from one state, and each worker has its own."""
    found = figures(bench("counter.pte", "--random", *QUICK[:-1], "1,2", "--output", "json"))
    assert [item["workers"] for item in found["throughput"]] == [1, 2]
    assert any("each worker has its own state" in note for note in found["notes"])
    stateless = figures(bench("chain.pte", "--random", *QUICK, "--output", "json"))
    assert not any("state" in note for note in stateless["notes"])


def test_inputs_on_a_device_and_a_data_set(bench: Bench) -> None:
    np.save("one.npy", np.ones(4, dtype=np.float32))
    found = figures(bench("resident.pte", "--input", "0=one.npy", *SIMULATED, *QUICK, "--output", "json"))
    assert found["memory"]["planned"] == {"cpu": 0}
    np.save("rows.npy", np.ones((3, 4), dtype=np.float32))
    assert figures(bench("chain.pte", "--input", "0=rows.npy", *QUICK, "--output", "json"))["latency"]["calls"] == 6


def test_so_long(bench: Bench) -> None:
    """Time alone: calls go on until it is over. With calls: until both are reached."""
    arguments = ("chain.pte", "--random", "--workers", "1", "--transport", "thread", "--output", "json")
    (alone,) = figures(bench(*arguments, "--seconds", "0.2"))["throughput"]
    assert alone["seconds"] >= 0.2
    assert alone["calls"] > alone["calls_per_task"] > 1
    assert 0.5 < alone["busy"] <= 1
    assert figures(bench(*arguments, "--seconds", "0.001", "--calls", "30"))["latency"]["calls"] == 30


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([3.0], (3, 3, 3, 3, 3)),
        ([2.0, 1.0], (1, 1, 2, 2, 2)),
        ([float(value) for value in range(100, 0, -1)], (1, 50, 95, 99, 100)),
        ([float(value) for value in range(1, 201)], (1, 100, 190, 198, 200)),
    ],
    ids=["one", "two", "hundred", "two hundred"],
)
def test_percentiles_are_times_that_were_measured(times: Sequence[float], wanted: tuple[float, ...]) -> None:
    found = summarize(times)
    assert (found.min, found.p50, found.p95, found.p99, found.max) == wanted
    assert found.mean == pytest.approx(sum(times) / len(times))


@pytest.mark.parametrize(
    ("arguments", "said", "remedy"),
    [
        (("--workers", "1,x"), "--workers: 'x' is not a number of workers", "separated by commas"),
        (("--workers", "0"), "--workers: '0' is not a number of workers", "1 to 1024"),
        (("--workers", ""), "--workers: '' is not a number of workers", "1 to 1024"),
        (("--seconds", "nan"), "--seconds: a measurement cannot take nan s", "use a number"),
        (("--seconds", "0"), "--seconds: a measurement cannot take 0 s", "use a number"),
        (("--transport", "mail"), "--transport: there is no transport 'mail'", "use one of: thread, process, ray"),
        (("--runtime", "best"), "--runtime: there is no runtime 'best'", "use one of: stock, native, replay"),
        (("--input", "0=x.npy"), "--random: `--random` and `--input` cannot be used together", "remove one of them"),
        (("--calls", "0"), "'--calls'", "greater than or equal to 1"),
        (("--threads", "0"), "'--threads'", "greater than or equal to 1"),
        (("--against-data", "x.ptd"), "--against-data: there is no other program", "add `--against FILE`"),
        (("--threads", "2"), "--threads: only the stock runtime has a number of threads", "omit --threads"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage(bench: Bench, arguments: tuple[str, ...], said: str, remedy: str) -> None:
    code, out, err = bench("chain.pte", "--random", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert remedy in err


def test_no_inputs(bench: Bench) -> None:
    code, _, err = bench("chain.pte", *QUICK)
    assert code == 2
    assert "use `--random` for random inputs" in err


def test_a_program_that_fails(bench: Bench) -> None:
    broken = program(method([tensor(4, at=0), tensor(3, at=16)], [sin(0, 1)]))
    write(broken, "broken.pte")
    code, _, err = bench("broken.pte", "--random", *QUICK)
    assert code == 4
    assert "broken.pte: the program failed: " in err


def test_two_programs(bench: Bench) -> None:
    """Each has the same number of calls. Memory of the process is unknown, because both run in it."""
    write(chain(3), "three.pte")
    arguments = ("chain.pte", "--random", *QUICK[:-2], "--against", "three.pte")
    found = figures(bench(*arguments, "--output", "json", "--quiet"))
    other = found["against"]
    assert (other["file"], other["latency"]["calls"], found["latency"]["calls"]) == ("three.pte", 6, 6)
    ratio = other["ratio"]
    assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert (ratio["rounds"], ratio["calls_per_round"], found["throughput"]) == (6, 1, [])
    assert (found["memory"]["file"], other["memory"]["file"]) == (
        Path("chain.pte").stat().st_size,
        Path("three.pte").stat().st_size,
    )
    assert [part["memory"]["resident_peak"] for part in (found, other)] == [None, None]

    out = bench(*arguments, "--workers", "1")[1]
    assert "of 6 calls, after 1 call to warm up; in turn with the other program" in out
    assert "  against    three.pte\n" in out
    number = r"[\d.e+-]+"
    assert re.search(rf"chain\.pte takes {number} times as long \(middle half of 6 rounds: {number} to {number}\)", out)
    assert "  workers    1  " in out

    out = bench("chain.pte", "--random", "--calls", "2", "--against", "three.pte")[1]
    assert "too few rounds to compare (2): use more --calls or --seconds" in out
    code, _, err = bench("chain.pte", "--random", "--against", "nothing")
    assert (code, "--against: " in err) == (2, True), err


def test_the_other_program_fails(bench: Bench) -> None:
    write(program(method([tensor(4, at=0), tensor(3, at=16)], [sin(0, 1)])), "broken.pte")
    code, _, err = bench("chain.pte", "--random", *QUICK, "--against", "broken.pte")
    assert code == 4
    assert "broken.pte: the program failed: " in err


def test_the_other_program_takes_other_inputs(bench: Bench) -> None:
    np.save("one.npy", np.ones(4, dtype=np.float32))
    write(program(method([tensor(5, at=0), tensor(5, at=32)], [sin(0, 1)])), "five.pte")
    code, _, err = bench("chain.pte", "--input", "one.npy", *QUICK, "--against", "five.pte")
    assert code == 2
    assert "--against: five.pte: input 0 is float32 [5]" in err


def test_the_other_program_cannot_run_in_this_runtime(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(read: object, spec: bench_module.BenchOptions, **_: object) -> AbstractContextManager[Any]:
        if spec.runtime is not None:
            raise MissingRequirementError("the wheel's runtime has no kernel for x::y")
        return nullcontext(("stock", None, open_replay(NO_MAP)))

    monkeypatch.setattr(bench_module, "chosen_runtime", chosen)
    code, _, err = bench("chain.pte", "--random", *QUICK, "--against", "counter.pte")
    assert code == 3
    assert "--against: counter.pte: the wheel's runtime has no kernel for x::y" in err
    assert "use `--runtime replay`" in err


@pytest.mark.parametrize(("calls", "seconds"), [(7, 0.0), (25, 0.0), (4, 0.02)])
def test_programs_alternate(calls: int, seconds: float) -> None:
    """Each round has the same calls of both; the first of a round is the second of the next."""
    made: list[tuple[str, int]] = []

    def timed(name: str, each: float) -> Callable[[tuple[Any, ...]], tuple[float, float]]:
        def call(sample: tuple[Any, ...]) -> tuple[float, float]:
            made.append((name, sample[0]))
            return each, 0.001

        return call

    samples = [(0,), (1,), (2,)]
    found = measure_in_turn(
        (timed("a", 0.02), timed("b", 0.01)), (samples, samples), Thoroughness(warmup=2, calls=calls, seconds=seconds)
    )
    assert made[:4] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    size, rounds = found.ratio.calls_per_round, found.ratio.rounds
    rest = made[4:]
    assert [name for name, _ in rest[: 4 * size]] == ["a"] * size + ["b"] * 2 * size + ["a"] * size
    for name in "ab":
        assert [index for each, index in rest if each == name] == [at % 3 for at in range(size * rounds)]
    assert size * rounds >= calls
    assert (found.ratio.median, found.ratio.low, found.ratio.high) == pytest.approx((2, 2, 2))
    assert [each.p50 for each in found.latencies] == [0.02, 0.01]
    assert found.ways == (0.001, 0.001)


@pytest.mark.nightly
def test_processes_and_the_stock_runtime(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("executorch")
    write(chain(1), tmp_path / "chain.pte")
    arguments = ["--random", "--workers", "1", "--output", "json", "--quiet"]
    assert app.run(["bench", str(tmp_path / "chain.pte"), *arguments, "--seconds", "0.5"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["runtime"], found["transport"]) == ("stock", "process")
    assert found["way"] > 0
    (one,) = found["throughput"]
    assert one["calls"] % one["calls_per_task"] == 0
    # A call takes microseconds, and its way to the worker's runtime hundreds of them.
    assert one["calls_per_second"] * found["latency"]["p50"] > 0.2


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_threads(tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int) -> None:
    """Also more than there are cores."""
    pytest.importorskip("executorch")
    write(chain(1), tmp_path / "chain.pte")
    arguments = ["--random", "--workers", "1", "--quiet", "--calls", "2", "--threads", str(count)]
    assert app.run(["bench", str(tmp_path / "chain.pte"), *arguments]) == 0
    threads = "1 thread" if count == 1 else "3 threads"
    assert f"one after the other, on {threads}\n" in capfd.readouterr().out


def test_the_way_to_the_runtime_is_no_part_of_a_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of 2 ms in the runtime that takes 2 ms more to get there and back, at least."""

    class Slow(StockRuntime):
        process_id = 0
        seconds = 0.002

        def load(self, file: Path, *, shared: bool = False, data: Path | None = None) -> tuple[str, ...]:
            return ("forward",)

        def set_threads(self, count: int | None) -> int:
            return 1

        def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
            time.sleep(0.004)
            return ()

    @contextmanager
    def chosen(*_: object, **__: object) -> Iterator[tuple[str, None, Slow]]:
        yield "stock", None, Slow()

    monkeypatch.setattr(bench_module, "chosen_runtime", chosen)
    options = bench_module.BenchOptions(random=True, thoroughness=Thoroughness(calls=5, seconds=0), workers=())
    found = bench_module.bench_file(Path("chain.pte"), options)
    assert (found.latency.min, found.latency.max) == (0.002, 0.002)
    assert found.way is not None
    assert found.way >= 0.002
    assert "ms to the runtime's process and back (median)" in render(found)


@pytest.mark.parametrize(("command", "more"), [("run", ()), ("bench", (*QUICK, "--seconds", "0.01"))])
def test_a_compilation_of_the_native_runtime_is_announced(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, more: tuple[str, ...]
) -> None:
    """It takes some seconds, and happens once."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    host = native_host()

    def compiled(notify: Callable[[str], None] = lambda _: None) -> Path:
        notify("compiling the native runtime")
        return host

    monkeypatch.setattr("etdev.execution.native.host_executable", compiled)
    arguments = [command, "chain.pte", "--random", "--runtime", "native", *more]
    for quiet in (False, True):
        capfd.readouterr()
        assert app.run([*arguments, "--quiet"] if quiet else arguments) == 0
        assert ("compiling the native runtime\n" in capfd.readouterr().err) is not quiet
