"""What can go wrong while a program is loaded or run, and in the memory of devices."""

from __future__ import annotations

from etdev.devices import Device
from etdev.errors import EtdevError, MissingRequirementError


class RunError(EtdevError):
    """A program that was read cannot be loaded or run as it stands."""


class DeviceMemoryError(RunError):
    """Memory of a device was used as it must not be: beyond its end, after it was freed, as that of another device."""


class DeviceCopyError(RunError):
    """A copy between the host and a device failed."""


class NoAllocatorError(MissingRequirementError):
    """Nothing here can allocate memory on a type of device."""


class OutOfDeviceMemoryError(MissingRequirementError):
    """A device has less memory free than was asked for, or does not give it."""

    def __init__(self, device: Device, asked: int, free: int | None, *, cause: str = "") -> None:
        self.device = device
        self.asked = asked
        """Bytes."""
        self.free = free
        """Bytes; ``None`` if the device does not say."""
        reason = f": {cause}" if cause else ""
        super().__init__(
            f"{device} does not give {asked} bytes, it has {count_bytes(free)} free{reason}",
            hint="free memory on the device, or give the program a smaller budget on it",
        )


class PlannedBufferError(RunError):
    """A planned buffer could not be had where the program wants it, or not be filled. Everything taken was released.

    Its exit code is that of the error behind it.
    """

    def __init__(self, what: str, buffer: int, device: Device, asked: int, free: int | None, cause: EtdevError) -> None:
        self.buffer = buffer
        """Index into ``non_const_buffer_sizes``, from 1 on."""
        self.device = device
        self.asked = asked
        """Bytes."""
        self.free = free
        """Bytes on the device, after everything was released; ``None`` if it does not say."""
        self.exit_code = cause.exit_code
        super().__init__(
            f"{what}: planned buffer {buffer} on {device}, {asked} bytes asked, {count_bytes(free)} free: "
            f"{cause.message}",
            where=cause.where,
            hint=cause.hint,
        )


def count_bytes(number: int | None) -> str:
    """How many bytes an error speaks of; ``None`` if nobody knows."""
    return "an unknown number of bytes" if number is None else f"{number} bytes"
