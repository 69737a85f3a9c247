"""Calls that several checks make in one runtime run once, and state is what it would be without that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etdev.runtime.stock import ProgramFailureError
from etdev.verification.remembered import RememberedCalls


class Counter:
    """Two methods that add their input to their state. A call on initial state resets both."""

    def __init__(self) -> None:
        self.calls = 0
        self._state = {"add": 0.0, "subtract": 0.0}

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        self._state = dict.fromkeys(self._state, 0.0)
        return tuple(self._state)

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        self.calls += 1
        if fresh:
            self._state = dict.fromkeys(self._state, 0.0)
        self._state[method] += float(inputs[0])
        if self._state[method] > 5:
            raise ProgramFailureError("too large")
        return (torch.tensor(self._state[method]),)


_CALL = st.tuples(st.sampled_from(["add", "subtract", "load"]), st.integers(0, 3), st.booleans())


@given(st.lists(_CALL, max_size=30))
def test_the_outputs_are_those_of_the_runtime(calls: list[tuple[str, int, bool]]) -> None:
    plain, remembered = Counter(), RememberedCalls(Counter())
    for method, value, fresh in calls:
        if method == "load":
            assert plain.load(Path()) == remembered.load(Path())
            continue
        answers: list[Any] = []
        for runtime in (plain, remembered):
            try:
                answers.append(runtime.call(method, (torch.tensor(float(value)),), fresh=fresh))
            except ProgramFailureError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]


def test_a_call_on_initial_state_runs_once() -> None:
    counter = Counter()
    remembered = RememberedCalls(counter)
    for _ in range(3):
        assert remembered.call("add", (torch.tensor(2.0),), fresh=True) == (torch.tensor(2.0),)
    assert counter.calls == 1
    assert remembered.call("add", (torch.tensor(1.0),)) == (torch.tensor(3.0),)
    assert counter.calls == 3


def test_a_failed_call_is_not_remembered() -> None:
    counter = Counter()
    remembered = RememberedCalls(counter)
    for _ in range(2):
        with pytest.raises(ProgramFailureError):
            remembered.call("add", (torch.tensor(9.0),), fresh=True)
    assert counter.calls == 2
