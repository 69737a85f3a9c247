"""Edits of a method that several passes share."""

from __future__ import annotations

from dataclasses import replace

from etdev.linker.edit import aliases_first, without_unused
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.analysis.storage import method_memory
from etdev.program.delegates import delegate_inputs
from program.hand import tensor
from support.files import method, program, sin
from support.on_devices import delegate, on


def test_an_output_on_a_device_is_numbered_where_its_delegate_writes_it() -> None:
    """Its own number was that of the host's tensor, which nothing uses any more, and it passed for state."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), on("cuda:0", 4, at=0)]
    calls = [sin(0, 1), m.DelegateCall(0, (0, 3))]
    plan = replace(method(values, calls, outputs=(1, 3), sizes=(48, 16)), delegates=(delegate(b"cuda:0"),))
    order = aliases_first(plan, method_memory(plan, {1: 1}), {3: 2}, reordered=True)
    ordered = without_unused(plan, order)
    found = program(ordered, segments=(m.Segment(0, Blob()), m.Segment(0, Blob())))
    assert delegate_inputs(found, ordered) == {1: 1}
