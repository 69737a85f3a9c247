"""Several targets at a time: the same files as in turn, and what becomes of the others when one fails (E2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import etdev
from etdev.cli import app
from etdev.errors import EtdevError, ExitCode, LoadError, MissingRequirementError, StageError, TargetsError
from etdev.pipeline.api import open_project
from etdev.pipeline.builder.outcome import Outcome
from etdev.pipeline.builder.progress_forwarding import ProgressReader, ProgressWriter
from etdev.pipeline.builder.tasks import needs_the_machine
from etdev.pipeline.builder.workers import Job, RemoteBuilder
from etdev.pipeline.cache import open_store
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.progress import Silent
from etdev.pipeline.project.versions import versions
from etdev.pipeline.results.result import WORST_FIRST, BuildResult
from support.projects import LINEAR, LINEAR_CONFIG, write_project
from support.told import Told

TWO = LINEAR_CONFIG + '    [targets.a]\n    [targets.b]\n    lowering = "stock"\n'
METRICS = """
    import os
    import signal

    def die(run):
        os.kill(os.getpid(), signal.SIGKILL)

    def one(run):
        return 1.0
"""
"""Metrics: one that takes its process along, and one that does not."""


def results(config: Path) -> BuildResult:
    """What the last build wrote down."""
    return BuildResult.model_validate_json((config.parent / "build" / "results.json").read_bytes())


@pytest.mark.integration
def test_the_same_as_in_turn(tmp_path: Path) -> None:
    in_turn = etdev.build(write_project(tmp_path / "turn", TWO, model=LINEAR), verify=False, cache=False)
    config = write_project(tmp_path / "jobs", TWO, model=LINEAR)
    told = Told()
    result = etdev.build(config, verify=False, cache=False, jobs=2, progress=told)

    assert [target.name for target in result.targets] == ["a", "b"]
    assert [target.sha256 for target in result.targets] == [target.sha256 for target in in_turn.targets]
    assert results(config) == result
    for name in "ab":
        mine = [event for event in told.events if event.startswith(f"{name} ")]
        assert mine == [f"{name} {stage}" for stage in ("load", "export", "lower", "emit", "link", "write", "ended")]
    again = etdev.build(config, verify=False, jobs=2)
    assert all("unchanged" in target.notes[-1] for target in again.targets), "the cache has what workers built"
    assert (config.parent / "etdev.lock").read_bytes() == (tmp_path / "turn" / "etdev.lock").read_bytes()


@pytest.mark.integration
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.nightly
def test_one_that_fails(tmp_path: Path, jobs: int) -> None:
    """Without ``keep_going`` no other is begun; with it, all others are built, and the worst code is the answer."""
    config = write_project(
        tmp_path, TWO + "    [targets.c]\n    budget.file = 1\n", model=LINEAR, data="def samples():\n    yield 1\n"
    )
    wrong = 'targets.a.verify.accuracy={ fn = "data:nothing", min = 1 }'
    with pytest.raises(LoadError, match="has no attribute 'nothing'"):
        etdev.build(config, overrides=[wrong], jobs=jobs)
    found = results(config)
    assert [(one.name, one.code, one.errors[0].rule) for one in found.failed] == [("a", 2, "load")]
    assert {*found.not_built, *(target.name for target in found.targets)} == {"b", "c"}
    assert "c" in found.not_built

    result = etdev.build(config, overrides=[wrong], jobs=jobs, keep_going=True)
    assert [target.name for target in result.targets] == ["b", "c"]
    assert (result["b"].status, result["c"].status) == ("built", "gate failed")
    assert (result.failed[0].errors[0].where or "").endswith("(targets.a.verify.accuracy.fn)")
    assert (result.exit_code, result.not_built, result.ok) == (ExitCode.CONFIG, (), False)
    assert results(config) == result


@pytest.mark.slow
@pytest.mark.integration
def test_a_worker_builds_on_after_an_error(tmp_path: Path) -> None:
    """Each later target of a worker had the error of the first one that failed there."""
    config = write_project(
        tmp_path,
        TWO + "    [targets.c]\n    [targets.d]\n",
        model=LINEAR,
        data="def plan(problem):\n    raise ValueError('no plan')\n",
    )
    wrong = [f"targets.{name}.memory.planner='data:plan'" for name in "ab"]
    result = etdev.build(config, overrides=wrong, jobs=2, keep_going=True, verify=False)
    assert [target.name for target in result.targets] == ["c", "d"]
    assert [(one.name, (one.errors[0].where or "").rpartition("(")[2]) for one in result.failed] == [
        ("a", "targets.a.memory.planner)"),
        ("b", "targets.b.memory.planner)"),
    ]


@pytest.mark.slow
@pytest.mark.integration
def test_all_that_fail_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each error is said with its target, place and hint, and the worst exit code is the answer: that of ``b``, which
    fails later than ``a``."""
    config = write_project(
        tmp_path,
        TWO + "    [targets.c]\n",
        model=LINEAR,
        data="import time\ndef plan(problem):\n    time.sleep(1)\n    raise ValueError('no plan')\n",
    )
    wrong = [
        'targets.a.verify.accuracy={ fn = "data:nothing", min = 1 }',
        'targets.b.memory.planner="data:plan"',
    ]
    monkeypatch.chdir(tmp_path)
    arguments = [item for text in wrong for item in ("--set", text)]
    assert app.run(["build", "-c", str(config), "-j", "2", *arguments, "-q", "--output", "md=report.md"]) == 4
    err = capfd.readouterr().err
    assert "(targets.a.verify.accuracy.fn): target 'a': " in err
    assert "(targets.b.memory.planner): target 'b': " in err
    assert err.endswith("results.json has the outcome of each target\n")
    assert results(config).not_built == ("c",)
    md = Path("report.md").read_text()
    assert "target 'a': " in md
    assert "target 'b': " in md


