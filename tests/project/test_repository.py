"""What holds for the repository as a whole: one version of each fact, and nothing of the machine it was written on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.pipeline import doctor

_MACHINE = re.compile(r"/(?:home|root|Users|work|opt)/[A-Za-z0-9_.]")
"""Absolute paths of somebody's machine."""
_INDEX = re.compile(r"--(?:extra-)?index-url|--find-links|download\.pytorch\.org")
"""Where to download from is the user's own setting."""


@pytest.fixture(scope="module")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def pins(repository: Path) -> dict[str, str]:
    """Version by normalised name of constraints.txt."""
    lines = (repository / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {_normal(name): version for name, version in pairs}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(requirements: list[Any]) -> set[str]:
    texts = [text for text in requirements if isinstance(text, str) and not text.startswith("etdev[")]
    return {_normal(re.split(r"[<>=!~; \[]", text)[0]) for text in texts}


def test_no_text_names_a_machine_or_an_index(repository: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    found = []
    for name in set(listed.stdout.splitlines()) - {str(Path(__file__).relative_to(repository))}:
        content = (repository / name).read_bytes() if (repository / name).is_file() else b""
        if b"\0" not in content:
            text = content.decode("utf-8")
            found += [f"{name}: {match.group()}" for pattern in (_MACHINE, _INDEX) for match in pattern.finditer(text)]
    assert not found


def test_everything_that_is_required_is_pinned(pyproject: dict[str, Any], pins: dict[str, str]) -> None:
    project = pyproject["project"]
    wanted = _required(project["dependencies"])
    for requirements in (*project["optional-dependencies"].values(), *pyproject["dependency-groups"].values()):
        wanted |= _required(requirements)
    assert not wanted - pins.keys()


def test_pins_install_anywhere(pins: dict[str, str]) -> None:
    assert not {name: version for name, version in pins.items() if "+" in version}


def test_doctor_knows_the_tested_versions(pins: dict[str, str]) -> None:
    tested = {name: version for name, version, *_ in doctor.PACKAGES if version is not None}
    assert tested == {name: pins[name] for name in tested}


def test_changelog_has_this_version(repository: Path) -> None:
    assert f"## [{etdev.__version__}]" in (repository / "CHANGELOG.md").read_text()
