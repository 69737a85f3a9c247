"""``etdev build`` on the command line: exit codes, what goes to which stream, and what is shown meanwhile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.pipeline.results.result import BuildResult
from support.commands import run_etdev
from support.projects import LINEAR, LINEAR_CONFIG, SAMPLES, write_project
from support.terminal import on_a_terminal

TARGETS = """
    samples = "data:samples"
    [targets.cpu]
    [targets.small]
    budget.file = "1KiB"
    [profiles.strict.targets.cpu.verify]
    require = ["device"]
"""
LOUD = """
    import ctypes, os, warnings
    print("loud: Python")
    os.write(1, b"loud: C++\\n")
    ctypes.CDLL(None).puts(b"loud: C")
    os.system("echo loud: a program")
    warnings.warn("loud: warning")
"""
"""Prints by every way to standard output, which is for the result alone."""

Ending = tuple[int, str, str]
Run = Callable[..., Ending]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_project(tmp_path, LINEAR_CONFIG + TARGETS, model=LINEAR, data=SAMPLES)
    return tmp_path


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in the project's folder, in this process: exit code, stdout, stderr."""
    monkeypatch.chdir(project)

    def run(*arguments: str) -> Ending:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return run


def test_a_build_shows_stages_and_the_result(run: Run, project: Path) -> None:
    code, out, err = run("build", "-t", "cpu")

    assert code == 0
    assert out.startswith("cpu  build/cpu/tiny.pte  ")
    assert out.endswith("\ntiny: 1 target, 1 good\n")
    first, *lines = err.splitlines()
    assert first == "building cpu", "before anything slow"
    stages = [re.fullmatch(r"cpu: (\w+) \d[\d.]* \w+( \d+ s)?", line) for line in lines]
    ended = [match[1] for match in stages if match]
    assert ended == ["load", "export", "lower", "emit", "link", "write", "verify"]
    # Stages that may take minutes have a line when they begin, too.
    assert [line for line, match in zip(lines, stages, strict=True) if not match] == ["cpu: lower", "cpu: verify"]
    assert lines.index("cpu: lower") == ended.index("lower")
    assert "\x1b" not in out + err
    assert (project / "build" / "cpu" / "tiny.pte").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        ((), 1, "tiny: 2 targets, 1 good, 1 missed a gate (budget)"),
        pytest.param(("-t", "s*"), 1, "tiny: 1 target, 1 missed a gate (budget)", marks=pytest.mark.integration),
        pytest.param(("-t", "cpu", "--require", "runtime"), 0, "tiny: 1 target, 1 good", marks=pytest.mark.integration),
        (("-t", "cpu", "--require", "device"), 3, "tiny: 1 target, 1 without a required check (device)"),
        pytest.param(
            ("-t", "cpu", "-p", "strict"),
            3,
            "tiny: 1 target, 1 without a required check (device)",
            marks=pytest.mark.integration,
        ),
        (("-t", "cpu", "--no-verify"), 0, "tiny: 1 target, 1 built but not run"),
        pytest.param(("--no-verify",), 0, "tiny: 2 targets, all built but not run", marks=pytest.mark.integration),
    ],
)
@pytest.mark.sampled(2)
def test_exit_codes(run: Run, arguments: tuple[str, ...], code: int, verdict: str) -> None:
    found, out, err = run("build", "-q", *arguments)

    assert (found, err) == (code, "")
    assert out.splitlines()[-1] == verdict


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("-t", "gpu"), 2, "error: no target matches 'gpu'\nhelp: did you mean 'cpu'? targets: cpu, small\n"),
        (("--require", "runtme"), 2, "error: there is no check 'runtme'\nhelp: checks: bytes, plan,"),
        (
            ("--output", "yaml"),
            2,
            "error: --output: unknown format 'yaml'\nhelp: use one of: text, json, github, sarif, md, html\n",
        ),
        (("-p", "ci"), 2, "error: --profile ci: there is no profile `ci`\nhelp: the profiles are: strict\n"),
        (
            ("--set", 'methods.forward.samples="data:sample"'),
            2,
            "help: did you mean 'samples'?\n",
        ),
        (("--set", "model.kwargs={ width = 3 }"), 2, "'model:Linear' does not accept the argument 'width'\n"),
        (("--set", 'model.weights="lost.safetensors"'), 2, "there is no file "),
        (
            ("--set", "methods.backward={ inputs = [] }"),
            2,
            "`methods.backward`: no config file defines this method\nhelp: methods here: forward; ",
        ),
        (("--set", 'project.out="model.py"'), 4, "cannot write the file: a part of the path is a file, not a folder\n"),
    ],
)
def test_errors_are_one_sentence_on_stderr(run: Run, arguments: tuple[str, ...], code: int, said: str) -> None:
    found, out, err = run("build", "-q", *arguments)

    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert said in err
    assert "Traceback" not in err


def test_what_is_built_in_spite_of_an_error_is_named(run: Run) -> None:
    failing = ("--set", 'targets.small.memory.planner="data:score"')
    code, out, err = run("build", "-q", "--no-verify", *failing)
    assert (code, out) == (4, "")
    first, second, *_ = err.splitlines()
    assert first == "built before the error: cpu; use `--keep-going` to see their results and to build the others"
    assert second.startswith("error: ")
    _, _, err = run("build", "-q", "-t", "none")
    assert err.startswith("error: no target matches"), "what an earlier build made is not meant"


