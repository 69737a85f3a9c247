"""Packages that a config needs and that are missing or broken here: exit 3, and what to install (judging point 3)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.errors import MissingRequirementError
from etdev.pipeline.builder.build import build_project
from etdev.pipeline.dry_run import dry_run
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.verify_target import verify_project
from support.commands import break_package, run_etdev
from support.projects import FOUR_TARGETS, LINEAR, LINEAR_CONFIG, SAMPLES, write_project
from support.stages import Failure, check_failure

pytestmark = pytest.mark.integration

HF_CONFIG = """
    version = 1
    [model]
    hf = "./net"
    [methods.forward]
    inputs = [{ name = "x", dtype = "int64", shape = [1, 8] }]
    [targets.cpu]
"""
WEIGHTS_CONFIG = LINEAR_CONFIG.replace("[methods", 'weights = "w.safetensors"\n    [methods') + "[targets.cpu]\n"
EXTRA = 'pip install "etdev[build]"'
CASES = {
    "torch": (LINEAR_CONFIG + "[targets.cpu]\n", "cpu", None, EXTRA),
    "executorch": (LINEAR_CONFIG + "[targets.cpu]\n", "cpu", None, EXTRA),
    "safetensors": (WEIGHTS_CONFIG, "cpu", "model.weights", EXTRA),
    "transformers": (HF_CONFIG, "cpu", "model.hf", 'pip install "etdev[hf]"'),
    "torchao": (FOUR_TARGETS, "int8", "quantize.int8", EXTRA),
}
"""By missing package: the config, the target, the key that asks for it, and the remedy."""

COMMANDS: dict[str, Callable[[Project, BuildOptions], object]] = {
    "building": build_project,
    "dry run": dry_run,
    "verifying": verify_project,
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("package", CASES)
def test_a_missing_package(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, package: str, command: str
) -> None:
    config, target, key, remedy = CASES[package]
    made = project(config, model="raise AssertionError('slow things come later')")
    artifact = made.artifact(target)
    artifact.parent.mkdir(parents=True)
    artifact.write_bytes(b"not looked into")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    doing = "verifying" if command == "verifying" else "building"
    check_failure(
        lambda: COMMANDS[command](made, BuildOptions(targets=(target,))),
        Failure(
            MissingRequirementError,
            made.where(*key.split(".")) if key is not None else None,
            f"{doing} is not possible here: the package {package!r} is not installed",
            remedy,
        ),
    )


def test_a_target_that_needs_none_of_it(project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    """What only other targets need does not matter."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    made = project(FOUR_TARGETS, model=LINEAR, data=SAMPLES)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torchao" else find(name))
    assert dry_run(made, BuildOptions(targets=("portable",))).targets == ("portable",)


@pytest.mark.parametrize(
    ("package", "target", "arguments"),
    [
        pytest.param("torch", "portable", ["--dry-run"], id="torch, dry run"),
        pytest.param("torch", "portable", [], id="torch"),
        pytest.param("executorch", "portable", ["--no-verify"], id="executorch"),
        pytest.param("torchao", "w4", ["--no-verify"], id="torchao, before export"),
        pytest.param("executorch", "int8", ["--no-verify"], id="executorch, quantizing", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled(1)
def test_a_broken_package(tmp_path: Path, package: str, target: str, arguments: list[str]) -> None:
    """A folder of the name comes first in the module search and raises, as an installation without its libraries."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    write_project(tmp_path, FOUR_TARGETS, model=LINEAR, data=SAMPLES)
    broken = break_package(tmp_path / "broken", package)
    done = run_etdev("build", "-q", "-t", target, *arguments, folder=tmp_path, env=broken)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"the package {package!r} is installed but cannot be imported: ImportError: libtorch_cpu.so" in done.stderr
    assert 'pip install --force-reinstall "etdev[build]"' in done.stderr
    assert "Traceback" not in done.stderr
