"""A method before anything is copied: what is known of it, and what is wanted of its ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.devices import Device
from etdev.linker.devices.items import Items
from etdev.linker.devices.names import Names
from etdev.linker.devices.replicas import Replicas
from etdev.program import model as m
from etdev.program.effects import DelegateInputs
from etdev.program.storage import MethodMemory


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a method's tensors are to be at its ends."""

    inputs: Mapping[int, Device] = field(default_factory=dict)
    """By position, those that the caller leaves on a device."""
    outputs: Mapping[int, Device] = field(default_factory=dict)
    """By position, those that the caller takes from a device."""
    state: Mapping[int, Device] = field(default_factory=dict)
    """By value, what stays on a device between calls."""


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
    """Tensors on devices, which are added as they are asked for."""
    state: Mapping[int, Device]
    """Item → the device where it stays between calls."""
    given: Mapping[int, Device]
    """Item → the device where the caller leaves it as an input."""
    filled: frozenset[int]
    """Items that have a content when the method begins."""

    def ends(self) -> tuple[tuple[Mapping[int, Device], Sequence[int]], ...]:
        """Inputs and outputs: those on devices by position, and the values of all of them."""
        return (self.wanted.inputs, self.plan.inputs), (self.wanted.outputs, self.plan.outputs)


class UnclearError(Exception):
    """Where an item was last written is not the same on all paths."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item
