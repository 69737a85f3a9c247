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
    """Maps input positions to devices, for the inputs that the caller leaves on a device."""
    outputs: Mapping[int, Device] = field(default_factory=dict)
    """Maps output positions to devices, for the outputs that the caller takes from a device."""
    state: Mapping[int, Device] = field(default_factory=dict)
    """Maps values to devices, for state that stays on a device between calls."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A method whose delegates run on devices."""

    plan: m.ExecutionPlan
    memory: MethodMemory
    inputs: DelegateInputs
    devices: Mapping[int, Device]
    """Maps positions to devices, for the delegate calls that run on a device."""
    wanted: WantedDevices
    items: Items
    holders: Holders
    replicas: Replicas
    """Tensors on devices. Passes add a replica when it is needed."""
    state: Mapping[int, Device]
    """Maps items to devices, for state that stays on a device between calls."""
    given: Mapping[int, Device]
    """Maps items to devices, for the inputs that the caller leaves on a device."""
    filled: frozenset[int]
    """Items that have content when the method begins."""

    def ends(self) -> tuple[tuple[Mapping[int, Device], Sequence[int]], ...]:
        """Return ``(devices, values)`` for the inputs, then for the outputs.

        ``devices`` maps positions to devices, for the tensors that stay on a device. ``values`` has the value index at
        each position.
        """
        return (self.wanted.inputs, self.plan.inputs), (self.wanted.outputs, self.plan.outputs)


class AmbiguousSourceError(Exception):
    """Error for an item whose content is in different places on different paths. No single copy can read it."""

    def __init__(self, item: int) -> None:
        super().__init__(item)
        self.item = item
