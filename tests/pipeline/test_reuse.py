"""A build exports again only if something before the link has changed (judging point 7 of objects and linking; E2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import LoadError
from etdev.pipeline.result import BuildResult
from support.projects import write_project

CONFIG = """
version = 1
[project]
name = "tiny"
[model]
entry = "model:make"
kwargs = { width = 8 }
inputs = ["words.txt"]
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [2, 8] }]
[targets.cpu]
"""
MODEL = """
import torch
from helper import scale

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(width, 8)

    def forward(self, x):
        return self.linear(x).relu().view(-1, 4) * scale + self.linear(x).sum()

def make(width):
    return Net(width)
"""
RELINKED = ["load", "link", "write"]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildResult]:
    """A project that was built once."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "words.txt").write_text("a b c")
    config = write_project(folder, CONFIG, model=MODEL, helper="scale = 2.0\n")
    return config, etdev.build(config, verify=False)


@pytest.fixture
def config(first: tuple[Path, BuildResult], tmp_path: Path) -> Path:
    """A copy of that project with its files, wherever it lies."""
    for path in first[0].parent.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            place = tmp_path / path.relative_to(first[0].parent)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return tmp_path / "etdev.toml"


def stages(config: Path, *overrides: str, **settings: bool) -> list[str]:
    """What a build without verification does."""
    return list(etdev.build(config, overrides=list(overrides), **({"verify": False} | settings))["cpu"].seconds)


@pytest.mark.parametrize(
    "setting",
    [
        'targets.cpu.memory.planner="naive"',
        "targets.cpu.memory.alignment=64",
        "targets.cpu.elide.views=false",
        'targets.cpu.inplace.ops="none"',
        'targets.cpu.io.forward.inputs="caller"',
        "targets.cpu.budget.file=1000000",
        "targets.cpu.verify.atol=1.0",
    ],
)
def test_what_the_linker_reads_exports_nothing(config: Path, setting: str) -> None:
    assert stages(config, setting) == ["link", "write"]


def test_another_planner_gives_another_plan_of_the_same_program(first: tuple[Path, BuildResult], config: Path) -> None:
    before = first[1]["cpu"]
    after = etdev.build(config, overrides=['targets.cpu.memory.planner="naive"'], verify=False)["cpu"]

    assert (before.planner, after.planner) == ("best", "naive")
    assert after.memory["cpu"] > before.memory["cpu"]
    assert after.methods[0].operators == before.methods[0].operators
    assert any("linked again" in note for note in after.notes)


def test_an_unchanged_project_gives_the_same_file(first: tuple[Path, BuildResult], config: Path) -> None:
    again = etdev.build(config, verify=False)["cpu"]
    assert list(again.seconds) == ["link", "write"]
    assert again.sha256 == first[1]["cpu"].sha256


def test_what_is_linked_again_is_verified_like_a_new_one(config: Path, one_runtime: None) -> None:
    target = etdev.build(config, overrides=['targets.cpu.memory.planner="greedy"'])["cpu"]
    assert list(target.seconds) == ["load", "link", "write", "verify"]
    ran = {rung.rung for rung in target.rungs if rung.status == "passed"}
    assert ran == {"bytes", "plan", "placement", "kernels", "runtime", "replay"}


def _edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return edit


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_edit("model.py", "relu()", "sigmoid()"), id="the model's code"),
        pytest.param(_edit("helper.py", "2.0", "3.0"), id="a module that it imports"),
        pytest.param(_edit("words.txt", "c", "d"), id="a declared input"),
        pytest.param(_edit("etdev.toml", "[2, 8]", "[4, 8]"), id="a shape"),
        pytest.param(_edit("etdev.toml", "[targets.cpu]", "[constants]\nn = 1\n[targets.cpu]"), id="a constant method"),
        pytest.param(lambda folder: (folder / "build/cpu/tiny.object.pte").write_bytes(b"ET12"), id="a broken object"),
        pytest.param(lambda folder: (folder / "build/cpu/tiny.object.json").write_text("{}"), id="a broken sidecar"),
        pytest.param(lambda folder: (folder / "build/cpu/tiny.object.pte").unlink(), id="no object"),
    ],
)
def test_what_comes_before_the_link_exports_again(config: Path, change: Callable[[Path], None]) -> None:
    change(config.parent)
    assert "export" in stages(config)


def test_a_declared_input_that_is_gone_is_told(config: Path) -> None:
    (config.parent / "words.txt").unlink()
    with pytest.raises(LoadError) as caught:
        etdev.build(config, verify=False)
    assert caught.value.message == f"there is no file {config.parent / 'words.txt'}"
    assert caught.value.where == f"{config}:7:11 (model.inputs[0])"


def test_versions_count(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.pipeline.objects.reuse.versions", lambda: {"torch": "9.9"})
    assert "export" in stages(config)


def test_no_cache_exports_again(config: Path) -> None:
    assert "export" in stages(config, cache=False)


def test_a_model_that_cannot_be_loaded_any_more_is_told(config: Path, one_runtime: None) -> None:
    """What is verified against has to load, even if nothing is exported."""
    (config.parent / "model.py").unlink()
    with pytest.raises(LoadError, match="there is no module 'model'"):
        etdev.build(config)