@given(
    codes=st.lists(st.sampled_from(WORST_FIRST[:3]), min_size=1, max_size=4),
    worst=st.sampled_from(WORST_FIRST[:3]),
    same=st.booleans(),
)
def test_which_error_ends_a_build(codes: list[ExitCode], worst: ExitCode, same: bool) -> None:
    """One error is raised as it is, also if several targets have it; the exit code is always that of the worst."""
    outcome = Outcome()
    for number, code in enumerate(codes):
        outcome.errors[f"t{number}"] = error = StageError("x" if same else f"x{number}", where="here", hint="do")
        error.exit_code = code
    names = [f"t{number}" for number in range(5)]
    worst = min([worst, *codes], key=WORST_FIRST.index)
    found = outcome.error(names, worst, "see")

    assert found is not None
    assert found.exit_code == worst
    if isinstance(found, TargetsError):
        assert found.errors == outcome.errors
        assert all(f"target {name!r}: {error}" in str(found) for name, error in outcome.errors.items())
    else:
        assert found is outcome.errors["t0"]
        assert len({str(error) for error in outcome.errors.values()}) == 1
    assert Outcome().error(names, worst, "see") is None


def test_what_this_machine_lacks_is_known_first(tmp_path: Path) -> None:
    """Before anything is built; and what keeps one target from it keeps no other."""
    config = write_project(tmp_path, TWO, model=LINEAR)
    lacking = ['targets.b.partitioners=[{ backend = "cuda" }]']
    told = Told()
    with pytest.raises(MissingRequirementError):
        etdev.build(config, overrides=lacking, progress=told)
    assert told.events == []
    assert results(config).not_built == ("a",)
    result = etdev.build(config, overrides=lacking, verify=False, keep_going=True)
    assert ([target.name for target in result.targets], result.exit_code) == (["a"], ExitCode.ENVIRONMENT)


DIE = [f'targets.{name}.verify.accuracy={{ fn = "data:die", min = 1 }}' for name in "ab"]


@pytest.mark.slow
@pytest.mark.integration
def test_a_process_that_dies_ends_the_build(tmp_path: Path) -> None:
    config = write_project(tmp_path, TWO, model=LINEAR, data=METRICS)
    with pytest.raises(EtdevError, match=r"the process that built '[ab]' has ended: .*SIGKILL"):
        etdev.build(config, overrides=DIE, jobs=2)


@pytest.mark.integration
@pytest.mark.nightly
def test_a_process_that_dies(tmp_path: Path) -> None:
    """Takes its target along; another process builds the next one."""
    config = write_project(tmp_path, TWO + "    [targets.c]\n", model=LINEAR, data=METRICS)
    result = etdev.build(config, overrides=DIE[:1], jobs=2, keep_going=True)
    assert [one.name for one in result.failed] == ["a"]
    assert re.search("the process that built 'a' has ended: .*SIGKILL", result.failed[0].errors[0].message)
    assert [target.status for target in result.targets] == ["built", "built"]
    left = [path.name for path in (tmp_path / "build" / "a").iterdir() if path.name.endswith(".etdev-tmp")]
    etdev.build(config, targets="a")
    assert not list((tmp_path / "build" / "a").glob(".*")), left


@pytest.mark.slow
@pytest.mark.integration
def test_a_time_is_measured_while_nothing_else_is_built(tmp_path: Path) -> None:
    config = write_project(tmp_path, TWO + '    [targets.c]\n    budget.latency = { p95 = "100s" }\n', model=LINEAR)
    told = Told()
    assert etdev.build(config, overrides=['targets.a.budget.latency={ p95 = "100s" }'], jobs=3, progress=told).ok
    order = [event.partition(" ")[0] for event in told.events]
    for name in "ac":
        first, last = order.index(name), len(order) - 1 - order[::-1].index(name)
        assert set(order[first : last + 1]) == {name}
    assert order[0] == "b"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", False),
        ('budget.latency = { p95 = "100s" }', True),
        ('partitioners = [{ backend = "xnnpack" }]', False),
        ('partitioners = [{ backend = "reference", device = "cuda:1", options = { ops = "all" } }]', True),
    ],
)
def test_who_needs_the_machine(tmp_path: Path, settings: str, expected: bool) -> None:
    config = write_project(tmp_path, LINEAR_CONFIG + f"    [targets.cpu]\n    {settings}\n", model=LINEAR)
    assert needs_the_machine(open_project(config), "cpu") == expected


