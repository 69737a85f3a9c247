"""``etdev inspect`` on the command line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import etdev
from etdev.cli import app
from etdev.cli.inspect import render
from etdev.inspection.inspect import inspect_memory
from etdev.linker import link
from etdev.program import Program, write
from etdev.program import model as m
from inspection.report.builds import built_file, two_files
from program.hand import everything, loop, tensor
from support.files import banked, chain, copies, counters, delegated, method, overwriting, program, sin
from support.golden import check_golden
from support.projects import LINEAR, LINEAR_CONFIG, write_project
from support.reports import bank_report, write_report


def _linked(found: Program) -> Program:
    return link(found).program


def _many(count: int) -> Program:
    """All tensors are in use to the end."""
    values = [tensor(4, at=16 * index) for index in range(count)]
    return program(method(values, [sin(index, index + 1) for index in range(count - 1)], outputs=range(count)))


FILES: dict[str, Callable[[], Program]] = {
    "everything.pte": everything,
    "loop.pte": loop,
    "counters.pte": lambda: counters(buffer=2),
    "delegated.pte": delegated,
    "overwriting.pte": overwriting,
    "chain.pte": lambda: _linked(chain(3)),
    "copies.pte": copies,
    "many.pte": lambda: _many(8),
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line next to the files: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    for name, make in FILES.items():
        write(make(), name)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return run


def test_the_golden_text(run: Run) -> None:
    """Everything that can be said of a file."""
    check_golden("inspect.txt", "\n".join(render(etdev.inspect(name), verbose=True) + "\n" for name in FILES))


def test_the_golden_json(run: Run) -> None:
    """Programs read this document: its keys and their meanings stay as they are while ``format`` is 1."""
    code, out, err = run("inspect", "everything.pte", "--output", "json")

    assert (code, err) == (0, "")
    check_golden("inspect.json", out)


def test_what_the_document_promises(run: Run) -> None:
    document = json.loads(run("inspect", "delegated.pte", "--output", "json")[1])

    assert {"format", "file", "methods", "weights_bytes", "segments"} <= set(document)
    (described,) = document["methods"]
    assert {"name", "buffers", "inputs", "outputs", "instructions", "operators", "delegates"} <= set(described)
    buffer = {"index": 1, "device": "cpu", "size": 96, "lower_bound": 96, "greedy": None, "state": False}
    assert described["buffers"] == [{**buffer, "bank": None, "capacity": None}]
    assert described["transfers"] == {"h2d_bytes": 0, "d2h_bytes": 0, "loops": False}
    (peak,) = described["peaks"]
    values = peak.pop("tensors")
    assert peak == {
        "buffer": 1,
        "device": "cpu",
        "nbytes": 32,
        "instant": 1,
        "instruction": 0,
        "during": "XnnpackBackend",
        "module": None,
        "source": None,
    }
    assert values[1] == {
        "value": 1,
        "values": 1,
        "dtype": "float32",
        "shape": [4],
        "nbytes": 16,
        "instruction": 0,
        "origin": "XnnpackBackend",
        "name": None,
        "module": None,
        "source": None,
        "until": None,
        "last_user": "the caller",
        "last_module": None,
    }
    (linked,) = json.loads(run("inspect", "chain.pte", "--output", "json")[1])["methods"]
    assert linked["inplace"][0] == {
        "instruction": 0,
        "operator": "aten::sin.out",
        "output": 1,
        "operand": 0,
        "nbytes": 16,
    }
    (copied,) = json.loads(run("inspect", "copies.pte", "--output", "json")[1])["methods"]
    assert copied["copies"][1] == {"operator": "aten::cat.out", "kind": "cat", "calls": 1, "nbytes": 24}


def test_segments_are_listed_when_asked_for(run: Run) -> None:
    code, out, err = run("inspect", "delegated.pte")

    assert (code, err) == (0, "")
    assert "segments" not in out
    assert "  segments   0  0 bytes  at 0    constants\n" in run("inspect", "-v", "delegated.pte")[1]


def test_what_is_listed_when_asked_for(run: Run) -> None:
    """The largest five of the tensors at a peak, and no single output in place, if it is not."""
    assert "    and 3 more, 48 bytes\n" in run("inspect", "many.pte")[1].replace(" " * 9, "")
    assert "more" not in run("inspect", "-v", "many.pte")[1]
    listed = "instruction 1 (aten::sin.out, 16 bytes): value 2 over value 1"
    assert "  in place   3 outputs over an operand, 48 bytes\n" in run("inspect", "chain.pte")[1]
    assert listed not in run("inspect", "chain.pte")[1]
    assert listed in run("inspect", "-v", "chain.pte")[1]


def test_names_in_a_file_do_not_drive_the_terminal(run: Run) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\n\u202e" + "x" * 1000
    named = tensor(4, at=0, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name=evil))
    plan = method([named, tensor(4, at=16)], [sin(0, 1)], name=evil)
    plan = replace(plan, operators=(m.Operator("aten::add", "out"), m.Operator(evil, "out")))
    found = delegated(backend=evil)
    write(replace(found, execution_plan=(plan, *found.execution_plan)), "evil.pte")
    write(replace(overwriting(), execution_plan=(replace(overwriting().execution_plan[0], name=evil),)), "wrong.pte")

    code, out, err = run("inspect", "-v", "evil.pte")
    assert (code, err) == (0, "")
    assert "\\x1b[2J\\x1b]0;owned\\x07\\n\\u202e" in out
    assert max(map(len, out.splitlines())) < 1_000
    for shown in (out, *run("diff", "evil.pte", "loop.pte")[1:], *run("relink", "wrong.pte", "-o", "o.pte")[1:]):
        assert all(character.isprintable() or character == "\n" for character in shown)


def test_what_this_version_does_not_know_is_warned_of(run: Run) -> None:
    with open("delegated.pte", "ab") as file:
        file.write(b"more")
    code, out, err = run("inspect", "delegated.pte", "--output", "json")

    assert code == 0
    assert json.loads(out)["unknown_fields"] == ["4 bytes after the last segment"]
    assert err.startswith("warning: delegated.pte: the file has content that this version of etdev does not know: 4 by")
    assert "help: use a newer version of etdev: this description may be incomplete" in err


DAMAGED = "help: copy or build the file again: it is not a .pte, or it is truncated or damaged\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "error: no.pte: cannot read the program: there is no such file\n"),
        (b"", f"error: no.pte: the file has 0 bytes, too few for a program\n{DAMAGED}"),
        (
            b"not a program at all",
            f"error: no.pte: this is not an ExecuTorch program\n{DAMAGED}",
        ),
    ],
)
def test_what_cannot_be_read(run: Run, content: bytes | None, said: str) -> None:
    if content is not None:
        Path("no.pte").write_bytes(content)
    assert run("inspect", "no.pte") == (2, "", said)


@pytest.mark.parametrize(
    ("name", "content", "message", "remedy"),
    [
        (
            "report.json",
            '{\n  "format": 1,\n  "project": "tiny",\n  "config": "etdev.toml"\n}',
            "this is etdev's report of a build, not a program",
            "pass a .pte of the build, or the name of its target",
        ),
        (
            "tiny.object.json",
            '{\n "format": 5,\n "methods": {}\n}',
            "this is etdev's description of an object program, not a program",
            "pass the file that it describes, `tiny.object.pte`, or the program `tiny.pte`",
        ),
        ("other.json", '{"a": 1}', "this is a JSON file, not a program", "pass a .pte file"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "verify", "report"])
def test_a_json_file_in_place_of_a_program(
    run: Run, command: str, name: str, content: str, message: str, remedy: str
) -> None:
    """The remedy was to copy the file again."""
    Path(name).write_text(content)
    code, out, err = run(command, name)
    assert code in (2, 4)
    assert message in out + err
    assert f"help: {remedy}\n" in out + err


def test_a_target_by_its_name(run: Run) -> None:
    write_project(Path(), f"{LINEAR_CONFIG}[targets.cpu]\n", model=LINEAR)
    code, out, err = run("inspect", "cpu")
    assert (code, out) == (2, "")
    assert "the target 'cpu' was not built" in err
    Path("build/cpu").mkdir(parents=True)
    write(loop(), "build/cpu/tiny.pte")
    named = run("inspect", "cpu", "--output", "json")
    assert named == run("inspect", "build/cpu/tiny.pte", "--output", "json")
    assert named == run("inspect", "cpu", "-c", "etdev.toml", "--output", "json")
    assert named[0] == 0
    code, _, err = run("inspect", "cpu", "--output", "json=build/cpu/tiny.pte")
    assert code == 2
    assert "is a file that the command itself reads" in err


def test_charts_of_memory(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes in use over the lower bound, and who lies where: a chain goes up the addresses, step by step."""
    monkeypatch.setenv("COLUMNS", "40")
    write(chain(3), "steps.pte")
    code, out, err = run("inspect", "steps.pte", "--chart")

    assert (code, err) == (0, "")
    assert out[out.index("  chart") :] == (
        "  chart      buffer 1 on cpu: bytes in use, and below that the tensors by address\n"
        "       64 B |                         |\n"
        "            |                         |\n"
        "            |┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄|\n"
        "            |     ███████████████     |\n"
        "            |▄▄▄▄▄███████████████▄▄▄▄▄|\n"
        "          0 |█████████████████████████|\n"
        "       64 B |               ██████████|\n"
        "            |               ██████████|\n"
        "            |          ▒▒▒▒▒█████▒▒▒▒▒|\n"
        "            |          ██████████     |\n"
        "            |          ██████████     |\n"
        "            |     ██████████          |\n"
        "            |     ██████████          |\n"
        "            |▒▒▒▒▒█████▒▒▒▒▒          |\n"
        "            |██████████               |\n"
        "          0 |██████████               |\n"
        "             in   3 instructions   out\n"
        "             ┄ lower bound for any plan, 32 B\n"
    )


