"""Input of the passes that place tensors on devices: a method, its delegates' devices, and wanted placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.devices import Device
from etdev.linker.devices.holders import Holders
from etdev.linker.devices.items import Items
from etdev.linker.devices.replicas import Replicas
from etdev.program import model as m
from etdev.program.analysis.effects import DelegateInputs
from etdev.program.analysis.storage import MethodMemory


@dataclass(frozen=True, slots=True)
class WantedDevices:
    """Devices on which a method's inputs, outputs and state stay."""

    inputs: Mapping[int, Device] = field(default_factory=dict)
    """Position of an input that the caller leaves on a device → that device."""
    outputs: Mapping[int, Device] = field(default_factory=dict)
    """Position of an output that the caller takes from a device → that device."""
    state: Mapping[int, Device] = field(default_factory=dict)
    """Value of state that stays on a device between calls → that device."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A method whose delegates run on devices."""

    plan: m.ExecutionPlan
    memory: MethodMemory
    inputs: DelegateInputs
    devices: Mapping[int, Device]
    """Position of each call of a delegate on a device → the device."""
    wanted: WantedDevices
    items: Items
    holders: Holders
    replicas: Replicas
    """Tensors on devices. Passes add them when they need them."""
    state: Mapping[int, Device]
    """Item of state that stays on a device between calls → that device."""
    given: Mapping[int, Device]
    """Item of an input that the caller leaves on a device → that device."""
    filled: frozenset[int]
    """Items that have content when the method begins."""

    def ends(self) -> tuple[tuple[Mapping[int, Device], Sequence[int]], ...]:
        """Return, for inputs and for outputs: position → device of those on devices, and all values in order."""
        return (self.wanted.inputs, self.plan.inputs), (self.wanted.outputs, self.plan.outputs)


class AmbiguousSourceError(Exception):
    """Error for an item that is in different places on different paths, so that no single copy can read it."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item
