"""Errors of loading and running programs, and of device memory."""

from __future__ import annotations

from etdev.devices import Device
from etdev.errors import EtdevError, MissingRequirementError


class RunError(EtdevError):
    """Error of a program that was read but cannot be loaded or run."""


class DeviceMemoryError(RunError):
    """Invalid use of device memory: beyond its end, after it was freed, or as memory of another device."""


class DeviceCopyError(RunError):
    """Error of a copy between the host and a device."""


class NoAllocatorError(MissingRequirementError):
    """Error for a type of device without an allocator."""


class OutOfDeviceMemoryError(MissingRequirementError):
    """Error for a device that has too little free memory, or refuses the allocation."""

    def __init__(self, device: Device, asked: int, free: int | None, *, cause: str = "") -> None:
        self.device = device
        self.asked = asked
        """Bytes."""
        self.free = free
        """Bytes; ``None`` if unknown."""
        reason = f": {cause}" if cause else ""
        super().__init__(
            f"{device} does not give {asked} bytes, it has {count_bytes(free)} free{reason}",
            hint="free memory on the device, or give the program a smaller budget on it",
        )


class PlannedBufferError(RunError):
    """Error of a planned buffer that could not be allocated on its device, or not be filled.

    Everything allocated was released. The exit code is that of the cause.
    """

    def __init__(self, what: str, buffer: int, device: Device, asked: int, free: int | None, cause: EtdevError) -> None:
        self.buffer = buffer
        """Index into ``non_const_buffer_sizes``, from 1."""
        self.device = device
        self.asked = asked
        """Bytes."""
        self.free = free
        """Bytes on the device after everything was released; ``None`` if unknown."""
        self.exit_code = cause.exit_code
        super().__init__(
            f"{what}: planned buffer {buffer} on {device}, {asked} bytes asked, {count_bytes(free)} free: "
            f"{cause.message}",
            where=cause.where,
            hint=cause.hint,
        )


def count_bytes(number: int | None) -> str:
    """Return text such as ``12 bytes``. ``number`` is None if the count is unknown."""
    return "an unknown number of bytes" if number is None else f"{number} bytes"
