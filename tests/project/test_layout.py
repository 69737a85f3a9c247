"""E0: the layout of the source, and that all dependencies are used."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from support.sources import imports


def imported_packages(folder: Path) -> Iterator[str]:
    """The top packages that code of a folder imports, wherever in a module."""
    for node in chain.from_iterable(map(imports, folder.rglob("*.py"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif node.module is not None and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize(
    "name",
    [
        "cli",
        "config",
        "pipeline",
        "verification",
        "execution",
        "inspection",
        "lowering",
        "backends",
        "linker",
        "validator",
        "planner",
        "program",
        "runtime",
        "deployment",
        "runner",
        "templates",
    ],
)
def test_the_top_packages(repository: Path, name: str) -> None:
    assert (repository / "src" / "etdev" / name / "__init__.py").is_file()
    assert (repository / "tests" / name).is_dir()
    assert (repository / "pyproject.toml").is_file()


def test_what_it_depends_on_is_imported(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["build"]]
    packages = {re.split(r"[<>=!~; \[]", text)[0].replace("-", "_").lower() for text in declared}
    assert {"typer", "pydantic", "tomli_w", "torch", "numpy"} <= packages
    used = {*imported_packages(repository / "src" / "etdev")}
    renamed = {"pyyaml": "yaml", "ruamel.yaml": "ruamel", "ruamel.yaml.clib": "ruamel"}
    assert {renamed.get(name, name) for name in packages} - used == set()


TABLES = {"program/model.py"}
"""Files that are one table: the dataclasses of ExecuTorch's schema."""


def test_a_file_can_be_read_in_one_sitting(repository: Path) -> None:
    sources = repository / "src" / "etdev"
    long = {
        str(path.relative_to(sources)) for path in sources.rglob("*.py") if len(path.read_text().splitlines()) > 400
    }
    assert long == TABLES


def test_a_folder_can_be_looked_through(repository: Path) -> None:
    sources = repository / "src" / "etdev"
    folders = {path.parent for path in sources.rglob("*.py")}
    assert {folder.name for folder in folders if len(list(folder.glob("*.py"))) > 25} == set()
