"""The methods of a target in several processes: the same file as in turn, and what becomes of it if one fails (E2)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.cli.rendering.build_result import render_result
from etdev.cli.rendering.detail import Detail
from etdev.cli.reports.findings import of_result
from etdev.errors import ExportError, LoadError, StageError
from etdev.pipeline.api import open_project
from etdev.pipeline.builder.tasks import Task, plan_tasks
from etdev.pipeline.cache import Cache, open_store
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.results.result import BuildResult
from support.projects import write_project
from support.told import Told

pytestmark = pytest.mark.integration

MODEL = """
    import os
    import signal

    import torch
    from torch import nn

    class Steps(nn.Module):
        def __init__(self, wrong=""):
            super().__init__()
            torch.manual_seed(1)
            self.wrong = wrong
            self.layer = nn.Linear(32, 32)
            self.other = nn.Linear(32, 32)
            self.register_buffer("seen", torch.zeros(2, 32))
            self.register_buffer("scale", torch.full((2, 32), 2.0))

        def forward(self, x):
            self.seen.add_(self.layer(x))
            return self.other(self.seen * self.scale)

        def peek(self, x):
            if self.wrong == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.wrong == "raises":
                raise RuntimeError("this method raises")
            return self.layer(x) + self.seen

        def again(self, x):
            self.scale.mul_(2)
            return self.other(x) * self.scale
"""
"""State that one method changes and another reads, and state that begins with a value; weights of two methods each."""
METHODS = ("peek", "forward", "again")
INPUT = 'inputs = [{ name = "x", dtype = "float32", shape = [2, 32] }]'
CONFIG = f"""
    version = 1
    [project]
    name = "steps"
    [model]
    entry = "model:Steps"
    share_state = true
    [constants]
    get_width = 32
    [methods.peek]
    {INPUT}
    [methods.forward]
    {INPUT}
    [methods.again]
    {INPUT}
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    dynamic = true
    [targets.portable]
    [targets.xnnpack]
    partitioners = [{{ backend = "xnnpack" }}]
    [targets.int8]
    quantize = "int8"
    partitioners = [{{ backend = "xnnpack" }}]
"""


def digests(result: BuildResult) -> dict[str, str]:
    return {target.name: target.sha256 for target in result.targets}


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    """Built in this process."""
    config = write_project(tmp_path_factory.mktemp("turn"), CONFIG, model=MODEL)
    return etdev.build(config, verify=False, cache=False)


@pytest.mark.slow
def test_the_same_as_in_turn(tmp_path: Path, in_turn: BuildResult) -> None:
    config = write_project(tmp_path, CONFIG, model=MODEL)
    told = Told()
    result = etdev.build(config, targets=["xnnpack", "int8"], verify=False, jobs=3, progress=told)

    for target in result.targets:
        before = in_turn[target.name]
        assert (target.sha256, target.methods, target.notes) == (before.sha256, before.methods, before.notes)
        ends = [f"{target.name} {method} ended" for method in METHODS]
        assert {f"{target.name} {method} {stage}" for stage in ("lower", "emit") for method in METHODS} <= {
            *told.events
        }
        assert max(map(told.events.index, ends)) < told.events.index(f"{target.name} link")
        assert not [path.name for path in config.parent.glob(f"build/{target.name}/.*")], "nothing is left"


@pytest.mark.slow
def test_the_same_where_each_method_has_its_state(tmp_path: Path) -> None:
    config = write_project(tmp_path, CONFIG.replace("share_state = true", "share_state = false"), model=MODEL)
    in_turn = digests(etdev.build(config, verify=False, cache=False))
    assert digests(etdev.build(config, verify=False, cache=False, jobs=9)) == in_turn


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_state_that_is_one_in_the_model_and_several_in_the_program_is_said(tmp_path: Path, jobs: int) -> None:
    """Unless the config says which of the two is meant."""
    config = write_project(tmp_path, CONFIG.replace("    share_state = true\n", ""), model=MODEL)
    result = etdev.build(config, targets="portable", verify=False, jobs=jobs)
    warnings = result["portable"].warnings
    said = [found.message.partition(", which")[0] for found in warnings if "which the model has once" in found.message]
    assert sorted(said) == [
        "forward, again each have their own copy of scale",
        "peek, forward each have their own copy of seen",
    ]
    shown = render_result(result, Detail.LINE, io.StringIO())
    assert "a method does not see what other methods write" in shown
    assert "help: set `model.share_state`: true shares the state, false keeps the copies" in shown
    assert {(found.rule, found.level) for found in of_result(result)} == {("split-state", "warning")}
    again = etdev.build(config, targets="portable", verify=False, jobs=jobs)
    assert again["portable"].warnings == warnings, "a cached object program says it, too"
    for value in ("true", "false"):
        told = etdev.build(config, targets="portable", overrides=[f"model.share_state={value}"], verify=False)
        assert told["portable"].warnings == ()


@pytest.mark.slow
def test_it_is_verified_cached_and_locked(tmp_path: Path, in_turn: BuildResult) -> None:
    config = write_project(tmp_path, CONFIG, model=MODEL)
    result = etdev.build(config, targets="portable", jobs=2)
    assert result["portable"].status == "built"
    assert {check.name for check in result["portable"].checks if check.status == "passed"} >= {
        "plan",
        "runtime",
        "replay",
    }
    assert result["portable"].sha256 == in_turn["portable"].sha256
    lock = (tmp_path / "etdev.lock").read_bytes()

    again = etdev.build(config, targets="portable", jobs=2)
    assert "unchanged" in again["portable"].notes[-1]
    (tmp_path / "etdev.lock").unlink()
    etdev.build(config, targets="portable", cache=False)
    assert (tmp_path / "etdev.lock").read_bytes() == lock


def test_a_target_is_the_same_alone_or_behind_another_one(tmp_path: Path) -> None:
    """Emission ran the model's in-place ops with gradients, and the next target was lowered from what that left."""
    config = write_project(tmp_path, CONFIG, model=MODEL)
    behind = etdev.build(config, targets=["portable", "xnnpack"], verify=False, cache=False)
    alone = etdev.build(config, targets="xnnpack", verify=False, cache=False)
    assert digests(alone)["xnnpack"] == digests(behind)["xnnpack"]


