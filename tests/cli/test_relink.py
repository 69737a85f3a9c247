"""``etdev relink`` on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from etdev.cli import app
from etdev.cli.rendering.link_decisions import decision_lines
from etdev.decisions import Elision, InPlace
from etdev.pipeline.results.decision_counts import KINDS
from etdev.program import model as m
from etdev.program import read, write
from linker.programs import Method
from linker.programs import program as object_program
from program.hand import everything, tensor
from support.files import branches, chain, copies, counters, delegated, method, overwriting, program
from support.golden import check_golden

Run = Callable[..., tuple[int, str, str]]


def views() -> m.Program:
    """A view that goes, one whose input is written again too early, and one that the caller gets of his own input."""
    sizes = (m.Int(2), m.IntList((5, 5)), m.Bool(False))
    values = [tensor(4, at=0), tensor(2, 2, at=16), tensor(2, 2, at=32), tensor(2, 2, at=48), tensor(2, 2, at=64)]
    operators = (m.Operator("aten::view_copy", "out"), m.Operator("aten::sin", "out"), m.Operator("aten::copy_", ""))
    calls = [
        m.KernelCall(0, (0, 6, 1, 1)),
        m.KernelCall(1, (1, 2, 2)),
        m.KernelCall(0, (2, 6, 3, 3)),
        m.KernelCall(2, (2, 1, 7, 2)),
        m.KernelCall(1, (3, 4, 4)),
    ]
    return program(method([*values, *sizes], calls, outputs=(4, 2), operators=operators))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Write a program as ``a.pte``, link it with these arguments: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(found: m.Program, *arguments: str) -> tuple[int, str, str]:
        write(found, "a.pte")
        capfd.readouterr()
        code = app.run(["relink", "a.pte", *arguments])
        return code, *capfd.readouterr()

    return run


def test_the_golden_text(run: Run) -> None:
    """Everything that a link can say."""
    texts = []
    for found, *arguments in (
        (chain(10),),
        (chain(10), "--inplace", "none"),
        (counters(),),
        (counters(), "--inplace", "none"),
        (counters(buffer=2),),
        (delegated(ambiguous=True),),
        (branches(), "--inplace", "none"),
        (branches(), "--planner", "greedy", "--inplace", "none"),
        (chain(3), "--alignment", "128", "--inplace", "none"),
        (everything(),),
        (views(),),
        (views(), "-v", "--no-elide", "views", "--no-elide", "cat"),
        (views(), "-v"),
        (copies(),),
        (copies(), "-v"),
        (copies(), "--no-elide", "all"),
        (replace(chain(1), execution_plan=()),),
    ):
        code, out, err = run(found, "-o", "b.pte", *arguments)
        assert (code, err) == (0, "")
        texts.append(out)
    check_golden("relink.txt", "\n".join(texts))


def test_as_json_and_text(run: Run) -> None:
    code, out, err = run(chain(10), "-o", "new/b.pte", "--output", "json", "--output", "text=text.txt")

    assert (code, err) == (0, "")
    document = json.loads(out)
    assert (document["format"], document["memory_before"], document["memory_after"]) == (1, {"cpu": 176}, {"cpu": 16})
    assert (document["elide"], document["inplace"]) == (list(KINDS), "default")
    assert Path("text.txt").read_text().startswith("new/b.pte  from a.pte, planner best, alignment 16\n")
    assert sum(read("new/b.pte").execution_plan[0].non_const_buffer_sizes) == 16


@pytest.mark.parametrize(("command", "options"), [("relink", 2), ("run", 2), ("build", 1), ("inspect", 1)])
def test_what_writes_says_that_it_makes_folders(command: str, options: int, capfd: pytest.CaptureFixture[str]) -> None:
    app.run([command, "--help"])

    assert " ".join(capfd.readouterr().out.split()).count("Missing folders are made.") == options


def test_decisions_in_words() -> None:
    """Reasons of one kind are one line, the rare ones together; ``-v`` has all of them."""
    view = "aten::view_copy.out"
    copied = [Elision(index, view, "kept", 8, f"reason {max(index, 2)}") for index in range(8)]
    copied += [Elision(8, "aten::cat.out", "placed", 1024, "an input is a constant", "cat")]
    outputs = [InPlace(9, "aten::native_layer_norm.out", 0, 0, 4096), InPlace(9, "my::split.out", 1, None, 8, "no")]

    assert list(decision_lines(copied, outputs, verbose=False, method="first")) == [
        "  views      first: 0 of 8 copies removed",
        "             3 kept: reason 2",
        "             1 kept: reason 3",
        "             1 kept: reason 4",
        "             1 kept: reason 5",
        "             2 kept: 2 other reasons, see -v",
        "  cat        first: 1 of 1 copy removed, 1,024 bytes fewer to copy in a call",
        "             1 kept in part: an input is a constant",
        "  in place   first: 1 of 2 outputs over an operand, 4,096 bytes",
        "             1 not: no",
    ]
    assert list(decision_lines(copied[3:], outputs, verbose=True)) == [
        "  views      0 of 5 copies removed",
        *(f"             instruction {index} ({view}, 8 bytes): kept: reason {index}" for index in range(3, 8)),
        "  cat        1 of 1 copy removed, 1,024 bytes fewer to copy in a call",
        "             instruction 8 (aten::cat.out, 1,024 bytes): removed in part: an input is a constant",
        "  in place   1 of 2 outputs over an operand, 4,096 bytes",
        "             instruction 9 (aten::native_layer_norm.out, 4,096 bytes): over argument 0",
        "             instruction 9 (my::split.out, 8 bytes): output 1 not: no",
    ]
    assert list(decision_lines(copied[3:8], (), verbose=False))[-1] == "             1 kept: reason 7"
    assert list(decision_lines((), (), verbose=True)) == []


@pytest.mark.parametrize(
    ("found", "arguments", "code", "said"),
    [
        (overwriting(), ["-o", "b.pte"], 4, "error: a.pte, method 'forward': the caller (outputs) reads"),
        (chain(1), ["-o", "b.pte", "--planner", "a:b"], 2, "error: --planner: there is no planner 'a:b'\nhelp: relink"),
        (chain(1), ["-o", "b.pte", "--alignment", "3"], 2, "error: --alignment: 3 bytes is not an alignment\n"),
        (
            chain(1),
            ["-o", "b.pte", "--no-elide", "write-backs"],
            2,
            "error: --no-elide: unknown kind of copies 'write-backs'\nhelp: did you mean `write_back`?\n",
        ),
        (
            chain(1),
            ["-o", "b.pte", "--inplace", "all"],
            2,
            "error: --inplace: there is no list of in-place operators with the name 'all'\n",
        ),
        (chain(1), ["-o", "b.pte", "--output", "json=a.pte"], 2, "error: --output: 'a.pte' is a file that the command"),
        (chain(1), ["-o", "b.pte", "--output", "json=b.pte"], 2, "error: --output: 'b.pte' is a file that the command"),
        (chain(1), [], 2, "error: Missing option '-o'"),
        (chain(1), ["-o", "a.pte/b.pte"], 4, "error: a.pte/b.pte: cannot write the file: a part of the path is a file"),
        (chain(1), ["-o", "."], 4, "error: .: cannot write the file: this is a folder"),
    ],
)
def test_what_ends_in_an_error(run: Run, found: m.Program, arguments: list[str], code: int, said: str) -> None:
    ended, out, err = run(found, *arguments)

    assert (ended, out) == (code, "")
    assert err.startswith(said)
    assert os.listdir() == ["a.pte"]


def test_a_malformed_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pte").write_bytes(b"not a program at all")

    assert app.run(["relink", str(tmp_path / "a.pte"), "-o", str(tmp_path / "a.pte")]) == 2
    assert "this is not an ExecuTorch program" in capfd.readouterr().err
    assert (tmp_path / "a.pte").read_bytes() == b"not a program at all"


@pytest.mark.parametrize(("names", "calls"), [("a", "in a call"), ("ab", "if each method is called once")])
def test_traffic_of_banks_counts_a_call_of_each_method(run: Run, names: str, calls: str) -> None:
    (plan,) = chain(1).execution_plan
    found = program(*(replace(plan, name=name) for name in names))
    code, out, _ = run(found, "-o", "b.pte", "--bank", "ram:1:1KiB")
    assert code == 0
    assert f"\n             moved {calls}: {64 * len(names)} B in ram; " in out


def test_constants_that_go_into_the_file_are_said_with_the_memory_that_they_save(run: Run) -> None:
    """A weight that is also needed in another order: what memory loses, the file gains."""
    plan = Method()
    weight = plan.constant(64)
    plan.outputs = [plan.op(plan.turn(weight), weight, nbytes=16)]
    code, out, err = run(object_program(plan).program, "-o", "b.pte")

    assert (code, err) == (0, "")
    memory = next(line for line in out.splitlines() if line.startswith("  memory"))
    assert memory.startswith("  memory     cpu  ")
    assert " -> 16 bytes (" in memory
    assert "), and 64 bytes more of constants in the file: in total " in memory
