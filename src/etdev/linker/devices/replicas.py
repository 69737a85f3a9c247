"""Replicas: tensors on a device that replace the host tensors among a delegate's arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from etdev.devices import Device
from etdev.errors import LinkError
from etdev.linker.devices.items import Items
from etdev.program import model as m

_FIRST_BUFFER = 1 << 20
"""Number of the first buffer on a device. The number is temporary: buffers get their final numbers later."""
_GAP = 64
"""Gap in bytes between two replicas on a device, so that different items share no bytes."""


def buffer_on(device: Device) -> int:
    """Return the temporary number of the buffer that holds all tensors on a device."""
    return _FIRST_BUFFER + 256 * device.type + device.index


class Replicas:
    """The replicas of a method's tensors on devices, added when they are first requested."""

    def __init__(self, plan: m.ExecutionPlan, items: Items, own_replica: Collection[int] = ()) -> None:
        """Start without replicas.

        Each value in ``own_replica`` gets a separate replica, even if another value of the same item has a replica. A
        reader of the file can then recognize the value as an output of a delegate call.
        """
        self._plan, self._items, self._own_replica = plan, items, own_replica
        self._values: list[m.Value] = []
        self._offsets: dict[tuple[int, Device], int] = {}
        self._ends: dict[Device, int] = defaultdict(int)
        self._known: dict[tuple[int, Device, object], int] = {}
        self.of: dict[tuple[int, Device], int] = {}
        """Maps ``(value, device)`` to the replica of the value on that device."""
        self.first: dict[int, int] = {}
        """Maps each replica to the original value for which it was first requested."""

    def get(self, value: int, device: Device, *, planned: bool = True, named: bool = False) -> int:
        """Return the replica of a tensor on a device. Add the replica if necessary.

        All replicas of one item on one device share bytes. Replicas with the same sizes and element type are one
        tensor. ``planned`` must be False for memory that the caller owns. ``named`` must be True for state, so
        that the replica keeps the name of the state in the file.
        """
        found = self.of.get((value, device))
        if found is None:
            tensor = self._plan.values[value]
            assert isinstance(tensor, m.Tensor)
            form = tensor.scalar_type, tensor.sizes, tensor.dim_order, value if value in self._own_replica else None
            key = self._items.of[value], device, form
            if key not in self._known:
                self._known[key] = len(self._plan.values) + len(self._values)
                self.first[self._known[key]] = value
                self._values.append(self._tensor(value, tensor, device, planned=planned, named=named))
            found = self.of[value, device] = self._known[key]
        return found

    def alias(self, value: int, device: Device) -> int:
        """Return a second tensor in the bytes of the replica of ``value``. No instruction writes to this tensor.

        The tensor contains the most recent content of the item, even if an instruction wrote it to another value.
        """
        tensor = self._plan.values[value]
        assert isinstance(tensor, m.Tensor)
        key = self._items.of[value], device, (tensor.scalar_type, tensor.sizes, tensor.dim_order, "alias")
        if key not in self._known:
            self._known[key] = len(self._plan.values) + len(self._values)
            self.first[self._known[key]] = value
            self._values.append(self._tensor(value, tensor, device, planned=True, named=False))
        return self._known[key]

    def values(self) -> tuple[m.Value, ...]:
        """Return all values of the method: the original ones, then the replicas."""
        return *self._plan.values, *self._values

    def buffers(self) -> tuple[m.NonConstBufferDevice, ...]:
        """Return the temporary buffers of the replicas, one for each device."""
        devices: Collection[Device] = sorted({device for _, device in self.of})
        return tuple(m.NonConstBufferDevice(buffer_on(device), device.type, device.index) for device in devices)

    def _tensor(self, value: int, tensor: m.Tensor, device: Device, *, planned: bool, named: bool) -> m.Tensor:
        if planned and tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND:
            raise LinkError(
                f"value {value} has no maximum size, so no memory can be planned for it on {device}",
                where=f"method {self._plan.name!r}",
                hint="set a maximum size for each dynamic dimension of this value",
            )
        name = tensor.name if named else None
        return replace(
            tensor,
            data_buffer_idx=0,
            allocation_info=self._allocation(value, tensor, device) if planned else None,
            extra_tensor_info=m.ExtraTensorInfo(
                fully_qualified_name=name, device_type=device.type, device_index=device.index
            ),
        )

    def _allocation(self, value: int, tensor: m.Tensor, device: Device) -> m.AllocationDetails:
        key = self._items.of[value], device
        if key not in self._offsets:
            self._offsets[key] = self._ends[device]
            self._ends[device] += (tensor.nbytes + 2 * _GAP - 1) // _GAP * _GAP
        return m.AllocationDetails(buffer_on(device), self._offsets[key])
