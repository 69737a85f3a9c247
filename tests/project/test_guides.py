"""Guides of docs/: a reader who does what a page says gets what the page shows.

``start.md`` begins in an empty folder. The pages of ``AFTER`` go on in a copy of that folder, since their readers have
the project of ``start.md``; what one has built, the next takes from the cache. The pages of ``ALONE`` bring their own
project.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from etdev.runtime.native.toolchain import Missing, find_toolchain
from support import pages

# Several builds, on a machine that may do other work too.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

pytest.importorskip("executorch", reason="needs the extra `build`")

AFTER = ("cpp.md", "find-memory.md", "fit.md", "faq.md")
ALONE = ("state.md",)
LONG = ("find-memory.md", "fit.md", "faq.md")
"""Pages whose commands take long: every night only."""
NOT_RUN = {
    "git clone": "fetches this repository",
    "python3.11 -m venv": "installs all packages",
    "pip install": "installs all packages",
    "etdev doctor": "prints what this machine has",
}
"""Beginnings of commands that no test runs, and why."""
FAILS = {'["batch"': 2, "budget.file": 1, "budget.memory": 1, "conds.pte": 4, "runtime.kernels": 4}
"""Exit codes of commands that the pages show for what they report, by a part of the command."""
NEEDS_COMPILER = ("etdev runner", "cmake", "app/app")


@pytest.fixture(scope="module", autouse=True)
def _one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pytest.MonkeyPatch]:
    """All pages share a cache, as those of one reader do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETDEV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield patch


@pytest.fixture(autouse=True)
def _neutral_environment(_one_cache: pytest.MonkeyPatch) -> None:
    """Keep the module's cache: the fixture of this name sets one for each test."""


@pytest.fixture(scope="module")
def started(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a reader who has done all of ``start.md``."""
    folder = tmp_path_factory.mktemp("guides") / "my-model"
    folder.mkdir()
    _do(repository / "docs" / "start.md", folder)
    return folder


def _do(page: Path, folder: Path) -> None:
    """Write the page's files, run its commands in their order, and compare what they print."""
    text = page.read_text(encoding="utf-8")
    for name, content in pages.files(text).items():
        (folder / name).write_text(content, encoding="utf-8")
    compiler = not isinstance(find_toolchain(), Missing)
    for command in pages.commands(text):
        skipped = tuple(NOT_RUN) if compiler else (*NOT_RUN, *NEEDS_COMPILER)
        if command.line.startswith(skipped):
            continue
        code, printed = pages.run(command.line, folder)
        expected = next(
            (code for part, code in FAILS.items() if part in command.line and "python" not in command.line), 0
        )
        assert code == expected, f"{page.name}: {command.line}\n{printed}"
        if command.shown is not None:
            pages.assert_shown(command.shown, printed)


def test_get_started(started: Path, repository: Path) -> None:
    assert pages.script(started / "app.py", []) == "True\n"
    assert len(pages.commands((repository / "docs" / "start.md").read_text(encoding="utf-8"))) >= 12


def test_the_report_has_the_documented_form(started: Path, repository: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((repository / "docs" / "schemas" / "report.schema.json").read_text(encoding="utf-8"))
    for name in ("build/portable/report.json", "build/results.json"):
        jsonschema.validate(json.loads((started / name).read_text(encoding="utf-8")), schema)


def test_the_python_api_as_its_page_begins(started: Path, repository: Path) -> None:
    (block,) = [
        found
        for found in pages.blocks(repository / "docs" / "python.md")
        if found.text.startswith("import etdev\n\ninfo")
    ]
    (started / "look.py").write_text(block.text, encoding="utf-8")
    assert pages.script(started / "look.py", []) == "12392 ['forward']\n"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name for name in AFTER]
)
def test_a_guide_for_the_project_of_get_started(name: str, started: Path, repository: Path, tmp_path: Path) -> None:
    shutil.copytree(started, tmp_path / "my-model")
    _do(repository / "docs" / name, tmp_path / "my-model")


@pytest.mark.parametrize("name", ALONE)
def test_a_guide_with_a_project_of_its_own(name: str, repository: Path, tmp_path: Path) -> None:
    _do(repository / "docs" / name, tmp_path)
