"""Comparison of a TOSA graph's outputs with the quantized model's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from etdev.program.sidecar.records import DelegateRecord
from etdev.verification.tosa import worker
from etdev.verification.tosa.calls import Call, ModelFailureError, run_model
from etdev.verification.tosa.rounding import allowed_steps, compare_calls

Answer = tuple[np.ndarray, ...] | str


DIGEST = "ab" * 32
ONE = {DIGEST: (1,)}


def call(*expected: np.ndarray) -> Call:
    return Call(DIGEST, (), expected, "sample 3 of 'forward'")


INT8 = np.array([[-128, 0, 127]], np.int8)


@pytest.mark.parametrize(
    ("answer", "expected", "problem"),
    [
        ((INT8,), INT8, None),
        ((np.array([[-127, 0, 126]], np.int8),), INT8, None),
        (
            (np.array([[-126, 0, 127]], np.int8),),
            INT8,
            "in 1 of 3 elements, by up to 2 steps (1 allowed; its SNR is 39.1 dB; most in sample 3 of 'forward')",
        ),
        (
            (np.array([[127, 0, 127]], np.int8),),
            INT8,
            "in 1 of 3 elements, by up to 255 steps (1 allowed; its SNR is -3.0 dB",
        ),
        ((INT8.astype(np.int16),), INT8, "is int16 [1, 3] instead of int8 [1, 3]"),
        ((INT8[0],), INT8, "is int8 [3] instead of int8 [1, 3]"),
        ((INT8, INT8), INT8, "has 2 outputs, but the delegate has 1"),
        ("ValueError: no", INT8, "the TOSA reference model refuses"),
        (
            (np.array([5], np.int32),),
            np.array([4], np.int32),
            "in 1 of 1 elements, by up to 1 step (0 allowed; its SNR is undefined",
        ),
        (
            (np.array([True]),),
            np.array([False]),
            "in 1 of 1 elements, by up to 1 step (0 allowed; its SNR is undefined",
        ),
        ((np.zeros((0,), np.int8),), np.zeros((0,), np.int8), None),
    ],
)
def test_outputs_may_be_one_step_apart(answer: Answer, expected: np.ndarray, problem: str | None) -> None:
    problems, worst = compare_calls([call(expected)], [answer], ONE)
    if problem is None:
        assert problems == []
        assert worst <= 1
    else:
        (found,) = problems
        assert problem in found


LONG = np.arange(-128, 128, dtype=np.int8)


@pytest.mark.parametrize(
    ("changed", "step", "count", "problem"),
    [
        (1, 2, 2, None),
        (1, 2, 1, "in 1 of 256 elements, by up to 2 steps (1 allowed; its SNR is 55.4 dB;"),
        (3, 8, 20, None),
        (3, 9, 20, "in 3 of 256 elements, by up to 9 steps (8 allowed; its SNR is 37.6 dB;"),
        (200, 3, 20, "by up to 3 steps (8 allowed; its SNR is 28.9 dB, but needs 30 dB;"),
    ],
)
def test_each_rounding_may_add_a_step_if_few_elements_differ(
    changed: int, step: int, count: int, problem: str | None
) -> None:
    """A deep network differed by 2 steps, because rounding adds up over its layers, and was rejected."""
    found = LONG.copy()
    found[:changed] += step
    problems, worst = compare_calls([call(LONG)], [(found,)], {DIGEST: (count,)})

    assert worst == step
    assert len(problems) == (problem is not None)
    if problem is not None:
        assert problem in problems[0]


@pytest.mark.parametrize(
    ("count", "dtype", "steps"), [(0, "int8", 1), (3, "int16", 3), (20, "int8", 8), (3, "int32", 0), (3, "bool", 0)]
)
def test_steps_grow_with_the_roundings(count: int, dtype: str, steps: int) -> None:
    assert allowed_steps(count, dtype) == steps


def test_one_delegate_has_one_problem() -> None:
    wrong = (np.zeros((1, 3), np.int8),)
    problems, _ = compare_calls([call(INT8), call(INT8)], [wrong, wrong], ONE)
    assert len(problems) == 1


def test_a_reference_model_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETDEV_TOSA_TOOLS", str(tmp_path))
    (tmp_path / "tosa_reference_model.py").write_text("raise RuntimeError('broken here')")
    with pytest.raises(ModelFailureError, match="ended with exit code 1: RuntimeError: broken here"):
        run_model([call(INT8)], {"ab" * 32: DelegateRecord(graph=b"graph")})


STAND_IN = """
from enum import Enum

class GraphStatus(Enum):
    TOSA_VALID = 0
    TOSA_ERROR = 1

def run(graph, inputs):
    if graph == b"bad":
        return [], GraphStatus.TOSA_ERROR
    return [value + 1 for value in inputs], GraphStatus.TOSA_VALID
"""


def test_inputs_go_to_the_model_and_outputs_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package, so that this runs without it."""
    monkeypatch.setenv("ETDEV_TOSA_TOOLS", str(tmp_path))
    (tmp_path / "tosa_reference_model.py").write_text(STAND_IN)
    records = {"a": DelegateRecord(graph=b"good"), "b": DelegateRecord(graph=b"bad")}
    one, other = np.array([[1, 2]], np.int8), np.array([7], np.int32)
    first, second, third = run_model([Call("a", (one, other), ()), Call("b", (), ()), Call("a", (other,), ())], records)
    assert [(item.tolist(), item.dtype) for item in first] == [([[2, 3]], np.int8), ([8], np.int32)]
    assert second == "GraphStatus.TOSA_ERROR"
    assert [item.tolist() for item in third] == [[8]]


def test_the_worker_imports_nothing_of_etdev(tmp_path: Path) -> None:
    (tmp_path / "tosa_reference_model.py").write_text(STAND_IN)
    (tmp_path / "calls.json").write_text(json.dumps([]))
    code = f"import runpy, sys; sys.argv = ['', {str(tmp_path)!r}, {str(tmp_path)!r}]; "
    code += f"runpy.run_path({worker.__file__!r}, run_name='__main__'); "
    code += "print([name for name in sys.modules if name.startswith('etdev')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
