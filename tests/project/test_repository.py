"""What holds for the repository as a whole: one version of each fact, and nothing of the machine it was written on."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev.compat import TESTED
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


def test_ci_installs_only_files_with_known_hashes(repository: Path, pins: dict[str, str]) -> None:
    text = (repository / ".ci" / "constraints-hashed.txt").read_text()
    entries = re.findall(r"^([^ #\n]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert {_normal(name): version for name, version, _ in entries} == pins
    assert "export HASHES=1" in (repository / ".ci" / "run").read_text()


def test_hash_checked_installs_name_all_third_party_requirements(
    repository: Path, pins: dict[str, str], pyproject: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install = runpy.run_path(str(repository / ".ci" / "install.py"))
    ran: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda step, **_: ran.append(step[6:]) or subprocess.CompletedProcess([], 0))
    monkeypatch.setattr(sys, "argv", ["install.py", "--extras", "hf,deploy", "--group", "dev", "--cpu", "--editable"])
    assert install["main"]() == 0
    pip, dependencies, own = ran
    assert pip[:2] == ["--require-hashes", "--requirement"]
    assert dependencies[0] == "--require-hashes"
    assert dependencies.count("--constraint") == dependencies.count("--build-constraint") == 1
    optional, groups = pyproject["project"]["optional-dependencies"], pyproject["dependency-groups"]
    tables = (
        *(optional[name] for name in ("build", "hf", "deploy")),
        *(groups[name] for name in ("docs", "release", "test", "lint", "bench", "fuzz")),
    )
    wanted = _required(pyproject["project"]["dependencies"]).union(*map(_required, tables))
    assert _required(dependencies[5:]) == wanted
    assert f"torch=={pins['torch']}+cpu" in dependencies
    assert own[0] == "--no-deps"
    assert own[-2:] == ["--editable", str(repository)]


def test_an_older_executorch_replaces_the_pinned_one_alone(repository: Path) -> None:
    install = runpy.run_path(str(repository / ".ci" / "install.py"))
    hashed = (repository / ".ci" / "constraints-hashed.txt").read_text()
    newest, older = TESTED
    other = install["with_executorch"](hashed, older)
    assert install["with_executorch"](hashed, newest) == install["with_executorch"](hashed, None) == hashed

    def entries(text: str) -> dict[str, str]:
        found = re.findall(r"^(\S+)==((?:.*\\\n)*.*\n)", text, re.MULTILINE)
        return dict(found)

    before, after = entries(hashed), entries(other)
    assert {name for name in before if before[name] != after[name]} == {"executorch"}
    assert before.keys() == after.keys()
    assert after["executorch"].startswith(f"{older} \\\n    --hash=sha256:")
    with pytest.raises(SystemExit, match=rf"no hashes of executorch 1.4.0\nhelp: use one of {newest}, {older}"):
        install["with_executorch"](hashed, "1.4.0")


_OF_MAKE = ("EXECUTORCH", "HASHES", "MAKEFLAGS", "MAKEOVERRIDES")
"""Variables that a `make` around the tests sets."""


@pytest.mark.parametrize(
    ("arguments", "environment", "version"),
    [
        pytest.param([], ".venv", TESTED[0], id="default"),
        pytest.param([f"EXECUTORCH={TESTED[0]}"], ".venv", TESTED[0], id="newest"),
        pytest.param([f"EXECUTORCH={TESTED[1]}"], f".venv-{TESTED[1]}", TESTED[1], id="older"),
    ],
)
def test_each_executorch_has_its_environment(
    repository: Path, tmp_path: Path, arguments: list[str], environment: str, version: str
) -> None:
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(repository / name, tmp_path)
    (tmp_path / ".ci").mkdir()
    shutil.copy(repository / ".ci" / "executorch-hashed.txt", tmp_path / ".ci")

    def asked(*more: str) -> list[str]:
        command = ["make", "--dry-run", "--no-print-directory", "test", "PYTHON=python3", *arguments, *more]
        environ = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    plain = asked()
    assert f"python3 -m venv {environment}" in plain
    assert f"sed 's/^executorch==.*/executorch=={version}/' constraints.txt > {environment}/constraints.txt" in plain
    assert plain[-1].startswith(f"{environment}/bin/pytest ")
    (installed,) = [line for line in asked("HASHES=1") if ".ci/install.py" in line]
    assert installed.startswith(f"{environment}/bin/python ")
    assert installed.split("--editable")[1].split() == (["--executorch", version] if arguments else [])


@pytest.mark.parametrize("arguments", [["--extras", "nope"], ["--group", "nope"]])
def test_an_unknown_extra_or_group_is_refused_before_pip_runs(
    repository: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    install = runpy.run_path(str(repository / ".ci" / "install.py"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip ran"))
    monkeypatch.setattr(sys, "argv", ["install.py", *arguments])
    with pytest.raises(SystemExit, match=r"error: etdev has no .*'nope'\nhelp: use some of "):
        install["main"]()


def test_other_actions_are_named_by_commit(repository: Path) -> None:
    """A tag can be moved to other code; a commit cannot. `OWNER/etdev` is a placeholder of the documentation."""
    workflows = [*repository.glob(".github/workflows/*.yml"), repository / "action.yml"]
    texts = [*workflows, *repository.glob("docs/*.md"), *repository.glob("src/etdev/templates/**/*.yml")]
    named = [match for path in texts for match in re.findall(r"uses: (\S+)@(\S+)(.*)", path.read_text())]
    others = [(action, commit, comment) for action, commit, comment in named if not action.startswith("OWNER/")]
    assert len(others) >= 7
    for action, commit, comment in others:
        assert re.fullmatch("[0-9a-f]{40}", commit), f"{action} is named by {commit}"
        assert re.fullmatch(r"  # v\d+\.\d+\.\d+", comment), f"{action} does not say its version"


def test_pins_install_anywhere(pins: dict[str, str]) -> None:
    assert not {name: version for name, version in pins.items() if "+" in version}


def test_doctor_knows_the_tested_versions(pins: dict[str, str]) -> None:
    tested = {name: versions[0] for name, versions, *_ in doctor.PACKAGES if versions}
    assert tested == {name: pins[name] for name in tested}


def test_changelog_has_this_version(repository: Path) -> None:
    assert f"## [{etdev.__version__}]" in (repository / "CHANGELOG.md").read_text()
