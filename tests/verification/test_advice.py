"""Advice about a missed limit names what the program has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.pipeline.project import Project
from etdev.program import model as m
from etdev.verification.advice import advise
from program.hand import tensor
from support.files import method, program, sin

CONFIG = """
version = 1
[model]
entry = "model:make"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [4] }]
[targets.cpu]
"""
DELEGATE = "let a delegate take ops (partitioners), "
INPUTS = "make the largest inputs smaller (their shapes), or raise budget.memory"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(0, DELEGATE + INPUTS, id="no state"),
        pytest.param(4, DELEGATE + INPUTS, id="little state"),
        pytest.param(
            64,
            f"{DELEGATE}make the state smaller (256 B; the largest is 'cache'), {INPUTS}",
            id="more state than other memory",
        ),
    ],
)
def test_state_that_takes_much_of_the_memory(project: Callable[..., Project], state: int, expected: str) -> None:
    made = project(CONFIG, model="")
    name = m.ExtraTensorInfo(fully_qualified_name="cache")
    values = [tensor(32, at=0), tensor(32, at=128)]
    kept = [tensor(state, at=256, extra_tensor_info=name)] if state else []
    found = program(method([*values, *kept], [sin(0, 1)], outputs=(1,)))

    assert advise(made, "cpu", found, "budget.memory", "memory", "cpu") == expected
