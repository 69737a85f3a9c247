"""``--data`` and the operators of a file, on the command line: which files belong together is checked. E1, E2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.running import Run, run
from etdev.cli import app
from etdev.program import Blob, flat_tensor, read, write
from etdev.program import model as m
from etdev.program.data_files.external import externalize
from program.hand import tensor
from support.files import ADD, method, program

__all__ = ["run"]
WEIGHT = bytes.fromhex("0000803f00000040000040400000803f")
"""1, 2, 3, 1."""


@pytest.fixture
def outside(run: Run, tmp_path: Path) -> Path:
    """``x + weight`` in ``in.pte``, and with the weight outside in ``out.pte`` and ``w.ptd``."""
    weight = tensor(4, data=1, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name="weight"))
    values = [tensor(4, at=0), weight, tensor(4, at=16), m.Int(1)]
    plan = method(values, [m.KernelCall(0, (0, 1, 3, 2, 2))], inputs=(0,), outputs=(2,), operators=(ADD,))
    inside = program(plan)
    inside = m.Program(
        inside.execution_plan,
        segments=(m.Segment(0, Blob(WEIGHT)),),
        constant_segment=m.SubsegmentOffsets(0, (0, 0)),
    )
    without, data = externalize(inside)
    write(inside, tmp_path / "in.pte")
    write(without, tmp_path / "out.pte")
    flat_tensor.write(data, tmp_path / "w.ptd")
    return tmp_path


@pytest.fixture
def command(outside: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run any command line next to the files."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return call


def test_run(run: Run, outside: Path) -> None:
    code, text, error = run("out.pte", "--input", "0=x.npy", "--data", "w.ptd")
    assert code == 0, error
    assert "min 1, max 5" in text
    code, _, error = run("out.pte", "--input", "0=x.npy")
    assert code == 2
    assert "out.pte: the program needs weights from another file: 'weight'" in error
    assert "help: pass that file: `--data FILE.ptd`" in error


def test_data_that_are_none(run: Run, outside: Path) -> None:
    code, _, error = run("out.pte", "--input", "0=x.npy", "--data", "in.pte")
    assert code == 2
    assert "in.pte: this is not a file of external data (no FT01 at byte 4)" in error
    flat_tensor.write(flat_tensor.FlatTensor(), outside / "none.ptd")
    code, _, error = run("out.pte", "--input", "0=x.npy", "--data", "none.ptd")
    assert code == 2
    assert "none.ptd: 'weight', the data of value 1 of method 'forward', is missing" in error
    assert "help: give the .ptd file that was written with out.pte" in error


def test_relink_joins(command: Run, outside: Path) -> None:
    code, text, _ = command("relink", "out.pte", "--data", "w.ptd", "-o", "one.pte")
    assert code == 0
    assert text.startswith("one.pte  from out.pte and w.ptd, planner best")
    (found,) = (value for _, value in read("one.pte").execution_plan[0].tensors() if value.is_constant)
    assert not found.is_external
    assert found.extra_tensor_info is None
    code, text, _ = command("relink", "out.pte", "-o", "still.pte", "--output", "json")
    assert (json.loads(text)["data"], json.loads(text)["external_data"]) == ([], ["weight"])
    assert command("relink", "out.pte", "--data", "w.ptd", "-o", "two.pte", "--output", "json=w.ptd")[0] == 2


def test_operators_of_a_file(command: Run, outside: Path) -> None:
    code, _, _ = command("inspect", "out.pte", "--output", "operators=ops.yaml")
    assert code == 0
    text = (outside / "ops.yaml").read_text()
    assert "et_kernel_metadata:\n  aten::add.out:\n  - v1/6;0|6;0|6;0|6;0\n" in text
    assert "debug_info:\n    - out.pte\n" in text


def test_the_weights_of_a_target_are_known(command: Run) -> None:
    code, _, error = command("verify", "cpu", "--data", "w.ptd")
    assert code == 2
    assert "--data: data files can be passed only with a .pte file; etdev finds those of a target on its own" in error
