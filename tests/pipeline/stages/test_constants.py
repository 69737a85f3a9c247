"""Constant methods that a function makes of the model: into the file, checked there, and each way it fails (E2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.errors import LoadError
from etdev.pipeline.project import Project
from etdev.program.model import Int
from support.stages import Failure, check_failure, emit, load

pytest.importorskip("executorch", reason="needs the extra `build`")

CONFIG = """
version = 1
constants = "sizes:of"
[model]
entry = "model:make"
kwargs = { width = 4 }
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }]
[targets.cpu]
"""
MODEL = """
    from torch import nn

    def make(width):
        return nn.Linear(width, 3)
"""
WHERE = "etdev.toml:2:13 (constants)"

FAILURES = {
    "no table": (
        "return 3",
        "'sizes:of' returned int instead of a table of constant methods",
        'return a dict, for example {"get_max_seq_len": 128}',
    ),
    "a method's name": (
        "return {'forward': 3}",
        "'sizes:of': the constant 'forward' has the name of a method",
        "choose another name: methods and constant methods share one set of names",
    ),
    "no name": (
        "return {'3': 3}",
        "'sizes:of': the constant '3' has an invalid name",
        "use letters, digits and `_`, and no digit at the start",
    ),
    "a tensor": (
        "return {'width': model.weight[0, 0]}",
        "'sizes:of': the constant 'width' is a Tensor",
        "return a bool, an int, a finite float, a text, or a list of such values",
    ),
    "infinite": (
        "return {'width': float('inf')}",
        "'sizes:of': the constant 'width' is inf",
        "return a bool, an int, a finite float, a text, or a list of such values",
    ),
    "no answer": (
        "return {'widths': []}",
        "'sizes:of': the constant 'widths' is []",
        "return a bool, an int, a finite float, a text, or a list of such values",
    ),
    "too large": (
        "return {'widths': [1, 2**63]}",
        "'sizes:of': the constant 'widths' contains an integer of more than 64 bits",
        "use 64-bit integers, because a program cannot store larger ones",
    ),
    "an exception": (
        "return {'width': model.width}",
        "'sizes:of' failed: AttributeError: 'Linear' object has no attribute 'width' (sizes.py:2, in of)",
        None,
    ),
}


def _of(body: str) -> str:
    return f"def of(model):\n    {body}\n"


def test_they_are_what_the_function_says_of_the_model(project: Callable[..., Project]) -> None:
    made = project(CONFIG, model=MODEL, sizes=_of("return {'width': model.in_features, 'both': [*model.weight.shape]}"))
    plans = emit(made).program.execution_plan
    answers = {plan.name: [plan.values[index] for index in plan.outputs] for plan in plans if plan.name != "forward"}
    assert answers == {"width": [Int(4)], "both": [Int(3), Int(4)]}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(project: Callable[..., Project], name: str) -> None:
    body, message, hint = FAILURES[name]
    made = project(CONFIG, model=MODEL, sizes=_of(body))
    check_failure(lambda: load(made), Failure(LoadError, WHERE, message, hint))
