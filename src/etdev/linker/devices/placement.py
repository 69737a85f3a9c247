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
    """Devices of the inputs that the caller leaves on a device, by input position."""
    outputs: Mapping[int, Device] = field(default_factory=dict)
    """Devices of the outputs that the caller takes from a device, by output position."""
    state: Mapping[int, Device] = field(default_factory=dict)
    """Devices of the state that stays on a device between calls, by value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A method whose delegates run on devices."""

    plan: m.ExecutionPlan
    memory: MethodMemory
    inputs: DelegateInputs
    devices: Mapping[int, Device]
    """Devices of the delegate calls that run on a device, by position of the call."""
    wanted: WantedDevices
    items: Items
    holders: Holders
    replicas: Replicas
    """Tensors on devices. Passes add a replica when it is needed."""
    state: Mapping[int, Device]
    """Devices of the state that stays on a device between calls, by item."""
    given: Mapping[int, Device]
    """Devices of the inputs that the caller leaves on a device, by item."""
    filled: frozenset[int]
    """Items that have content when the method begins."""

    def ends(self) -> tuple[tuple[Mapping[int, Device], Sequence[int]], ...]:
        """Return ``(devices by position, values)`` for the inputs, then for the outputs.

        Positions that stay on the host are not in the first map. The second sequence contains the values at all
        positions.
        """
        return (self.wanted.inputs, self.plan.inputs), (self.wanted.outputs, self.plan.outputs)


class AmbiguousSourceError(Exception):
    """Error for an item that no single copy can read, because the location of its content depends on the path."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item
