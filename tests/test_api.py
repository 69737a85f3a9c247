"""``import etdev``: the commands as functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import etdev
from etdev.errors import ConfigError, EtdevError
from etdev.pipeline.project.progress import Silent
from support.projects import LINEAR, LINEAR_CONFIG, write_project

CONFIG = (
    LINEAR_CONFIG
    + """
    [targets.cpu]
    [targets.cpu-small]
    budget.file = "1KiB"
    [targets.other]
    [profiles.roomy.targets.cpu-small.budget]
    file = "1MiB"
"""
)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return write_project(tmp_path, CONFIG, model=LINEAR)


def test_importing_etdev_imports_nothing_else() -> None:
    script = "import sys, etdev; print(sorted({'torch', 'pydantic', 'typer', 'executorch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize("module", ["errors", "program"])
def test_modules_are_there_when_they_are_asked_for(module: str) -> None:
    script = f"import etdev; print(etdev.{module}.__name__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"etdev.{module}\n", "")


def test_only_what_is_promised() -> None:
    commands = {"build", "deploy", "diff", "inspect", "relink", "report", "verify"}
    assert set(etdev.__all__) == commands | {
        "BuildResult",
        "DeployResult",
        "ProgramDiff",
        "ProgramInfo",
        "RelinkResult",
    }
    assert all(callable(getattr(etdev, name)) for name in etdev.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'bild'"):
        etdev.bild  # noqa: B018


def test_a_build(config: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The config of the current folder, chosen targets, and not a word."""
    monkeypatch.chdir(config.parent)
    result = etdev.build(targets=["cpu*"], environ={})

    assert isinstance(result, etdev.BuildResult)
    assert [target.name for target in result.targets] == ["cpu", "cpu-small"]
    assert (result["cpu"].status, result["cpu-small"].status, result.exit_code) == ("built", "gate failed", 1)
    assert result.path("cpu").exists()
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize(
    ("settings", "ok"),
    [
        ({"profile": "roomy"}, True),
        ({"overrides": ["targets.cpu-small.budget.file=8192"]}, True),
        ({"environ": {"ETDEV__TARGETS__CPU_SMALL__BUDGET__FILE": "8192"}}, True),
        ({}, False),
    ],
)
@pytest.mark.sampled
def test_the_layers_of_the_config(config: Path, settings: dict[str, object], ok: bool) -> None:
    result = etdev.build(config, targets="cpu-small", **({"environ": {}} | settings))  # type: ignore[arg-type]

    assert result.ok == ok
    assert result.profile == settings.get("profile")


@pytest.mark.nightly
def test_progress_is_told(config: Path) -> None:
    class Told(Silent):
        def __init__(self) -> None:
            self.stages: list[str] = []

        def started(self, target: str, stage: str) -> None:
            self.stages.append(f"{target} {stage}")

    told = Told()
    etdev.build(config, targets=["cpu", "other"], progress=told)

    assert told.stages == [
        *(f"cpu {stage}" for stage in ("load", "export", "lower", "emit", "link", "write", "verify")),
        *(f"other {stage}" for stage in ("lower", "emit", "link", "write", "verify")),  # One export serves both.
    ]


def test_errors_carry_code_place_and_remedy(config: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        etdev.build(config, overrides=["targets.cpu.verfy.atol=1"])
    assert isinstance(caught.value, EtdevError)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    with pytest.raises(ConfigError):
        etdev.build(config.parent / "nowhere.toml")
