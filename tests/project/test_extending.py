"""docs/extending.md: each example, installed as a package of its own, works as the page says."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import etdev
from etdev import plugins
from etdev.cli import app
from etdev.plugins import Group
from runner.compiled import tools
from support.native import native_host
from support.plugins import Site
from support.scale_backends import compile_libraries

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


@pytest.mark.integration
def test_the_backend_is_built_and_replayed_and_the_planner_plans(built: Path) -> None:
    (target,) = json.loads((built.parent / "build" / "cpu" / "report.json").read_text())["targets"]
    checks = {check["name"]: check["status"] for check in target["checks"]}
    assert (checks["replay"], checks["plan"], checks["runtime"]) == ("passed", "passed", "not run")
    assert checks["no-float64"] == "passed"
    assert "largest-first" in json.dumps(target)
    (method,) = target["methods"]
    assert "ToyBackend" in json.dumps(method)


@pytest.mark.integration
def test_the_native_library_runs(built: Path, repository: Path, tmp_path: Path) -> None:
    native_host()
    page = (repository / "docs" / "extending.md").read_text()
    for path, text in re.findall(r"^```(?:cpp|cmake)\n(?://|#) (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        (tmp_path / path).write_text(text)
    compile_libraries(tools(), tmp_path / "build", tmp_path)
    site = Path(find_spec("toy_native").origin)  # type: ignore[arg-type, union-attr]
    shutil.copy(tmp_path / "build" / "libtoy_backend.so", site.parent)
    program = str(built.parent / "build" / "cpu" / "net.pte")
    outputs = []
    for runtime in ("replay", "native"):
        out = tmp_path / runtime
        assert app.run(["run", program, "--random", "--runtime", runtime, "--save", str(out), "-q"]) == 0
        outputs.append(np.load(next(out.glob("*.npy"))))
    assert (outputs[0] == 0).any()  # The delegate computes `relu`.
    np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-6)


@pytest.mark.integration
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


def test_the_bank_planner_divides_the_buffers(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = built.parent / "build" / "cpu" / "net.pte"
    size = next(iter(etdev.inspect(program).memory.values()))
    arguments = ["relink", str(program), "-o", str(tmp_path / "new.pte"), "--planner", "busiest-first"]
    banks = ["--bank", f"fast:2:{size // 2}", "--bank", f"slow:1:{size}"]
    assert app.run([*arguments, *banks, "--output", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["planner"], found["plan"]) == ("busiest-first", "passed")
    assert all(0 < bank["used"] <= bank["capacity"] for bank in found["banks"]["banks"])
    assert app.run([*arguments, "--output", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert (alone["plan"], alone["banks"]) == ("passed", None)