@pytest.mark.nightly
def test_a_method_that_fails(tmp_path: Path) -> None:
    """Its error is the target's, and nothing of the others stays."""
    config = write_project(tmp_path, CONFIG, model=MODEL)
    overrides = ['model.kwargs={ wrong = "raises" }']
    with pytest.raises(ExportError, match="this method raises"):
        etdev.build(config, targets="portable", overrides=overrides, jobs=2)
    assert not (tmp_path / "build" / "portable" / "steps.pte").exists()
    assert not list((tmp_path / "build" / "portable").glob(".*"))


@pytest.mark.nightly
def test_a_process_that_dies(tmp_path: Path) -> None:
    config = write_project(tmp_path, CONFIG, model=MODEL)
    with pytest.raises(StageError, match=r"the process that built 'portable' has ended: .*SIGKILL"):
        etdev.build(config, targets="portable", overrides=['model.kwargs={ wrong = "dies" }'], jobs=2)
    assert not (tmp_path / "build" / "portable" / "steps.pte").exists()
    assert not list((tmp_path / "build" / "portable").glob(".*"))


@pytest.mark.slow
def test_a_model_that_is_another_one_in_each_process(tmp_path: Path) -> None:
    """Its methods would have weights of several models, and the program would be none of them."""
    model = MODEL.replace("torch.manual_seed(1)", "torch.manual_seed(os.getpid())")
    config = write_project(tmp_path, CONFIG, model=model)
    with pytest.raises(LoadError, match="and the models of these processes have different weights") as caught:
        etdev.build(config, targets="portable", verify=False, jobs=2)
    assert caught.value.hint is not None
    assert caught.value.hint.endswith("or build without `-j`")
    assert not list((tmp_path / "build" / "portable").glob("*.pte"))


@pytest.mark.parametrize(
    ("setting", "jobs", "apart"),
    [
        ("", 4, True),
        ("", 1, False),
        ("", 3, False),  # Each target has a worker of its own.
        ("etrecord = true", 4, False),
        ('budget.latency = { method = "peek", p95 = "1s" }', 4, False),
        ('partitioners = [{ backend = "vulkan" }]', 4, False),
    ],
    ids=["", "one at a time", "as many as targets", "a record of all", "a time is measured", "compiled at once"],
)
def test_who_comes_apart(tmp_path: Path, setting: str, jobs: int, apart: bool) -> None:
    text = CONFIG.replace("[targets.portable]\n", f"[targets.portable]\n    {setting}\n")
    project = open_project(write_project(tmp_path, text, model=MODEL))
    with Cache(open_store()) as cache:
        tasks = plan_tasks(project, list(project.config.targets), BuildOptions(jobs=jobs), cache)
    mine = [task for task in tasks if task.target == "portable"]
    methods = [Task("portable", method) for method in METHODS]
    assert mine == (methods if apart else [Task("portable")])


@pytest.mark.nightly
def test_what_the_cache_has_is_only_linked(tmp_path: Path) -> None:
    config = write_project(tmp_path, CONFIG, model=MODEL)
    etdev.build(config, targets="portable", verify=False)
    told = Told()
    naive = ['targets.portable.memory.planner="naive"']
    etdev.build(config, targets="portable", overrides=naive, verify=False, jobs=4, progress=told)
    assert told.events == [f"portable {stage}" for stage in ("link", "write", "ended")]
