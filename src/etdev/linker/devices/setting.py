"""Input of the placement passes: a method, the facts about it, and the placement wanted at its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.devices import Device
from etdev.linker.devices.items import Items
from etdev.linker.devices.names import Names
from etdev.linker.devices.replicas import Replicas
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.storage import MethodMemory


@dataclass(frozen=True, slots=True)
class Wanted:
    """Placement wanted for a method's inputs, outputs and state."""

    inputs: Mapping[int, Device] = field(default_factory=dict)
    """Inputs that the caller leaves on a device, by position."""
    outputs: Mapping[int, Device] = field(default_factory=dict)
    """Outputs that the caller takes from a device, by position."""
    state: Mapping[int, Device] = field(default_factory=dict)
    """State that stays on a device between calls, by value."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A method whose delegates run on devices."""

    plan: m.ExecutionPlan
    memory: MethodMemory
    inputs: DelegateInputs
    devices: Mapping[int, Device]
    """Position of each call of a delegate on a device → the device."""
    wanted: Wanted
    items: Items
    names: Names
    replicas: Replicas
    """Tensors on devices, added on demand."""
    state: Mapping[int, Device]
    """Item → device on which it stays between calls."""
    given: Mapping[int, Device]
    """Item → device on which the caller leaves it as an input."""
    filled: frozenset[int]
    """Items that have content when the method begins."""

    def ends(self) -> tuple[tuple[Mapping[int, Device], Sequence[int]], ...]:
        """Return inputs and outputs: the devices of those on devices by position, and the values of all."""
        return (self.wanted.inputs, self.plan.inputs), (self.wanted.outputs, self.plan.outputs)


class UnclearError(Exception):
    """An item whose last write differs between paths, so that its source or name is not unique."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item
