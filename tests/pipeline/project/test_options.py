"""How a build is asked for: targets by glob, checks by name; and the small helpers around a run."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import etdev
from etdev.errors import UsageError
from etdev.pipeline.builder.report_file import display_path
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions, choose_targets, parse_checks, required_checks
from etdev.pipeline.project.progress import Silent, StageClock
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.versions import versions
from etdev.units import format_count, format_duration, format_seconds, format_size
from support.projects import LINEAR_CONFIG, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    targets = '    [targets.cpu]\n    verify.require = ["runtime"]\n    [targets.cpu-int8]\n    [targets.gpu]\n'
    return make_project(tmp_path, LINEAR_CONFIG + targets)


@pytest.mark.parametrize(
    ("patterns", "chosen"),
    [
        ((), ("cpu", "cpu-int8", "gpu")),
        (("gpu", "cpu"), ("cpu", "gpu")),
        (("cpu*",), ("cpu", "cpu-int8")),
        (("*", "gpu"), ("cpu", "cpu-int8", "gpu")),
        (("[cg]pu",), ("cpu", "gpu")),
        ("gpu", ("gpu",)),
    ],
)
def test_targets_in_the_order_of_the_config(project: Project, patterns: object, chosen: tuple[str, ...]) -> None:
    assert choose_targets(project, patterns) == chosen  # type: ignore[arg-type]


def test_a_pattern_that_matches_nothing(project: Project) -> None:
    with pytest.raises(UsageError, match=r"no target matches 'CPU'") as caught:
        choose_targets(project, ["gpu", "CPU"])
    assert caught.value.hint == "did you mean 'cpu'? targets: cpu, cpu-int8, gpu"


def test_required_checks(project: Project) -> None:
    options = BuildOptions(require=parse_checks(["accuracy", "runtime"]))

    assert required_checks(project, "cpu", options) == ("runtime", "accuracy")
    assert required_checks(project, "gpu", options) == ("accuracy", "runtime")
    assert parse_checks("device") == ("device",)
    with pytest.raises(UsageError, match="there is no check 'runtme'") as caught:
        parse_checks(["runtme"])
    assert caught.value.hint is not None
    assert "runtime, replay" in caught.value.hint


def test_stages_are_timed_and_told() -> None:
    class Told(Silent):
        def __init__(self) -> None:
            self.events: list[str] = []

        def started(self, target: str, stage: str) -> None:
            self.events.append(f"{target} {stage}")

        def finished(self, target: str, stage: str, seconds: float) -> None:
            self.events.append(f"done {stage}")

        def failed(self, target: str, stage: str) -> None:
            self.events.append(f"failed {stage}")

    told = Told()
    clock = StageClock("cpu", told)
    with clock.stage("load"), clock.stage("export"):
        pass
    with clock.stage("load"):
        pass
    with pytest.raises(KeyboardInterrupt), clock.stage("lower"):
        raise KeyboardInterrupt

    assert told.events == [
        "cpu load", "cpu export", "done export", "cpu load", "done load", "cpu load", "done load", "cpu lower",
        "failed lower",
    ]  # fmt: skip
    assert list(clock.seconds) == ["export", "load"]


@pytest.mark.parametrize("verbose", [False, True])
def test_what_anyone_prints_goes_to_stderr(capfd: pytest.CaptureFixture[str], verbose: bool) -> None:
    """What C++ libraries and programs that user code starts print went to stdout, into the JSON there."""
    logger = logging.getLogger("etdev.tests")
    with quiet_libraries(verbose=verbose):
        print("from Python")
        os.write(1, b"from C++\n")
        subprocess.run(["echo", "from a program"], check=True)
        if not verbose:
            warnings.warn("which pytest would show", stacklevel=1)
        assert logger.isEnabledFor(logging.WARNING) == verbose
        assert logger.isEnabledFor(logging.ERROR)
    print("after")
    os.write(1, b"after\n")
    subprocess.run(["echo", "after"], check=True)

    out, err = capfd.readouterr()
    assert out.split() == ["after"] * 3
    assert all(text in err for text in ("from Python", "from C++", "from a program"))
    assert logger.isEnabledFor(logging.WARNING)


def test_the_streams_come_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), quiet_libraries():
        raise ValueError("no")
    os.write(1, b"after")

    assert capfd.readouterr().out == "after"


def test_a_process_without_stdout_can_build() -> None:
    """A daemon may have closed it."""
    script = "from etdev.pipeline.project.quiet import quiet_libraries\nwith quiet_libraries():\n    print('x')\n"
    done = subprocess.run(["sh", "-c", f'{sys.executable} -c "{script}" >&-'], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "x\n")


def test_versions_without_importing() -> None:
    found = versions()

    assert list(found)[:2] == ["etdev", "python"]
    assert (found["etdev"], found["python"]) == (etdev.__version__, platform.python_version())
    assert {"torch", "executorch"} <= set(found)


def test_paths_are_shown_relative_to_the_config(project: Project, tmp_path: Path) -> None:
    assert display_path(project, tmp_path / "build" / "cpu" / "tiny.pte") == "build/cpu/tiny.pte"
    assert display_path(project, Path("/elsewhere/tiny.pte")) == "/elsewhere/tiny.pte"


@pytest.mark.parametrize(
    ("folder", "name"), [("digits", "digits"), ("my model (2)", "my_model__2_"), ("...", "model"), ("_x-1.5", "x-1.5")]
)
def test_a_project_is_named_after_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    config = LINEAR_CONFIG.replace('name = "tiny"', "") + "[targets.cpu]\n"
    if folder == "...":
        folder = "___"
    assert make_project(tmp_path / folder, config).name == name


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (42_300, "41.3 KiB"),
        (147_456, "144 KiB"),
        (2**20 * 5 // 4, "1.25 MiB"),
        (2**20 - 1, "1.00 MiB"),
        (10_239, "10.0 KiB"),
        (2**30, "1.00 GiB"),
        (2**50, "1024 TiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert format_size(size) == text


def test_a_number_and_its_noun_agree() -> None:
    assert [format_count(number, "byte") for number in (0, 1, 2000)] == ["0 bytes", "1 byte", "2,000 bytes"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (12.3, "12 s"),
        (59.7, "1 min 0 s"),
        (125, "2 min 5 s"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 µs"),
        (3.82e-5, "38.2 µs"),
        (9.9951e-4, "1.00 ms"),
        (0.0025, "2.50 ms"),
        (0.25, "250 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (2.51, "2.51 s"),
        (99.9, "99.9 s"),
        (99.96, "1 min 40 s"),
        (725, "12 min 5 s"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
