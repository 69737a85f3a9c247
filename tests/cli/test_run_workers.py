"""``etdev run`` over data sets and on workers: the same outputs, whoever computes them (D1, E2)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.running import SIMULATED, Run, counter, resident
from etdev.program import Blob, write
from etdev.program import model as m
from program.hand import tensor
from support.files import chain, method, program, sin
from support.on_devices import file_of

pytestmark = pytest.mark.integration

ROWS = np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)


def wide() -> object:
    """``sin`` of ``[2, 4]``."""
    return program(method([tensor(2, 4, at=0), tensor(2, 4, at=32)], [sin(0, 1)]))


@pytest.fixture(autouse=True)
def files(run: Run) -> None:
    """A data set, and a program whose input has rows."""
    np.save("rows.npy", ROWS)
    write(wide(), "wide.pte")  # type: ignore[arg-type]
    write(chain(1), "chain.pte")


def read(out: str) -> Any:
    return json.loads(out)


@pytest.mark.parametrize("workers", [(), ("--workers", "1"), ("--workers", "2", "--transport", "thread")])
@pytest.mark.parametrize(("name", "calls"), [("chain", 6), ("wide", 3)])
def test_a_data_set_makes_a_call_of_each_piece(run: Run, name: str, calls: int, workers: tuple[str, ...]) -> None:
    """One axis more is a call for each; a multiple of the rows is shared out. One file has what all give."""
    transport = ("--transport", "thread") if workers and "--transport" not in workers else ()
    arguments = ("--input", "0=rows.npy", "--save", "found", "--output", "json", *workers, *transport)
    code, out, err = run(f"{name}.pte", *arguments)
    assert code == 0, err
    assert len(read(out)["calls"]) == calls
    assert np.allclose(np.load("found/output-0.npy"), np.sin(ROWS))
    assert [path.name for path in Path("found").iterdir()] == ["output-0.npy"]


def test_processes(run: Run) -> None:
    code, out, err = run("chain.pte", "--input", "0=rows.npy", "--workers", "2", "--save", "found")
    assert code == 0, err
    assert np.allclose(np.load("found/output-0.npy"), np.sin(ROWS))
    assert "  workers    0  cpu  " in out


def test_many_calls_are_not_shown_one_by_one(run: Run) -> None:
    _, out, _ = run("chain.pte", "--input", "0=rows.npy", "--repeat", "3")
    assert "call 1" not in out
    assert "  more       17 more calls; `--output json` has all of them\n" in out
    assert out.rstrip().endswith("calls a second")


def test_a_data_set_beside_what_is_the_same_in_each_call(run: Run) -> None:
    code, _, err = run("scaled.pte", "--input", "0=rows.npy", "--input", "1=y.npy", "--input", "2=3", "--save", "found")
    assert code == 0, err
    assert np.allclose(np.load("found/output-0.npy"), ROWS + 30)


def test_state_and_workers(run: Run) -> None:
    arguments = ("counter.pte", "--input", "0=rows.npy", "--transport", "thread", "--save", "found")
    code, _, err = run(*arguments, "--workers", "2")
    assert code == 2
    assert "keeps state from call to call" in err
    assert "use `--fresh` to start each call from initial state" in err
    assert not Path("found").exists()
    assert run(*arguments, "--workers", "1")[0] == 0
    assert np.allclose(np.load("found/output-0.npy"), np.cumsum(ROWS, axis=0), atol=1e-6)
    assert run(*arguments, "--workers", "2", "--fresh")[0] == 0
    assert np.allclose(np.load("found/output-0.npy"), ROWS)


def test_state_in_a_delegate_and_workers(run: Run) -> None:
    """It is in the program that the delegate has, and nowhere in the method."""
    inside = replace(resident(), segments=(m.Segment(0, Blob()), m.Segment(128, Blob(file_of(counter())))))
    write(inside, "inside.pte")
    arguments = ("inside.pte", "--input", "0=rows.npy", *SIMULATED, "--transport", "thread")
    code, _, err = run(*arguments, "--workers", "2")
    assert code == 2
    assert "keeps state from call to call" in err
    assert run(*arguments, "--workers", "1", "--save", "found")[0] == 0
    assert np.allclose(np.load("found/output-0.npy"), np.cumsum(ROWS, axis=0), atol=1e-6)


def test_an_input_on_a_device_goes_once_to_each_worker(run: Run) -> None:
    np.save("one.npy", ROWS[0])
    code, out, err = run(
        "resident.pte",
        "--input",
        "0=one.npy",
        "--repeat",
        "20",
        *SIMULATED,
        "--workers",
        "2",
        "--transport",
        "thread",
        "--output",
        "json",
    )
    assert code == 0, err
    found = read(out)["workers"]
    assert [worker["bytes_to"] for worker in found] == [16, 16]
    assert sum(worker["bytes_avoided"] for worker in found) == 20 * 16


def test_a_worker_for_each_device(run: Run) -> None:
    code, out, err = run(
        "two.pte",
        "--input",
        "0=rows.npy",
        *SIMULATED,
        "--workers",
        "devices",
        "--transport",
        "thread",
        "--save",
        "found",
        "--output",
        "json",
    )
    assert code == 0, err
    assert np.allclose(np.load("found/output-0.npy"), np.sin(np.sin(np.sin(ROWS))))
    assert [worker["memory"] for worker in read(out)["workers"]] == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "--workers: '0' is not a number of workers"),
        (["--workers", "many"], "--workers: 'many' is not a number of workers"),
        (["--transport", "process"], "--transport: the number of workers is missing"),
        (["--workers", "2", "--transport", "mail"], "--transport: there is no transport 'mail'"),
        (
            ["--workers", "2", "--ray-address", "here"],
            "--ray-address: only workers of the transport `ray` can join a Ray cluster",
        ),
        (
            ["--workers", "devices"],
            "--workers: one worker for each device requires the interpreter and a program that uses devices",
        ),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    code, _, err = run("chain.pte", "--input", "0=rows.npy", *arguments)
    assert code == 2
    assert said in err


def test_data_sets_of_different_lengths(run: Run) -> None:
    np.save("few.npy", ROWS[:2])
    code, _, err = run("scaled.pte", "--input", "0=rows.npy", "--input", "1=few.npy", "--input", "2=3")
    assert code == 2
    assert "input 0 has values for 6 calls, but input 1 has values for 2" in err
