"""``etdev diff`` on the command line."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.linker import link
from etdev.program import Blob, Program, write
from etdev.program import model as m
from program.hand import everything, loop
from support.files import banked, chain, copies, counters, delegated, overwriting
from support.golden import check_golden
from support.on_devices import two_devices
from support.projects import LINEAR, LINEAR_CONFIG, write_project
from support.reports import bank_report, write_report

Run = Callable[..., tuple[int, str, str]]


def _other_data(found: Program) -> Program:
    return replace(found, segments=(found.segments[0], m.Segment(128, Blob(b"DELEGATE"))))


def _other_weights(found: Program) -> Program:
    return replace(found, segments=(m.Segment(0, Blob(bytes(24))), *found.segments[1:]))


def _renamed(found: Program) -> Program:
    first, second = found.execution_plan
    return replace(found, execution_plan=(replace(first, name="third | one"), second))


def _on_one_device(found: Program) -> Program:
    """Delegates only: what the rest says of devices is not right any more."""
    (plan,) = found.execution_plan
    return replace(found, execution_plan=(replace(plan, delegates=(plan.delegates[0],) * 2),))


PAIRS: tuple[tuple[Program, Program], ...] = (
    (loop(), loop()),
    (loop(), everything()),
    (everything(), _other_weights(everything())),
    (delegated(), _other_data(delegated())),
    (delegated(), replace(delegated(), segment_alignment=4096)),
    (counters(), counters(buffer=2)),
    (counters(), _renamed(counters())),
    (chain(2), chain(3)),
    (copies(), link(copies()).program),
    (overwriting(), link(chain(2)).program),
    (chain(3), two_devices()),
    (two_devices(), _on_one_device(two_devices())),
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Compare two programs with these arguments: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(a: Program, b: Program, *arguments: str) -> tuple[int, str, str]:
        write(a, "a.pte")
        write(b, "b.pte")
        capfd.readouterr()
        code = app.run(["diff", "a.pte", "b.pte", *arguments])
        return code, *capfd.readouterr()

    return run


@pytest.mark.parametrize("form", ["text", "md"])
def test_the_golden_text(run: Run, form: str) -> None:
    """Everything that can differ. The exit code is 0 all the same."""
    texts = []
    for a, b in PAIRS:
        code, out, err = run(a, b, "--output", form)
        assert (code, err) == (0, "")
        texts.append(out)
    check_golden(f"diff.{form}", "\n".join(texts))


def compare(*arguments: str) -> tuple[int, str]:
    """The exit code and stdout."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        return app.run(["diff", *arguments]), out.getvalue()


def test_identical_files_take_one_line(run: Run) -> None:
    assert run(loop(), loop()) == (0, "a.pte and b.pte are identical\n", "")


def test_as_json(run: Run) -> None:
    code, out, _ = run(loop(), everything(), "--output", "json")

    document = json.loads(out)
    assert (code, document["format"], document["identical"]) == (0, 1, False)
    assert (document["a"]["memory"]["cpu"], document["b"]["memory"]["cpu"]) == (32, 1 << 33)


def test_as_a_page(run: Run, tmp_path: Path) -> None:
    code, out, err = run(loop(), everything(), "--output", "html=pages/diff.html")

    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("a.pte and b.pte differ")
    page = (tmp_path / "pages" / "diff.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert run(loop(), everything(), "--output", "html=-") == (0, page, "")
    assert run(loop(), everything(), "--output", "html") == (0, page, "")


@pytest.mark.parametrize("name", ["b.pte", "report.json", "a.object.json", "new.pte"])
def test_a_page_replaces_no_file_that_it_is_made_from(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "report.json").write_text("{}", encoding="utf-8")

    code, out, err = run(loop(), chain(1), "--output", f"html={name}")

    assert (code, out) == (2, "")
    assert "--output" in err
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == "{}"


def test_targets_by_their_names(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target and a file, two targets; from the folder of the config, and from another one with ``-c``."""
    write_project(Path(), f"{LINEAR_CONFIG}[targets.cpu]\n[targets.other]\n[targets.unbuilt]\n", model=LINEAR)
    for target, made in (("cpu", loop()), ("other", chain(1))):
        Path("build", target).mkdir(parents=True)
        write(made, Path("build", target, "tiny.pte"))
    assert compare("cpu", "cpu") == (0, "build/cpu/tiny.pte and build/cpu/tiny.pte are identical\n")
    assert compare("cpu", "other")[1].splitlines()[-1].startswith("build/cpu/tiny.pte and build/other/tiny.pte differ")
    run(loop(), chain(1))
    assert compare("a.pte", "cpu") == (0, "a.pte and build/cpu/tiny.pte are identical\n")
    monkeypatch.chdir(tmp_path / "build")
    file, config = str(tmp_path / "a.pte"), ("-c", "../etdev.toml")
    assert compare(file, "cpu", *config) == (0, f"{file} and cpu/tiny.pte are identical\n")
    assert compare("other", "unbuilt", *config)[0] == 2
    assert compare("cpu", "cup", *config)[0] == 2


def test_a_file_that_is_not_there(run: Run) -> None:
    write(loop(), "a.pte")

    assert app.run(["diff", "a.pte", "nowhere.pte"]) == 2


def test_buffers_have_the_names_of_their_banks(run: Run, tmp_path: Path) -> None:
    for name, of in (("a", banked(8, 16)), ("b", banked(8, 32))):
        (tmp_path / name).mkdir()
        write(of, tmp_path / name / "m.pte")
    _, unnamed = compare(str(tmp_path / "a" / "m.pte"), str(tmp_path / "b" / "m.pte"))
    assert "    buffer 2     64 bytes   128 bytes\n" in unnamed, unnamed
    write_report(tmp_path / "a" / "m.pte", banks=bank_report(48, 64))
    other = bank_report(48, 128)
    write_report(tmp_path / "b" / "m.pte", banks=replace(other, banks=(replace(other.banks[0], name="tcm"),)))
    _, named = compare(str(tmp_path / "a" / "m.pte"), str(tmp_path / "b" / "m.pte"))
    rows = [line.split("  ") for line in named.splitlines()]
    labels = [cell for row in rows for cell in row if cell.startswith("buffer")]
    assert labels == [
        "buffer 1 (slow)",
        "buffer 2 (fast, tcm)",
        "buffer 1 (slow) on cpu",
        "buffer 2 (fast, tcm) on cpu",
    ]
