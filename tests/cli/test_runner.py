"""``etdev runner`` on the command line, and ``runner = true`` of a target. 11."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import etdev
from etdev.cli import app
from etdev.errors import MissingRequirementError, UsageError
from etdev.program import write
from etdev.runner import MANIFEST
from etdev.runtime.native.toolchain import Missing
from program.hand import unbounded
from support.files import chain
from support.native import native_host
from support.on_devices import two_devices
from support.projects import LINEAR, LINEAR_CONFIG, write_project

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line beside ``m.pte``: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    write(chain(2), "m.pte")

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no CMake on this machine."""
    missing = Missing("no CMake of version 3.28 or later was found", 'pip install "etdev[native]"')
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    monkeypatch.setattr("etdev.runtime.native.toolchain.find_toolchain", lambda: missing)
    monkeypatch.setattr("etdev.runtime.native.executable.find_toolchain", lambda: missing)


def test_what_is_refused_is_refused_before_anything_is_measured(run: Run, no_tools: None) -> None:
    write(two_devices(), "two.pte")
    code, _, err = run("runner", "project", "two.pte")
    assert code == 4
    assert "error: two.pte: " in err
    assert "help: " in err
    write(unbounded(), "free.pte")
    code, _, err = run("runner", "project", "free.pte")
    assert (code, "sizes without a maximum" in err) == (4, True)
    assert not Path("project").exists()


def test_without_tools(run: Run, no_tools: None) -> None:
    code, _, err = run("runner", "project", "m.pte")
    assert code == 3
    assert "no CMake of version 3.28 or later was found" in err
    assert 'help: pip install "etdev[native]"' in err
    assert not Path("project").exists()


def test_a_build_says_so_before_anything_slow(tmp_path: Path, no_tools: None) -> None:
    config = write_project(tmp_path, f"{LINEAR_CONFIG}[targets.cpu]\nrunner = true\n", model=LINEAR)
    with pytest.raises(MissingRequirementError, match="the runner cannot be written: no CMake") as caught:
        etdev.build(config)
    assert caught.value.where is not None
    assert "targets.cpu.runner" in caught.value.where


def test_which_program(run: Run) -> None:
    assert "this folder has no config" in run("runner", "project", "nothing")[2]
    targets = "[targets.one]\n[targets.two]\n"
    write_project(Path(), LINEAR_CONFIG + targets, model=LINEAR)
    code, _, err = run("runner", "project")
    assert (code, "the config has several targets: one, two" in err) == (2, True)
    assert "the target 'one' was not built" in run("runner", "project", "one")[2]


def test_a_target_after_one_that_is_not_built(run: Run, no_tools: None) -> None:
    write_project(Path(), f"{LINEAR_CONFIG}[targets.one]\n[targets.two]\n", model=LINEAR)
    place = Path("build", "two", "tiny.pte")
    place.parent.mkdir(parents=True)
    write(chain(2), place)
    code, _, err = run("runner", "project", "two")
    assert (code, "no CMake of version 3.28 or later was found" in err) == (3, True), err


@pytest.mark.integration
def test_a_file(run: Run) -> None:
    native_host()
    code, out, err = run("runner", "project", "m.pte", "--embed")
    assert (code, out) == (0, "")
    assert re.search(r"\n[\d,]+ bytes of static memory: 48 planned, [\d,]+ for methods, [\d,]+ temporary", err)
    assert (Path("project") / "file_0.c").exists()
    assert run("runner", "project", "m.pte", "--embed")[2].splitlines()[0] == "Unchanged: project"
    assert run("runner", "project", "m.pte", "--embed", "-q") == (0, "", "")
    (Path("project") / "main.cc").write_text("mine")
    code, _, err = run("runner", "project", "m.pte")
    assert (code, "would overwrite main.cc, which etdev wrote and someone changed" in err) == (2, True)


@pytest.mark.integration
def test_a_target_writes_its_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native_host()
    wanted = f"{LINEAR_CONFIG}[targets.cpu]\nmemory.alignment = 64\nrunner = true\n"
    config = write_project(tmp_path, wanted, model=LINEAR)
    assert etdev.build(config).ok
    folder = tmp_path / "build" / "cpu" / "runner"
    header = (folder / "tiny_memory.h").read_text()
    assert "target cpu" in header
    assert "kArenaAlignment = 64;" in header
    found = {path.name: path.read_bytes() for path in folder.iterdir()}

    # The next build takes the target from the cache, and has nothing to measure.
    with monkeypatch.context() as patch:
        patch.setattr("etdev.runtime.native.measure_memory", None)
        assert etdev.build(config).ok
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == found

    # What is missing comes back, and what the user changed is not replaced.
    (folder / "main.cc").unlink()
    assert etdev.build(config).ok
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == found
    (folder / "main.cc").write_text("mine")
    with pytest.raises(UsageError, match=r"would overwrite main\.cc"):
        etdev.build(config)
    (folder / "main.cc").write_bytes(found["main.cc"])

    assert etdev.build(config, overrides=['targets.cpu.runner="embed"']).ok
    assert (folder / "file_0.c").is_file()
    assert not (folder / "tiny.pte").exists()

    write_project(tmp_path, f"{LINEAR_CONFIG}[targets.cpu]\nmemory.alignment = 64\n", model=LINEAR)
    assert etdev.build(config).ok
    assert not folder.exists()


@pytest.mark.integration
def test_the_readme_is_enough(run: Run, tmp_path: Path) -> None:
    """Its commands, less those that install packages, with the packages of this environment."""
    tools = native_host()
    assert tools
    assert run("runner", "project", "m.pte", "-q")[0] == 0
    folder = tmp_path / "project"
    readme = (folder / "README.md").read_text()
    part = readme.split("## Build and run")[1].split("## Files")[0]
    commands = [line.strip() for line in part.splitlines() if line.startswith("    ")]
    assert commands[0] == "python3 -m venv env"
    assert [line for line in commands if " install " in line] == commands[1:3]
    from etdev.runtime.native.toolchain import Toolchain, find_toolchain

    found = find_toolchain()
    assert isinstance(found, Toolchain)
    (folder / "env" / "lib" / "python3").mkdir(parents=True)
    (folder / "env" / "lib" / "python3" / "site-packages").symlink_to(found.package.parent)
    (folder / "env" / "bin").mkdir()
    (folder / "env" / "bin" / "cmake").symlink_to(found.cmake)
    environment = {**os.environ}
    if found.ninja is None:
        commands = [line.replace("-G Ninja ", "") for line in commands]
    else:
        environment["PATH"] = f"{found.ninja.parent}{os.pathsep}{environment['PATH']}"
    (folder / "input0.bin").write_bytes(bytes(16))
    for command in commands[3:]:
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert (folder / "out" / "0.forward.0.bin").stat().st_size == 16
    assert MANIFEST in readme