def test_v_shows_the_traceback(run: Run, project: Path) -> None:
    (project / "model.py").write_text("raise ValueError('no model')\n")
    code, _, quiet = run("build", "-q")
    assert code == 4
    assert "importing 'model' failed: ValueError: no model (model.py:1, in <module>)" in quiet
    assert "Traceback" not in quiet

    code, _, loud = run("build", "-q", "-v")
    assert code == 4
    assert "Traceback (most recent call last)" in loud
    assert "etdev/cli" not in loud, "frames of etdev say nothing about the model"
    assert loud.splitlines()[-1].startswith("error: ")


@pytest.mark.integration
@pytest.mark.nightly
def test_files_have_all_of_it(run: Run, project: Path) -> None:
    files = ("--output", "json=found.json", "--output", "text=found.txt", "--output", "html=found.html")
    code, out, err = run("build", "-q", "--output", "json", *files)

    result = BuildResult.model_validate_json(out)
    assert code == result.exit_code == 1
    assert result == BuildResult.model_validate_json((project / "found.json").read_text())
    assert (project / "found.txt").read_text().endswith("1 missed a gate (budget)\n")
    page = (project / "found.html").read_text()
    assert all(f'"name":"{target.name}"' in page and f'"sha256":"{target.sha256}"' in page for target in result.targets)
    for target in result.targets:
        report = json.loads((project / "build" / target.name / "report.json").read_text())
        assert report["targets"] == [json.loads(target.model_dump_json())]
    assert err == ""


@pytest.mark.parametrize(
    "own", ["etdev.toml", "build/results.json", "build/cpu/tiny.object.json", "build/cpu/report.json"]
)
def test_a_report_never_takes_the_place_of_what_a_build_reads_or_writes(own: str, run: Run, project: Path) -> None:
    config = (project / "etdev.toml").read_text()
    code, _, err = run("build", "--output", f"json={own}")

    assert code == 2
    assert err.startswith(f"error: --output: '{own}' is a file that the command itself reads or writes\n")
    assert (project / "etdev.toml").read_text() == config


def test_text_moves_to_stderr_when_json_has_stdout(run: Run) -> None:
    code, out, err = run("build", "-q", "-t", "cpu", "--output", "json", "--output", "text")

    assert (code, json.loads(out)["project"]) == (0, "tiny")
    assert err.endswith("tiny: 1 target, 1 good\n")


@pytest.mark.integration
@pytest.mark.nightly
def test_json_is_alone_on_stdout_whoever_prints(project: Path) -> None:
    """User code, libraries written in C and programs that they start all wrote into the JSON."""
    (project / "model.py").write_text((project / "model.py").read_text() + dedented(LOUD))
    done = run_etdev("build", "-q", "-t", "cpu", "--output", "json", folder=project)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["targets"][0]["status"] == "built"
    assert sorted(line for line in done.stderr.splitlines() if line.startswith("loud")) == [
        "loud: C",
        "loud: C++",
        "loud: Python",
        "loud: a program",
    ]
    assert "loud: warning" not in done.stderr


def dedented(text: str) -> str:
    return "\n" + "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"


@pytest.mark.integration
@pytest.mark.nightly
def test_the_project_may_be_elsewhere(project: Path, tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    """Paths are those of the config, what is shown is relative to where the user is."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    os.chdir(elsewhere)
    code, out, _ = run("build", "-t", "cpu", "-c", str(project / "etdev.toml"), "--set", "project.out='out/deep'")

    assert code == 0
    assert out.startswith(f"cpu  {project}/out/deep/cpu/tiny.pte  ")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.integration
@pytest.mark.nightly
def test_a_terminal_sees_what_is_being_done(project: Path) -> None:
    """A line that moves while a stage runs, and one line per target that stays."""
    code, shown = on_a_terminal(project, "build", "-t", "cpu", "--no-verify")

    assert code == 0, shown
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    stages = ("load", "export", "lower", "emit", "link", "write")
    assert re.search("cpu  " + ", ".join(rf"{stage} \d+(\.\d)? s" for stage in stages), plain)
    assert "tiny: 1 target, 1 built but not run" in plain


@pytest.mark.slow
@pytest.mark.nightly
def test_a_terminal_without_colour(project: Path) -> None:
    code, shown = on_a_terminal(project, "build", "-t", "cpu", "--no-verify", env={"NO_COLOR": "1"})

    assert code == 0, shown
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)


def test_a_dry_run_writes_nothing(run: Run, project: Path) -> None:
    code, out, _ = run("build", "--dry-run")

    assert code == 0
    assert out.splitlines() == [
        "forward: x: float32 [2, 32] -> float32 [2, 32] (largest sizes)",
        "  called with the declared sizes; computed on the first sample",
        "dry run: these calls found no obstacle to a build of cpu, small",
        "not tried: export, quantization, lowering and verification, which may fail although these calls succeeded",
    ]
    assert not (project / "build").exists()


def test_without_torch_the_remedy_is_named(project: Path) -> None:
    """Judging point 3: exit 3, and what to install."""
    script = (
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else find(name, *rest)\n"
        "from etdev.cli.app import run\n"
        "sys.exit(run(['build']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (3, "")
    assert 'pip install "etdev[build]"' in done.stderr
