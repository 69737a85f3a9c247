"""``etdev verify FILE``: what a file can be asked without its config."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from etdev.backends.base import Availability
from etdev.cli import app
from etdev.errors import MissingRequirementError
from etdev.execution.runtimes import Obstacle
from etdev.program import model as m
from etdev.program import write
from etdev.verification import verify_file as foreign
from etdev.verification.checks import kernels
from program.hand import everything, loop
from support.files import branches, chain, counters, delegated, method, overwriting
from support.on_devices import across, delegate, on, two_devices

Run = Callable[..., tuple[int, str, str]]


def on_one_device() -> m.ExecutionPlan:
    """Takes and gives a tensor on ``cuda:0``."""
    values = [on("cuda:0", 4), on("cuda:0", 4)]
    return method(values, [m.DelegateCall(0, (0, 1))], delegates=(delegate(b"cuda:0"),), operators=())


FILES = {
    "branches.pte": branches,
    "chain.pte": lambda: chain(3),
    "counters.pte": counters,
    "everything.pte": everything,
    "loop.pte": loop,
    "resident.pte": lambda: across(on_one_device()),
    "two.pte": two_devices,
    "overwriting.pte": overwriting,
    "unsplit.pte": lambda: delegated(ambiguous=True),
    "unknown.pte": lambda: delegated(backend="Other"),
}


class Runtime:
    """What the wheel's runtime says that it has."""

    operators = frozenset({"aten::add.out", "aten::sin.out", "aten::cos.out", "aten::copy_"})
    backends = frozenset({"XnnpackBackend"})


class NoRuntime:
    """A runtime that does not start."""

    @property
    def operators(self) -> frozenset[str]:
        raise MissingRequirementError("ExecuTorch's runtime cannot start: no such library")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line next to the files: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    installed(monkeypatch, Runtime())
    for name, make in FILES.items():
        write(make(), name)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(["verify", *arguments])
        return code, *capfd.readouterr()

    return run


def installed(monkeypatch: pytest.MonkeyPatch, runtime: object | None) -> None:
    """This runtime is the one of the installed wheel; None: it is not installed."""
    monkeypatch.setattr(foreign, "StockRuntime", lambda: nullcontext(runtime))
    found = Availability(runtime is not None, "the package 'executorch' is not installed", "pip install it")
    monkeypatch.setattr(kernels, "find_packages", lambda *_, **__: found)


def checks(out: str) -> dict[str, tuple[str, str]]:
    """Status and summary by check, of the only file."""
    (file,) = json.loads(out)["files"]
    return {check["name"]: (check["status"], check["summary"]) for check in file["checks"]}


def test_a_file_that_nothing_executes_is_not_called_good_alone(run: Run, tmp_path: Path) -> None:
    """A delegate that no runtime here has keeps the program from being run."""
    write(delegated(backend="MyBackend"), tmp_path / "npu.pte")
    code, out, _ = run("npu.pte")

    assert code == 0
    assert out.endswith("1 file, 1 good in all checks that ran, but not executed\n")


def test_a_good_file(run: Run) -> None:
    code, out, err = run("chain.pte")

    assert (code, err) == (0, "")
    assert out == (
        "chain.pte  896 B (896 bytes)\n"
        "  bytes      passed   1 method, 3 instructions read back\n"
        "  plan       passed   4 tensors of 64 B in total, none overlaps another one that is in use\n"
        "  placement  passed   all memory is on the host\n"
        "  kernels    passed   3 operators in the wheel's runtime\n"
        "  replay     passed   1 method on random inputs, same outputs with and without poison; weak: the "
        "expected outputs are unknown\n"
        "  not run    budget, growth, runtime, tosa, native, accuracy, latency: this check needs the config that the "
        "file was built from\n"
        "  not run    device: the program has no memory on devices\n\n"
        "1 file, 1 good in all checks that ran\n"
    )


@pytest.mark.parametrize(
    ("name", "check", "status", "summary"),
    [
        ("branches.pte", "plan", "passed", "7 tensors"),  # Branches that never both run may use the same bytes.
        ("loop.pte", "plan", "passed", "2 tensors"),
        ("counters.pte", "plan", "passed", "6 tensors"),
        (
            "unsplit.pte",
            "plan",
            "not run",
            "the file does not state which arguments of the delegate calls of 'forward'",
        ),
        ("everything.pte", "plan", "not run", "the file does not state"),
        ("overwriting.pte", "plan", "failed", "method 'forward': the caller (outputs) reads value 1"),
        ("unknown.pte", "kernels", "not run", "the wheel's runtime does not have Other"),
        (
            "everything.pte",
            "kernels",
            "failed",
            "method 'forward' needs operators that the wheel's runtime lacks: aten",
        ),
    ],
)
def test_single_checks(run: Run, name: str, check: str, status: str, summary: str) -> None:
    code, out, _ = run(name, "--output", "json")

    found = checks(out)[check]
    assert found[0] == status
    assert found[1].startswith(summary)
    assert code == (4 if "failed" in (answer for answer, _ in checks(out).values()) else 0)


def test_where_loaders_differ_it_says_so(run: Run) -> None:
    _, out, _ = run("counters.pte")

    assert "in a loader that gives all methods the same buffers, method 'second' overwrites the state of 'first'" in out