@pytest.mark.slow
@pytest.mark.integration
def test_what_is_no_error_of_a_target_ends_the_build(tmp_path: Path) -> None:
    config = write_project(tmp_path, TWO, model=LINEAR)
    (tmp_path / "planner.py").write_text("def plan(problem):\n    raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        etdev.build(config, overrides=['targets.a.memory.planner="planner:plan"'], verify=False, jobs=2)


# On a cluster.


@pytest.fixture
def _cluster() -> Iterator[None]:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    from etdev.runtime.orchestrator.transports.ray_cluster import SHARED

    SHARED.join(None)
    yield
    SHARED.leave()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.usefixtures("_cluster")
def test_on_a_cluster(tmp_path: Path) -> None:
    config = write_project(tmp_path, TWO, model=LINEAR)
    told = Told()
    result = etdev.build(config, overrides=['run.executor="ray"', "run.jobs=2"], verify=False, progress=told)
    in_turn = etdev.build(write_project(tmp_path / "turn", TWO, model=LINEAR), verify=False, cache=False)

    assert [target.sha256 for target in result.targets] == [target.sha256 for target in in_turn.targets]
    assert {"a load", "b load", "a ended", "b ended"} <= set(told.events)


def _job(config: Path, events: Path, **changes: Any) -> Job:
    project = open_project(config)
    job = Job(project, BuildOptions(verify=False), open_store(), events, versions(), {})
    return replace(job, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"files": {Path("/nowhere/etdev.toml"): "0"}}, r"on that machine, /nowhere/etdev\.toml is missing"),
        ({"files": {Path(__file__): "0"}}, r"test_build_workers\.py differs"),
        ({"versions": {**versions(), "torch": "1.0"}}, r"has torch 2\..*, and this machine has 1\.0"),
        ({"versions": {**versions(), "zlib": "1.0"}}, r"has no zlib, and this machine has 1\.0"),
    ],
)
def test_a_machine_that_is_not_like_this_one(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    config = write_project(tmp_path, TWO, model=LINEAR)
    with pytest.raises(MissingRequirementError, match=message) as caught:
        RemoteBuilder(_job(config, tmp_path, **changes))
    assert caught.value.where is not None
    assert caught.value.where.endswith("(run.executor)")


# Progress.


class Events(Silent):
    """Remembers each event with its arguments."""

    def __init__(self) -> None:
        self.all: list[tuple[object, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if name not in ("started", "counted", "finished", "failed", "ended"):
            return super().__getattribute__(name)
        return lambda *arguments: self.all.append((name, *arguments))


def test_progress_comes_in_order(tmp_path: Path) -> None:
    """Each event once, whenever it is asked for; counts only now and then."""
    told = Events()
    reader, writer = ProgressReader(told, tmp_path), ProgressWriter(tmp_path)
    writer.started("ä", "load")
    reader.report()
    assert told.all == [("started", "ä", "load")]
    for done in range(1, 1001):
        writer.counted("ä", "load", done, None)
    writer.finished("ä", "load", 0.5)
    reader.report()
    reader.report()
    writer.failed("ä", "lower")
    writer.ended("ä")
    reader.report()
    assert [event for event in told.all if event[0] != "counted"] == [
        ("started", "ä", "load"),
        ("finished", "ä", "load", 0.5),
        ("failed", "ä", "lower"),
        ("ended", "ä"),
    ]
    counted = [event[3] for event in told.all if event[0] == "counted"]
    assert counted[0] == 1
    assert len(counted) < 500


def test_progress_of_a_writer_that_is_not_done_waits(tmp_path: Path) -> None:
    told = Events()
    reader = ProgressReader(told, tmp_path)
    (tmp_path / "one").write_bytes(b'["ended", "a"]\n["ended", ')
    ProgressWriter(tmp_path).ended("other")
    reader.report()
    assert sorted(told.all) == [("ended", "a"), ("ended", "other")]
    with (tmp_path / "one").open("ab") as file:
        file.write(b'"b"]\n')
    reader.report()
    assert told.all[2:] == [("ended", "b")]


def test_progress_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    ProgressWriter(tmp_path / "nowhere").started("a", "load")


def test_errors_of_targets_cross_processes() -> None:
    """What a worker raises is the same error here."""
    import pickle

    error = LoadError("no weights", where="etdev.toml:1:1", hint="add them")
    copy: EtdevError = pickle.loads(pickle.dumps(error))
    assert (copy.message, copy.where, copy.hint, copy.rule) == ("no weights", "etdev.toml:1:1", "add them", "load")
