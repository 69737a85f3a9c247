"""Outputs that are remembered: what a call is told by, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra `build`")

import torch

from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages import known_outputs
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.eager import Session, compute
from etdev.pipeline.stages.inputs import Call
from etdev.pipeline.stages.known_outputs import KnownOutputs, MadeOnDemand, key_of_call
from support.projects import LINEAR_CONFIG, make_project


def test_what_was_computed_is_known_in_a_later_run() -> None:
    outputs = [torch.tensor([1.5, float("nan")]), torch.tensor(3, dtype=torch.int64), 2, None, True]
    key = key_of_call("forward", (torch.ones(2),))
    first = KnownOutputs()
    assert first.find(key) is None
    first.add(key, outputs, ["state"])
    later = KnownOutputs(first.content())

    assert (first.has_new, later.has_new) == (True, False)
    found = later.find(key)
    assert found is not None
    assert torch.equal(found.outputs[0].isnan(), torch.tensor([False, True]))
    assert [str(item) for item in found.outputs] == [str(item) for item in outputs]
    assert list(found.written) == ["state"]
    found.outputs[0].zero_()
    again = later.find(key)
    assert again is not None
    assert again.outputs[0][0] == 1.5, "they are the caller's own"


def test_calls_that_differ_are_other_calls() -> None:
    ones = torch.ones(2, 3)
    first = key_of_call("forward", (ones,))
    others = [
        key_of_call("other", (ones,)),
        key_of_call("forward", (ones * 2,)),
        key_of_call("forward", (ones.reshape(3, 2),)),
        key_of_call("forward", (ones.to(torch.int32),)),
        key_of_call("forward", (ones, ones)),
        key_of_call("forward", (ones,), first),
    ]
    assert len({first, *others}) == 7
    assert key_of_call("forward", (torch.ones(2, 3),)) == first
    assert key_of_call("forward", (ones,), None) is None
    assert key_of_call("forward", (ones.to_sparse(),)) is None


def test_calls_that_are_made_no_more_and_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_outputs, "_MOST_BYTES", 100)
    first = KnownOutputs()
    for name in "abc":
        first.add(name, [torch.ones(10)], ())
    second = KnownOutputs(first.content())
    assert [second.find(name) is not None for name in "abc"] == [True, True, False]

    third = KnownOutputs(first.content())
    assert third.find("b") is not None
    assert KnownOutputs(third.content()).find("a") is None


@pytest.mark.parametrize("content", [b"", b"nothing of torch's"])
def test_what_cannot_be_read_is_nothing(content: bytes) -> None:
    assert not KnownOutputs(content)


def test_a_table_is_made_when_it_is_asked() -> None:
    made = []
    table = MadeOnDemand(lambda: made.append(1) or {"a": 1})
    assert made == []
    assert table["a"] == 1
    assert "b" not in table
    assert made == [1, 1]


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.get_buffer("count").add_(1)
        return x + self.get_buffer("count")


def test_calls_that_are_known_are_not_made(tmp_path: Path) -> None:
    """Outputs and written buffers are the same, and an unknown call finds the state that known ones before it left."""
    project = make_project(tmp_path, LINEAR_CONFIG + "\n[targets.cpu]\n")
    one, other = (torch.ones(2),), (torch.zeros(2),)
    module = _Counter()
    model = ExportedModel({}, {"forward": module}, {}, {})
    with UserCode() as user:
        for _ in range(2):
            written: set[str] = set()
            assert compute(project, user, model, "forward", one, written=written)[0].tolist() == [2, 2]
            assert (written, module.calls) == ({"count"}, 1)
        for inputs, results, calls in (
            ((one, one, one), [2, 3, 4], 4),
            ((one, one, one), [2, 3, 4], 4),
            ((one, one, other), [2, 3, 3], 7),
        ):
            session = Session(project, user, model)
            found = [session.compute(Call("forward", given), "here", "there")[0][0].item() for given in inputs]
            assert (found, module.calls) == (results, calls)


def test_a_call_of_a_session_tells_what_it_writes(tmp_path: Path) -> None:
    """The first call of a session is on fresh state, as the call of a sample is: one may be known from the other."""
    project = make_project(tmp_path, LINEAR_CONFIG + "\n[targets.cpu]\n")
    inputs = (torch.ones(2),)
    model = ExportedModel({}, {"forward": _Counter()}, {}, {})
    with UserCode() as user:
        Session(project, user, model).compute(Call("forward", inputs), "here", "there")
        written: set[str] = set()
        compute(project, user, model, "forward", inputs, written=written)
    assert written == {"count"}


def test_a_changed_copy_of_a_model_knows_nothing() -> None:
    model = ExportedModel({}, {"forward": _Counter()}, {}, {})
    model.known.add("a", [1], ())

    assert replace(model, eager={}).known.find("a") is None
