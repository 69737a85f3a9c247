"""Targets are given the same way to every command: as arguments, or with ``-t``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.support import MINIMAL
from etdev.cli import app
from etdev.errors import EtdevError
from etdev.pipeline import verify_target as existing
from etdev.pipeline.builder import build
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.program import write
from support.files import chain

CONFIG = (
    f"project.name = 'net'\n{MINIMAL}[targets.int8]\n[targets.int4]\n[deploy.phone]\ntarget = 'cpu'\nuri = 'file:out'\n"
)


@dataclass
class CallSpec:
    """The targets that a command was called with."""

    targets: Sequence[str] = ()


class _StopError(EtdevError):
    """Ends the command where its work would begin."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "etdev.toml").write_text(CONFIG)
    for target, length in (("cpu", 1), ("int8", 2)):
        (tmp_path / "build" / target).mkdir(parents=True)
        write(chain(length), tmp_path / "build" / target / "net.pte")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> CallSpec:
    found = CallSpec()

    def stop(project: Project, options: BuildOptions) -> Any:
        found.targets = options.targets
        raise _StopError("stop")

    monkeypatch.setattr(build, "build_project", stop)
    monkeypatch.setattr(existing, "verify_project", stop)
    return found


@pytest.mark.parametrize("command", ["build", "verify"])
@pytest.mark.parametrize(
    ("arguments", "targets"),
    [
        (["int8", "cpu"], ("int8", "cpu")),
        (["-t", "int8", "--target", "cpu"], ("int8", "cpu")),
        (["int*", "-t", "cpu"], ("int*", "cpu")),
        ([], ()),
    ],
)
def test_any_number_of_targets(
    command: str, arguments: list[str], targets: tuple[str, ...], folder: Path, asked: CallSpec
) -> None:
    assert app.run([command, *arguments]) == 4
    assert tuple(asked.targets) == targets


@pytest.mark.parametrize("arguments", [["cpu"], ["-t", "cpu"]])
def test_cache_why(arguments: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run(["cache", "why", *arguments]) == 0
    assert {line.partition(":")[0] for line in capfd.readouterr().out.splitlines()} == {"cpu"}


BENCH = ["bench", "--random", "--runtime", "replay", "--calls", "1"]
ONE_TARGET = [
    ["inspect"],
    ["report"],
    ["diff", "build/int8/net.pte"],
    ["run", "--random", "--runtime", "replay"],
    ["bench", "--random", "--runtime", "replay", "--calls", "1", "--workers", "1", "--transport", "thread"],
]
"""Commands that take one target, with the arguments before it."""


@pytest.mark.parametrize("given", [["cpu"], ["-t", "cpu"], ["c*"]])
@pytest.mark.parametrize("command", ONE_TARGET, ids=lambda command: command[0])
def test_one_target(command: list[str], given: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run([*command, *given]) == 0
    out, err = capfd.readouterr()
    assert "build/cpu/net" in out + err


@pytest.mark.parametrize("command", ONE_TARGET, ids=lambda command: command[0])
def test_one_target_with_a_profile(command: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A profile with its own output folder could be built, but only its file could be named afterwards."""
    with (folder / "etdev.toml").open("a") as file:
        file.write("[profiles.split]\nproject.out = 'build/split'\n")
    assert app.run([*command, "-p", "split", "cpu"]) == 2
    err = capfd.readouterr().err
    assert "the target 'cpu' was not built: there is no " in err
    assert "help: run `etdev build -p split cpu`" in err

    (folder / "build" / "split" / "cpu").mkdir(parents=True)
    write(chain(3), folder / "build" / "split" / "cpu" / "net.pte")
    assert app.run([*command, "-p", "split", "cpu"]) == 0
    out, err = capfd.readouterr()
    assert "build/split/cpu/net" in out + err


@pytest.mark.parametrize(
    "command", [["inspect"], ["diff", "build/cpu/net.pte"], [*BENCH, "--against", "build/cpu/net.pte"]]
)
def test_a_profile_is_not_for_files(command: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (folder / "etdev.toml").open("a") as file:
        file.write("[profiles.split]\n")
    for profile in ("split", "none of the config"):
        assert app.run([*command, "build/cpu/net.pte", "-p", profile]) == 2
        assert "help: remove `--profile`, or name a target\n" in capfd.readouterr().err
    (folder / "etdev.toml").unlink()
    assert app.run([*command, "build/cpu/net.pte", "-p", "split"]) == 2
    assert "help: remove `--profile`, or name a target\n" in capfd.readouterr().err


def test_two_targets_of_a_diff(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for arguments in (["cpu", "int8"], ["-t", "cpu", "-t", "int8"], ["cpu", "-t", "int8"]):
        assert app.run(["diff", *arguments]) == 0
        assert "build/cpu/net.pte and build/int8/net.pte differ" in capfd.readouterr().out


def test_a_target_that_has_the_name_of_a_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(chain(3), folder / "cpu")
    assert app.run(["inspect", "-t", "cpu"]) == 0
    assert "build/cpu/net.pte" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect"], "Missing argument 'FILE|TARGET'."),
        (["inspect", "cpu", "-t", "int8"], "'cpu' and --target int8 both select a program"),
        (["inspect", "-t", "int*"], "'int*' matches int8, int4, but this command takes one target"),
        (["inspect", "-t", "a.pte"], "there is no target 'a.pte'"),
        (["diff", "cpu"], "etdev diff compares two programs, but 1 was given"),
        (["diff", "cpu", "int8", "-t", "int4"], "etdev diff compares two programs, but 3 were given"),
        (["build", "etdev.toml"], "no target matches 'etdev.toml'\nhelp: use `-c etdev.toml` if this is a config"),
        (["build", "int9"], "no target matches 'int9'\nhelp: did you mean 'int8'? targets: cpu, int8, int4"),
        (["deploy", "-t", "int8"], "the target 'int8' has 0 deployments"),
        (["deploy", "phone", "-t", "cpu"], "'phone' and --target cpu both select a deployment"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run(arguments) == 2
    assert message in capfd.readouterr().err


def test_the_only_deployment_of_a_target(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert app.run(["deploy", "--list", "-t", "cpu"]) == 0
    assert capfd.readouterr().out.startswith("phone  file:")