def test_a_malformed_file(run: Run) -> None:
    Path("bad.pte").write_bytes(b"not a program at all")
    code, out, err = run("bad.pte")

    assert (code, err) == (4, "")
    assert "  bytes      failed   the file is malformed: this is not an ExecuTorch program" in out
    assert "             help: copy or build the file again: it is not a .pte, or it is truncated or damaged" in out
    assert "  not run    plan, placement, kernels, replay, device: the check `bytes` failed\n" in out
    assert out.endswith("1 file, 1 rejected (bytes)\n")


def test_several_files(run: Run) -> None:
    code, out, _ = run("chain.pte", "overwriting.pte", "loop.pte")

    assert code == 4
    assert out.endswith("3 files, 2 good in all checks that ran, 1 rejected (plan)\n")


def test_what_would_simulate_the_devices_is_said_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.execution.availability.cuda_is_visible", lambda: False)
    _, out, _ = run("resident.pte", "two.pte", "chain.pte")

    assert out.count("--device-map") == 1
    assert "\nnote: use `--device-map cuda:0=sim,cuda:1=sim` to simulate cuda:0 and cuda:1\n" in out
    assert out.count("  not run    replay, device: no CUDA device\n") == 2
    assert "note: " not in run("chain.pte")[1]


def test_other_advice_names_no_device_map(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    obstacle = Obstacle("torch is missing", "install torch")
    monkeypatch.setattr("etdev.verification.standalone_replay.replay_obstacle", lambda *_: obstacle)
    _, out, _ = run("resident.pte", "--device-map", "cuda:0=sim,cuda:1=sim")

    assert "--device-map" not in out
    assert out.count("help: install torch") == 1


def test_a_device_that_no_file_has_is_said(run: Run) -> None:
    _, out, _ = run("resident.pte", "two.pte", "--device-map", "cuda:0=sim,cuda:1=sim,cuda:5=sim")

    assert "\nnote: no program uses cuda:5 of the device map; used devices: cuda:0 and cuda:1\n" in out
    assert "note: " not in run("resident.pte", "two.pte", "--device-map", "cuda:0=sim,cuda:1=sim")[1]


@pytest.mark.parametrize(
    ("runtime", "reason"),
    [
        (
            None,
            "the package 'executorch' is not installed",
        ),
        (NoRuntime(), "ExecuTorch's runtime cannot start: no such library"),
    ],
)
def test_without_a_runtime(run: Run, monkeypatch: pytest.MonkeyPatch, runtime: object | None, reason: str) -> None:
    installed(monkeypatch, runtime)
    code, out, _ = run("chain.pte", "--output", "json")

    assert (code, checks(out)["kernels"]) == (0, ("not run", reason))
    assert run("chain.pte", "--require", "kernels")[0] == 3


def test_a_required_check_that_cannot_run(run: Run) -> None:
    code, out, _ = run("chain.pte", "--require", "runtime", "--output", "md=found.md")

    assert code == 3
    assert "  runtime    not run  required, but this check needs the config that the file was built from\n" in out
    assert out.endswith("1 file, 1 without a required check (runtime)\n")
    text = Path("found.md").read_text()
    assert text.startswith("### etdev: 1 file, 1 without a required check (runtime)\n")
    assert "| `chain.pte` | **without a required check (runtime)** | " in text
    assert "good" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.pte"], "error: nowhere.pte: there is no such file\n"),
        (["folder.pte"], "error: folder.pte: cannot read the file: this is a folder\n"),
        (
            ["chain.pte", "--output", "json=./chain.pte"],
            "error: --output: 'chain.pte' is a file that the command itself",
        ),
        (
            ["nowhere"],
            "error: 'nowhere' is not a file, and cannot be a target because this folder has no config\nhelp: use",
        ),
        (
            ["chain.pte", "cpu"],
            "error: 'chain.pte' is a file, but 'cpu' is not a file\nhelp: verify files and targets separately",
        ),
        (
            ["chain.pte", "-c", "a.toml"],
            "error: --config: 'chain.pte' is a file, and files are verified without a config\n",
        ),
        (["chain.pte", "-j", "2"], "error: --jobs: 'chain.pte' is a file, and files are verified without a config\n"),
        (["chain.pte", "--set", "a=1"], "error: --set: 'chain.pte' is a file"),
        (["chain.pte", "-p", "ci"], "error: --profile: 'chain.pte' is a file"),
        (["chain.pte", "--require", "x"], "error: there is no check 'x'"),
        (
            ["chain.pte", "--device-map", "gpu=sim"],
            "error: --device-map: 'gpu' is not a device\nhelp: use one of cpu, cuda:0",
        ),
        (
            ["chain.pte", "--device-map", "cuda:0=gpu"],
            "error: --device-map: cuda:0 cannot be mapped to 'gpu'\nhelp: map it to `sim`",
        ),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], said: str) -> None:
    Path("folder.pte").mkdir()
    os.mkfifo("pipe.pte")
    code, out, err = run(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith(said)


def test_the_file_may_have_any_name(run: Run) -> None:
    Path("chain.pte").rename("chain.pte.rejected")

    assert run("chain.pte.rejected")[0] == 0


@pytest.mark.integration
def test_with_the_wheel_itself(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("executorch", reason="executorch brings the runtime")
    write(chain(3), tmp_path / "chain.pte")

    assert app.run(["verify", str(tmp_path / "chain.pte"), "--require", "kernels"]) == 0
    assert "kernels    passed   3 operators in the wheel's runtime" in capfd.readouterr().out
