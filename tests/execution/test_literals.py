"""Inputs of ``etdev run`` that are written as numbers and lists, and values of a wrong shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra `build`")

import numpy as np
import torch

from etdev.errors import UsageError
from etdev.execution.call_inputs import read_calls
from etdev.program import model as m
from program.analysis.test_quantized_ends import END, OUT, described
from program.hand import tensor
from support.files import method

TYPES = {
    "bool": m.ScalarType.BOOL,
    "uint8": m.ScalarType.BYTE,
    "int8": m.ScalarType.CHAR,
    "int64": m.ScalarType.LONG,
    "float16": m.ScalarType.HALF,
    "float32": m.ScalarType.FLOAT,
}


def plan(dtype: str, *sizes: int, bound: bool = False) -> m.ExecutionPlan:
    dynamism = m.TensorShapeDynamism.DYNAMIC_BOUND if bound else m.TensorShapeDynamism.STATIC
    return method([replace(tensor(*sizes, at=0, shape_dynamism=dynamism), scalar_type=TYPES[dtype])], [])


@pytest.mark.parametrize(
    ("dtype", "sizes", "text", "expected"),
    [
        ("int64", (1,), "3", [3]),
        ("int64", (1, 1), "-3", [[-3]]),
        ("int64", (), "3", 3),
        ("int64", (3,), "[3, 5,7]", [3, 5, 7]),
        ("int64", (1, 3), " [[3,5,7]] ", [[3, 5, 7]]),
        ("uint8", (2,), "[0, 255]", [0, 255]),
        ("uint8", (1,), "3.0", [3]),
        ("float32", (1,), "1e-3", [pytest.approx(1e-3)]),
        ("float32", (2,), "[1, -Infinity]", [1.0, float("-inf")]),
        ("bool", (2,), "[true, 0]", [True, False]),
        ("bool", (1,), "True", [True]),
        ("float32", (0, 4), "[]", []),
        ("float32", (2, 0), "[[], []]", [[], []]),
    ],
)
def test_values(dtype: str, sizes: tuple[int, ...], text: str, expected: object) -> None:
    calls = read_calls(plan(dtype, *sizes), ["token"], [f"token={text}"])
    ((found,),) = calls.samples
    assert (found.tolist(), tuple(found.shape)) == (expected, sizes)
    assert str(found.dtype) == f"torch.{dtype}"


def test_sizes_below_the_maximum() -> None:
    ((found,),) = read_calls(plan("int64", 1, 8, bound=True), ["tokens"], ["[[3, 5]]"]).samples
    assert found.tolist() == [[3, 5]]


def test_a_list_may_be_a_data_set() -> None:
    calls = read_calls(plan("int64", 1, 1), ["token"], ["[[3], [5]]"])
    assert [sample[0].tolist() for sample in calls.samples] == [[[3]], [[5]]]


def test_numbers_for_a_quantized_input_are_quantized() -> None:
    program = described(END, OUT)
    ((x, _),) = read_calls(
        program.method("forward"), ("x", "y"), ["x=[0.5, 1.2, 0, 0]", "y=[0, 1, 2, 3]"], (END, OUT)
    ).samples
    assert (x.dtype, x.tolist()[:2]) == (torch.int8, [-2, -1])


def test_a_file_with_brackets_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("[3].txt").write_text("7")
    ((found,),) = read_calls(plan("int64", 1), ["token"], ["token=[3].txt"]).samples
    assert found.tolist() == [7]


@pytest.mark.parametrize(
    ("wanted", "text", "message", "hint"),
    [
        (plan("int64", 4), "3", "is int64 [4], but the value is one number", "write a list of numbers with this shape"),
        (plan("int64", 0, 4), "3", "is int64 [0, 4], but the value is one number", "write [], or use"),
        (plan("int64", 4, bound=True), "3", "is int64 [4] at most, but the value is one number", "write a list"),
        (plan("int64", 1), "[3, 5]", "but the value is int64 [2]: axis 0 is 2, not 1", "an array of int64 [1]"),
        (
            plan("int64", 4, bound=True),
            "[1, 2, 3, 4, 5]",
            "but the value is int64 [5]: axis 0 is 5, but at most 4",
            "pass an array of int64 [4] at most",
        ),
        (plan("int64", 1, 3), "[3, 5, 7]", "is int64 [1, 3], but the list has 1 axis", "axes: [[…]]"),
        (plan("int64"), "[[3]]", "is int64 [], but the list has 2 axes", "write a number"),
        (plan("int64", 2, 2), "[[1, 2], [3]]", "the lists have different lengths or depths", "equal lengths"),
        (plan("int64", 2), "[1, [2]]", "the lists have different lengths or depths", "equal lengths"),
        (plan("int64", 2), "[1, 2", "'[1, 2' is not a list of numbers", "in quotes for the shell"),
        (plan("int64", 1), "[" * 900 + "]" * 900, "", ""),
        (plan("int64", 1), "[" * 9000, "is not a list of numbers", "in quotes for the shell"),
        (plan("int64", 1), "1.5", "is int64, which cannot hold 1.5", "write whole numbers from -9223372036854775808"),
        (plan("int64", 1), "nan", "is int64, which cannot hold NaN", "write whole numbers"),
        (plan("int64", 1), "true", "is int64, which cannot hold true", "write whole numbers"),
        (plan("uint8", 2), "[1, 256]", "is uint8, which cannot hold 256", "write whole numbers from 0 to 255"),
        (plan("uint8", 2), '[1, "2"]', 'is uint8, which cannot hold "2"', "write whole numbers from 0 to 255"),
        (plan("float16", 1), "1e6", "is float16, which cannot hold 1000000.0", "write numbers from -65504 to 65504"),
        (plan("float32", 1), "[null]", "is float32, which cannot hold null", "write numbers"),
        (plan("bool", 1), "2", "is bool, which cannot hold 2", "write true or false"),
        (plan("int64", 1), "three", "three is not in a format that etdev can read", "or a list such as [3, 5, 7]"),
    ],
)
def test_refused(wanted: m.ExecutionPlan, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_calls(wanted, ["token"], [f"token={text}"])
    assert message in caught.value.message
    assert "input 'token'" in caught.value.message
    assert hint in (caught.value.hint or "")


IMAGES, ONE_IMAGE = plan("uint8", 4, 96, 128, 3, bound=True), plan("uint8", 1, 3, 96, 128)


@pytest.mark.parametrize(
    ("wanted", "sizes", "message", "hint"),
    [
        (
            IMAGES,
            (1, 3, 96, 128),
            ": axis 3 is 128, but at most 3; the value looks like channels first",
            "pass an array of uint8 [4, 96, 128, 3] at most: `array.transpose(0, 2, 3, 1)`",
        ),
        (IMAGES, (5, 96, 128, 3), ": axis 0 is 5, but at most 4", "pass an array of uint8 [4, 96, 128, 3] at most"),
        (
            ONE_IMAGE,
            (1, 96, 128, 3),
            ": axis 1 is 96, not 3, axis 2 is 128, not 96, axis 3 is 3, not 128; the value looks like channels last",
            "pass an array of uint8 [1, 3, 96, 128]: `array.transpose(0, 3, 1, 2)`",
        ),
        (
            plan("uint8", 3, 96, 128),
            (96, 128, 3),
            ": axis 0 is 96, not 3, axis 1 is 128, not 96, axis 2 is 3, not 128; the value looks like channels last",
            "pass an array of uint8 [3, 96, 128]: `array.transpose(2, 0, 1)`",
        ),
        (ONE_IMAGE, (1, 3, 97, 129), ": axis 2 is 97, not 96, axis 3 is 129, not 128", "of uint8 [1, 3, 96, 128]"),
        (ONE_IMAGE, (3, 96, 128), "but the value is uint8 [3, 96, 128]", "add an axis of one batch: array[None]"),
        (
            ONE_IMAGE,
            (7, 1, 96, 128, 3),
            "but the value is uint8 [7, 1, 96, 128, 3]",
            "an array of uint8 [1, 3, 96, 128], or a data set of such arrays",
        ),
    ],
)
def test_wrong_sizes(wanted: m.ExecutionPlan, sizes: tuple[int, ...], message: str, hint: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(sizes, dtype=np.uint8))
    with pytest.raises(UsageError) as caught:
        read_calls(wanted, ["frame"], [str(tmp_path / "x.npy")])
    assert caught.value.message.endswith(message)
    assert hint in (caught.value.hint or "")
    assert ("looks like" in caught.value.message) == ("looks like" in message)


def test_bytes_for_an_input_of_int8(tmp_path: Path) -> None:
    """Converted as they are, bytes of 128 and more would become negative."""
    np.save(tmp_path / "x.npy", np.zeros((3, 96, 128), dtype=np.uint8))
    with pytest.raises(UsageError) as caught:
        read_calls(plan("int8", 3, 96, 128), ["frame"], [str(tmp_path / "x.npy")])
    assert "convert the array to int8 [3, 96, 128]" in str(caught.value.hint)
    assert "subtract 128 first if the zero point is -128" in str(caught.value.hint)
