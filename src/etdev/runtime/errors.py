"""Errors in loading a program, running it, and using device memory."""

from __future__ import annotations

from etdev.devices import Device
from etdev.errors import EtdevError, MissingRequirementError, UsageError


class RunError(EtdevError):
    """Error for a program that is readable but cannot be loaded or run."""


class DeviceMemoryError(RunError):
    """Error for wrong use of device memory: out of bounds, after a free, or with the wrong device."""


class DeviceCopyError(RunError):
    """Error for a failed copy between the host and a device."""


class NoAllocatorError(MissingRequirementError):
    """Error for a type of device that has no allocator."""


class OutOfDeviceMemoryError(MissingRequirementError):
    """Error for an allocation that a device cannot make, usually because it has too little free memory."""

    def __init__(self, device: Device, asked: int, free: int | None, *, cause: str = "") -> None:
        self.device = device
        self.asked = asked
        """Bytes that were requested."""
        self.free = free
        """Number of free bytes on the device; None if unknown."""
        reason = f": {cause}" if cause else ""
        super().__init__(
            f"{device} cannot allocate {asked} bytes: {count_bytes(free)} free{reason}",
            hint="free memory on the device, or set a lower memory budget for it and build again",
        )


class PlannedBufferError(RunError):
    """Error for a planned buffer that cannot be allocated or initialized on its device.

    The loader has freed all memory that it allocated. The exit code is that of ``cause``.
    """

    def __init__(self, what: str, buffer: int, device: Device, asked: int, free: int | None, cause: EtdevError) -> None:
        self.buffer = buffer
        """Index of the planned buffer in ``non_const_buffer_sizes``; the first buffer has index 1."""
        self.device = device
        self.asked = asked
        """Bytes that were requested."""
        self.free = free
        """Number of free bytes on the device; None if unknown.

        After a failed allocation, the method's other planned buffers are already freed.
        """
        self.exit_code = cause.exit_code
        super().__init__(
            f"{what}: planned buffer {buffer} on {device} needs {asked} bytes, {count_bytes(free)} free: "
            f"{cause.message}",
            where=cause.where,
            hint=cause.hint,
        )


def refuse_write() -> UsageError:
    """Return the error for a task that writes to an argument with read-only access."""
    return UsageError("a task writes to a read-only argument", hint="request write access: `handle.resident('update')`")


def count_bytes(number: int | None) -> str:
    """Format a number of bytes for a message; None means an unknown number."""
    return "an unknown number of bytes" if number is None else f"{number} bytes"
