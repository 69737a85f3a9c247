"""What all tests share: the options of this suite, and where to find what lies outside the repository.

``ETDEV_SHARED`` names a folder with data that is too large for the repository; the default is ``../shared`` next to it.
Tests that need it skip, and say so, where it is missing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from support import draws
from support.exports import shorten_exports
from support.native import compiled_host
from support.sampling import mark_cases_of_every_night
from support.stock import SpareProcesses

if TYPE_CHECKING:
    from etdev.pipeline.project import Project

pytest.register_assert_rewrite("support.stages")

# How long an example takes depends on what else the machine does.
settings.register_profile("etdev", deadline=None, max_examples=18)
# The same examples each time: a change is judged by what it changes. New ones are found by everybody else's runs.
settings.register_profile("same", settings.get_profile("etdev"), derandomize=True)
settings.load_profile(os.environ.get("ETDEV_EXAMPLES", "etdev"))
EXAMPLES_AT_NIGHT = 25
"""Number of examples of a property test that states no number, with ``--slow`` or at night."""

ROOT = Path(__file__).resolve().parents[1]


MARKERS = {"slow": "the slow tests", "integration": "the integration tests", "nightly": "the tests of every night"}
"""The tests that run only with the option of their marker's name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    for marker, tests in MARKERS.items():
        parser.addoption(f"--{marker}", action="store_true", help=f"run {tests} too")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests are left out. As skipped tests, these thousands would take seconds of each run."""
    for marker in _markers_left_out(terminalreporter.config):
        terminalreporter.line(f"left out: {MARKERS[marker]}; run with --{marker}")


def _markers_left_out(config: pytest.Config) -> list[str]:
    return [marker for marker in MARKERS if not config.getoption(f"--{marker}")]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--slow") or os.environ.get("NIGHTLY"):
        draws.SHARE = 1
        settings.register_profile("night", settings.default, max_examples=EXAMPLES_AT_NIGHT)
        settings.load_profile("night")


def pytest_collection() -> None:
    """Leave out the garbage collector while tests are imported: nearly all of these objects stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the objects of the collection: they make it ten times as slow."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_cases_of_every_night(items)
    markers = _markers_left_out(config)
    groups: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        groups[any(map(item.get_closest_marker, markers))].append(item)
    items[:] = groups[False]
    config.hook.pytest_deselected(items=groups[True])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("hardware"):
        torch = pytest.importorskip("torch", reason="hardware: torch is not installed")
        if not torch.cuda.is_available():
            pytest.skip("hardware: there is no CUDA device")


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with data outside the repository."""
    folder = Path(os.environ.get("ETDEV_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"there is no folder {folder}: set ETDEV_SHARED")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What fixtures of modules build goes into no cache of the developer's; the native host is compiled there, once."""
    host = compiled_host()
    with pytest.MonkeyPatch.context() as patch:
        if isinstance(host, Path):
            patch.setenv("ETDEV_NATIVE_HOST", str(host))
        patch.setenv("ETDEV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # Each process would compile all that it imports.
        if draws.SHARE > 1:  # The slow tests and the examples have torch as it is.
            shorten_exports(patch)
        yield


@pytest.fixture(scope="session")
def _spare_processes() -> Iterator[SpareProcesses]:
    found = SpareProcesses()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _runtimes_share_processes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, _spare_processes: SpareProcesses
) -> None:
    """A test that looks at the runtime's process itself has the marker ``own_runtime``."""
    if request.node.get_closest_marker("own_runtime") is None:
        _spare_processes.patch(monkeypatch)


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths of caches, none of which exists."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def _neutral_environment(monkeypatch: pytest.MonkeyPatch, _caches: Iterator[Path]) -> None:
    """No variable of the developer's shell changes what a test sees, and no build of another test."""
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(next(_caches)))
    for name in list(os.environ):
        if name.startswith("ETDEV__") or name in {"ETDEV_DEBUG", "NO_COLOR", "FORCE_COLOR"}:
            monkeypatch.delenv(name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    """``project(config, model="...", data="...")``: a project whose errors read ``etdev.toml:LINE:COLUMN``."""
    from support.projects import make_project

    monkeypatch.chdir(tmp_path)

    def make(config: str, **files: str) -> Project:
        return make_project(tmp_path, config, **files)

    return make
