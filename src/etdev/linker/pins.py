"""Pins: banks that some tensors must be in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from etdev.linker.state import State
from etdev.program import model as m
from etdev.program.analysis.effects import tensors
from etdev.program.analysis.flow import flow_graph


@dataclass(frozen=True, slots=True)
class Pins:
    """Names of the banks that certain tensors must be in, or should be in."""

    inputs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Maps each method to a map from input positions to banks."""
    outputs: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Maps each method to a map from output positions to banks."""
    state: Mapping[str, str] = field(default_factory=dict)
    """Maps the name of a state to its bank. The empty name is for all other state."""
    delegates: Mapping[str, str] = field(default_factory=dict)
    """Maps the name of a backend to a bank, which must hold all arguments of the backend's delegates."""
    values: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Maps each method to a map from value indices before the link to banks."""
    preferred: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Preferred banks, in a map like :attr:`values`. A pin overrides a preference.

    Preferences have no effect if tensors that share bytes prefer different banks.
    """

    def of_state(self, name: str) -> str | None:
        """Return the bank that is required for the state of this name, or None."""
        return self.state.get(name) or self.state.get("")


@dataclass(frozen=True, slots=True)
class Pin:
    """A tensor, the bank that it must be in, and a description of the tensor for messages."""

    value: int
    bank: str
    tensor: str


def pins_of(plan: m.ExecutionPlan, instructions: Iterable[m.Instruction], pins: Pins) -> Iterator[Pin]:
    """Yield the pins of a method's inputs, outputs, delegate arguments and other tensors, but not of its state."""
    ends = ("input", plan.inputs, pins.inputs), ("output", plan.outputs, pins.outputs)
    for kind, values, wanted in ends:
        for position, bank in wanted.get(plan.name, {}).items():
            yield Pin(values[position], bank, f"{kind} {position} of {plan.name!r}")
    for call in instructions:
        backend = plan.delegates[call.delegate_index].id if isinstance(call, m.DelegateCall) else ""
        if isinstance(call, m.DelegateCall) and backend in pins.delegates:
            for value in tensors(plan, call.args):
                yield Pin(value, pins.delegates[backend], f"a delegate of {backend}")
    for value, bank in pins.values.get(plan.name, {}).items():
        yield Pin(value, bank, f"value {value} of {plan.name!r}")


def pinned_values(number: int, plan: m.ExecutionPlan, state: Sequence[State], pins: Pins) -> dict[int, str]:
    """Return the bank of each pinned tensor of a method, including state. ``number`` is the method's index."""
    found = {pin.value: pin.bank for pin in pins_of(plan, flow_graph(plan).instructions, pins)}
    for item in state:
        bank = pins.of_state(item.name)
        if bank is not None:
            found.update({value: bank for method, value, _ in item.members if method == number})
    return found