@pytest.mark.parametrize("columns", [1, 30, 80, 1000])
def test_charts_fit_the_terminal(columns: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in FILES:
        out = run("inspect", name, "--chart")[1]
        drawn = [line for line in out.splitlines() if line.endswith("|")]
        assert all(len(line) <= min(max(columns, 30), 134) for line in drawn)
        assert len({len(line) for line in drawn}) <= 2  # Methods differ in their instructions.


def test_charts_without_block_characters(run: Run) -> None:
    class Ascii(io.StringIO):
        encoding = "ascii"

    stream = Ascii()
    write(chain(3), "steps.pte")
    found, memories = inspect_memory("steps.pte")
    text = render(found, stream, memories=memories)
    assert "\n            |_____" in text
    assert text.isascii()


def test_what_has_no_lifetimes_has_no_chart(run: Run) -> None:
    assert "chart" not in run("inspect", "overwriting.pte", "--chart")[1]
    assert "chart" not in run("inspect", "loop.pte")[1]


def test_banks_have_their_names(run: Run) -> None:
    write(banked(8, 16), "banked.pte")
    _, unnamed, _ = run("inspect", "banked.pte")
    assert "buffers    buffer 1  cpu  48 bytes\n             buffer 2  cpu  64 bytes\n" in unnamed
    write_report(Path("banked.pte"), banks=bank_report(48, 64))
    _, named, _ = run("inspect", "banked.pte", "--chart")
    assert "  buffers    buffer 1  cpu  48 bytes  of 4,096 in bank slow\n" in named
    assert "             buffer 2  cpu  64 bytes  of 128 in bank fast\n" in named
    assert "  memory     buffer 1 (slow)  cpu  48 bytes  " in named
    assert "  peak       buffer 1 (slow)  32 bytes while " in named
    assert "  chart      buffer 2 (fast) on cpu: bytes in use" in named


def test_data_files_of_a_build_have_their_sizes(run: Run, tmp_path: Path) -> None:
    file, data = two_files(tmp_path)
    size = data.stat().st_size
    assert f"  external   2 items of data in w.ptd ({size:,} bytes)" in run("inspect", file.name)[1].splitlines()
    write(chain(3), "other.pte")
    shown = run("diff", file.name, "other.pte")[1]
    assert re.search(rf"data files +{size:,} bytes +0 bytes", shown)
    (tmp_path / "moved").mkdir()
    moved = file.rename(tmp_path / "moved" / "a.pte")
    shown = run("diff", str(moved), str(two_files(tmp_path)[0]))[1]
    assert shown == f"{moved} and {tmp_path}/tiny.pte are identical\n"
    write(replace(everything(), version=1), "everything.pte")
    assert re.search(rf"data files +{size:,} bytes +unknown", run("diff", "tiny.pte", "everything.pte")[1])


def test_the_peak_has_the_code_of_the_model(run: Run, tmp_path: Path) -> None:
    built_file(tmp_path, chain(2), name="built", modules={0: "layers.0", 1: ""})
    lines = run("inspect", "built.pte")[1].splitlines()
    (peak,) = [line for line in lines if line.startswith("  peak")]
    assert peak.endswith("at instruction 0 (aten::sin.out)  layers.0 (model.py:11)")
    assert next(line for line in lines if "value 1 " in line).endswith(
        "instruction 0 (aten::sin.out)  layers.0 (model.py:11)"
    )
    assert next(line for line in lines if "value 0 " in line).endswith("input 0")
