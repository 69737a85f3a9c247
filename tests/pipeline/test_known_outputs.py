"""Outputs that are remembered: what a call is told by, and what is kept of it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the extra `build`")

import torch

from etdev.pipeline import known_outputs
from etdev.pipeline.known_outputs import KnownOutputs, MadeOnDemand, key_of_call


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
