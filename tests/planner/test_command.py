"""``python -m etdev.planner`` and its text format."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from etdev.planner import Buffer
from etdev.planner.__main__ import main
from etdev.planner.csvfile import CsvError, read_buffers

EXAMPLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"


@pytest.fixture
def example(tmp_path: Path) -> str:
    path = tmp_path / "example.csv"
    path.write_text(EXAMPLE)
    return str(path)


def test_a_plan_as_json(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([example, "--capacity", "12", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("seconds") >= 0
    offsets = document.pop("offsets")
    assert document == {"size": 12, "lower_bound": 12, "optimal": True}
    assert sorted(offsets) == ["b1", "b2", "b3", "b4", "b5"]
    assert len({offsets["b1"], offsets["b3"], offsets["b5"]}) == 3


def test_a_plan_in_words(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([example]) == 0
    assert capsys.readouterr().out.startswith("5 buffers: 12 bytes, optimal; ")
    assert main([example, "--planner", "naive"]) == 0
    assert "20 bytes, lower bound 12, gap 8; " in capsys.readouterr().out


def test_what_does_not_fit_is_exit_code_1(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([example, "--capacity", "11"]) == 1
    assert "optimal; exceeds the capacity by 1; " in capsys.readouterr().out


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(EXAMPLE))
    assert main(["-"]) == 0
    assert "12 bytes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"id,lower,upper\n1,0,3\n", "line 1: there is no column size; found id, lower, upper"),
        (b"lower,upper,size\n0,3,4\n0,3,4,5\n0,x,4\n", "line 4: upper: expected an integer, found 'x'"),
        (b"lower,upper,size,offset\n0,1,8,0\n0,1,8,4\n", "planner best: collision at instant 0: buffer 0 '0' at"),
        (b"\xff\xfe", "codec can't decode"),
    ],
)
def test_bad_input_is_exit_code_2(
    text: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text)
    assert main([str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ")
    assert message in error


def test_a_missing_file_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.csv")]) == 2
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "buffers"),
    [
        ("size,upper,lower\n8,3,1\n", [Buffer(8, 1, 3, 1, name="0")]),
        ("\ufeffID, Start, End, Size, note\na, 1, 3, 8, x\n\n# no buffer\n", [Buffer(8, 1, 3, 1, name="a")]),
        (
            "id,lower,upper,size,alignment,offset\na,1,3,8,64,\nb,1,3,8,,16\n",
            [Buffer(8, 1, 3, 64, name="a"), Buffer(8, 1, 3, 1, 16, name="b")],
        ),
        ("lower,upper,size\r\n", []),
    ],
)
def test_columns_come_in_any_order(text: str, buffers: list[Buffer]) -> None:
    assert read_buffers(text.splitlines()) == buffers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the line with the column names is missing; expected id,lower,upper,size"),
        ("lower,start,upper,size\n", "line 1: there are two columns 'lower'"),
        ("lower,upper,size\n1,3\n", "line 2: expected 3 values, found 2"),
        ("lower,upper,size\n1,3,8.5\n", "line 2: size: expected an integer, found '8.5'"),
        ("lower,upper,size\n3,1,8\n", "line 2: the buffer '0' ends at 1, before its start at 3"),
        ("id,lower,upper,size,alignment\na,1,3,8,3\n", "line 2: the buffer 'a' has the alignment 3; expected a power"),
        ("id,lower,upper,size\na,1,3,8\na,1,3,8\n", "line 3: the id 'a' is already in line 2"),
    ],
)
def test_text_that_is_no_problem(text: str, message: str) -> None:
    with pytest.raises(CsvError) as caught:
        read_buffers(text.splitlines())
    assert str(caught.value).startswith(message)
