"""``etdev report`` on the command line, and the page of ``etdev build``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import etdev
from etdev.cli import app
from etdev.inspection.report import build_page
from etdev.program import write
from etdev.program.sidecar import read_sidecar
from inspection.report.builds import built_file
from support.files import chain
from support.projects import LINEAR, LINEAR_CONFIG, write_project

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line beside ``m.pte``: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    write(chain(2), "m.pte")

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return run


def test_the_page_goes_beside_the_file(run: Run) -> None:
    assert run("report", "m.pte") == (0, "", "wrote m.html\n")
    page = Path("m.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>\n")
    assert run("report", "m.pte", "-q") == (0, "", "")
    assert run("report", "m.pte", "--output", "html=docs/a.html") == (0, "", "wrote docs/a.html\n")
    assert Path("docs/a.html").read_text(encoding="utf-8") == page
    assert run("report", "m.pte", "--output", "html") == (0, page, "")


def test_a_target_by_its_name(run: Run) -> None:
    write_project(Path(), f"{LINEAR_CONFIG}[targets.cpu]\n", model=LINEAR)
    code, _, err = run("report", "cpu")
    assert code == 2
    assert "the target 'cpu' was not built" in err
    Path("build/cpu").mkdir(parents=True)
    built_file(Path("build/cpu"), chain(2))
    assert run("report", "cpu") == run("report", "cpu", "-c", "etdev.toml") == (0, "", "wrote build/cpu/tiny.html\n")
    assert Path("build/cpu/tiny.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no.pte",), "error: no.pte: cannot read the program: there is no such file"),
        (("broken.pte",), "error: broken.pte: the file has 1 bytes, too few for a program"),
        (("cpu",), "error: 'cpu' is not a file, and cannot be a target because this folder has no config"),
        (("m.pte", "--output", "html=m.pte"), "error: --output: 'm.pte' is a file that the command itself reads"),
        (
            ("m.pte", "--data", "w", "--output", "html=w"),
            "error: --output: 'w' is a file that the command itself reads",
        ),
        (
            ("m.pte", "--output", "html=new.ptd"),
            "error: --output: a report cannot be written to 'new.ptd': the suffix .ptd is for built files",
        ),
        (("m.pte", "--data", "broken.pte"), "error: broken.pte: "),
        (("m.pte", "--output", "json"), "error: --output: unknown format 'json'"),
        (("m.pte", "--output", "html=m.pte/a.html"), "error: m.pte/a.html: cannot write the file"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], said: str, run: Run) -> None:
    Path("broken.pte").write_bytes(b"x")
    code, out, err = run("report", *arguments)
    assert (code, out) == (4 if "cannot write" in said else 2, "")
    assert err.startswith(said)
    assert not list(Path().rglob("*.html"))


def test_a_dry_run_has_no_page(run: Run) -> None:
    write_project(Path(), f"{LINEAR_CONFIG}[targets.cpu]\n", model=LINEAR)
    code, _, err = run("build", "--dry-run", "--output", "html=page.html")
    assert code == 2
    assert "--dry-run does not build anything, so there is nothing for a page" in err


def test_a_build_leaves_what_the_page_needs(tmp_path: Path) -> None:
    """E2: the lines of the model's code, found again for the instructions of the file that was linked."""
    pytest.importorskip("executorch", reason="executorch is not installed")
    config = write_project(tmp_path, f"{LINEAR_CONFIG}[targets.cpu]\n", model=LINEAR)
    result = etdev.build(config, verify=False, environ={})

    (method,) = result["cpu"].methods
    assert set(method.renumbered.values()) == set(range(method.instructions))
    (notes,) = read_sidecar(tmp_path / "build/cpu/tiny.object.json").methods.values()
    assert notes.sources
    page = etdev.report(result.path("cpu")).read_text(encoding="utf-8")
    assert "return self.layer(x).relu()" in page
    assert build_page(result) == page
    again = etdev.build(config, verify=False, environ={})
    assert "unchanged: taken from the cache" in again["cpu"].notes
    assert build_page(again) == page
