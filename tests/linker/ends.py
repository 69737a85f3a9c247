"""Random inputs and outputs that the caller owns, on the host or on a device, and links that keep them so."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from hypothesis import strategies as st

from etdev.linker import CallerOwned, Linked, LinkOptions, link
from etdev.linker.io import CallerOwnedError
from etdev.program import model as m
from etdev.program.analysis.flow import flow_graph
from etdev.program.delegates import delegate_devices
from linker.programs import Object

_NAMED = re.compile(r"(input|output) (\d+) of method")
_NOBODYS = CallerOwned()


@st.composite
def asked(draw: st.DrawFn, found: Object) -> dict[str, CallerOwned]:
    """Draw, by method, what the caller asks to own; on a device only what a delegate there reads or writes."""
    return {
        plan.name: draw(_of_method(plan, found.sidecar.methods[plan.name].delegate_inputs))
        for plan in found.program.execution_plan
    }


@st.composite
def _of_method(draw: st.DrawFn, plan: m.ExecutionPlan, split: Mapping[int, int]) -> CallerOwned:
    read, written = set[int](), set[int]()
    calls = flow_graph(plan).instructions
    for position in delegate_devices(plan):
        call = calls[position]
        assert isinstance(call, m.DelegateCall)
        read.update(call.args[: split[position]])
        written.update(call.args[split[position] :])
    chosen = []
    for indices, there in ((plan.inputs, read), (plan.outputs, written)):
        kinds = [draw(st.sampled_from(("host", "caller", *["device"] * 4 * (value in there)))) for value in indices]
        chosen += [
            frozenset(number for number, found in enumerate(kinds) if found == kind) for kind in ("caller", "device")
        ]
    return CallerOwned(chosen[0], chosen[2], chosen[1], chosen[3])


def linked_with(
    found: Object, options: LinkOptions, owned: Mapping[str, CallerOwned]
) -> tuple[Linked, dict[str, CallerOwned]]:
    """Return a link, and ``owned`` without the inputs and outputs that the linker refuses."""
    owned = dict(owned)
    while True:
        try:
            done = link(found.program, replace(options, caller=owned), found.sidecar)
        except CallerOwnedError as refused:
            named = _NAMED.search(refused.message)
            assert named is not None
            owned[refused.method] = _without(owned[refused.method], named[1], int(named[2]))
        else:
            return done, owned


def _without(owned: CallerOwned, kind: str, position: int) -> CallerOwned:
    gone = {position}
    if kind == "input":
        return replace(owned, inputs=owned.inputs - gone, device_inputs=owned.device_inputs - gone)
    return replace(owned, outputs=owned.outputs - gone, device_outputs=owned.device_outputs - gone)


def check_ends(program: m.Program, owned: Mapping[str, CallerOwned]) -> None:
    """Check that caller-owned tensors have no planned memory and are on the device that was asked for."""
    for plan in program.execution_plan:
        found = owned.get(plan.name, _NOBODYS)
        for indices, lent, there in (
            (plan.inputs, found.inputs, found.device_inputs),
            (plan.outputs, found.outputs, found.device_outputs),
        ):
            for position, value in enumerate(indices):
                tensor = plan.values[value]
                assert isinstance(tensor, m.Tensor)
                assert tensor.device.is_host == (position not in there)
                assert tensor.allocation_info is None or position not in lent | there


def lent(owned: Mapping[str, CallerOwned]) -> dict[str, Collection[int]]:
    """Return, by method, the outputs for which the caller brings memory."""
    return {name: found.outputs | found.device_outputs for name, found in owned.items()}
