"""Devices: the placement of tensors, and the copies between host and devices."""

from etdev.linker.devices.ends import with_host_memory
from etdev.linker.devices.methods import place_on_devices
from etdev.linker.devices.strip import device_copies, device_ends, without_devices

__all__ = ["device_copies", "device_ends", "place_on_devices", "with_host_memory", "without_devices"]
