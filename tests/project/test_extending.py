"""docs/extending.md: each example, installed as a package of its own, works as the page says."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from etdev import plugins
from etdev.cli import app
from etdev.plugins import Group
from support.plugins import Site

GROUPS = {group.name: group for group in vars(plugins).values() if isinstance(group, Group)}
_BLOCK = re.compile(r"^```(?:python|toml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

TARGET = """
partitioners = [{ backend = "toy" }]
memory.planner = "largest-first"
verify.require = ["replay", "no-float64"]
[deploy.stick]
target = "cpu"
uri = "usb://stick/models"
"""


def examples(page: str) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """The entry points of the page, by group, and its files, by path."""
    points: dict[str, dict[str, str]] = {}
    files = {}
    for block in _BLOCK.findall(page):
        if block.startswith("[project.entry-points"):
            points |= tomllib.loads(block)["project"]["entry-points"]
        else:
            path = block.partition("\n")[0].removeprefix("# ")
            files[path] = block
    return points, files


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[None]:
    """Every group's example is a package, with the files that its entry points need."""
    points, files = examples((repository / "docs" / "extending.md").read_text())
    with pytest.MonkeyPatch.context() as patch:
        site = Site(tmp_path_factory.mktemp("site"), patch)
        for group, entries in points.items():
            site.install(group.replace(".", "_"), {group: entries})
        site.install("files", {}, files)
        yield


@pytest.fixture(scope="module")
def template(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project of the template."""
    folder = tmp_path_factory.mktemp("project") / "net"
    assert app.run(["init", str(folder), "--template", "toy", "-q"]) == 0
    return folder


@pytest.fixture(scope="module")
def built(template: Path) -> Path:
    """The project, built with the backend and the planner."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    config = template / "etdev.toml"
    config.write_text(config.read_text() + TARGET)
    assert app.run(["build", "-q", "-c", str(config)]) == 0
    return config


@pytest.mark.usefixtures("installed")
def test_every_extension_point_has_an_example(repository: Path) -> None:
    points, _ = examples((repository / "docs" / "extending.md").read_text())
    assert points.keys() == GROUPS.keys()
    for name, group in GROUPS.items():
        assert set(plugins.names(group)) == {*group.built_in, *points[name]}


def test_the_template(template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 'name = "net"' in (template / "etdev.toml").read_text()
    assert (template / "model.py").is_file()
    assert app.run(["init", "--list"]) == 0
    assert re.search(r"^toy +a model of one layer$", capsys.readouterr().out, re.MULTILINE)


def test_the_backend_is_built_and_replayed_and_the_planner_plans(built: Path) -> None:
    (target,) = json.loads((built.parent / "build" / "cpu" / "report.json").read_text())["targets"]
    checks = {check["name"]: check["status"] for check in target["checks"]}
    assert (checks["replay"], checks["plan"], checks["runtime"]) == ("passed", "passed", "not run")
    assert checks["no-float64"] == "passed"
    assert "largest-first" in json.dumps(target)
    (method,) = target["methods"]
    assert "ToyBackend" in json.dumps(method)


def test_the_planner_relinks(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = built.parent / "build" / "cpu" / "net.pte"
    arguments = ["relink", str(program), "-o", str(tmp_path / "new.pte"), "--planner", "largest-first"]
    assert app.run([*arguments, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["planner"], found["plan"]) == ("largest-first", "passed")


def test_the_worker_transport_makes_the_calls(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = str(built.parent / "build" / "cpu" / "net.pte")
    digests = []
    for more in ([], ["--workers", "2", "--transport", "inline"]):
        assert app.run(["run", program, "--random", "--runtime", "replay", "--output", "json", *more]) == 0
        digests.append(re.findall(r'"digest": *"(\w+)"', capsys.readouterr().out))
    assert digests[0]
    assert digests[0] == digests[1]


def test_the_deploy_transport_publishes(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USB_MOUNTS", str(tmp_path))
    assert app.run(["deploy", "stick", "-c", str(built)]) == 6
    (tmp_path / "stick").mkdir()
    assert app.run(["deploy", "stick", "-c", str(built)]) == 0
    program = tmp_path / "stick" / "models" / "current" / "net.pte"
    assert program.read_bytes() == (built.parent / "build" / "cpu" / "net.pte").read_bytes()
