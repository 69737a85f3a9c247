"""What workers in processes of their own do in tests."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from etdev.devices import Device
from etdev.errors import MissingRequirementError
from etdev.runtime.allocator import Registry
from etdev.runtime.orchestrator import WorkerSpec

MARK = "as it was imported"


def mark() -> str:
    """What the module of this process says."""
    return MARK


def describe() -> dict[str, Any]:
    """What the process is like before a task asks for more."""
    return {
        "stdin": sys.stdin.read(),
        "parent": os.getppid(),
        "modules": [name for name in ("torch", "executorch", "numpy", "multiprocessing") if name in sys.modules],
    }


def begin_and_sleep(begun: str) -> None:
    """Make a file, and sleep."""
    Path(begun).touch()
    time.sleep(60)


def begin_and_hold(begun: str) -> None:
    """Make a file, and let no other thread of the process do anything."""
    Path(begun).touch()
    ctypes.PyDLL(None).sleep(60)


def leave_a_child(seconds: int) -> int:
    """A process that has all of this one's descriptors, and lives on."""
    pid = os.fork()
    if not pid:
        time.sleep(seconds)
        os._exit(0)
    return pid


def end_by(number: int) -> None:
    """Have a signal end the process."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def end_with(code: int) -> None:
    """End the process in the middle of a task."""
    os._exit(code)


def leave(code: int) -> None:
    """Ask for the end as scripts do."""
    sys.exit(code)


def interrupt() -> None:
    """As if somebody had interrupted it."""
    raise KeyboardInterrupt


def generate() -> Any:
    """What cannot be sent."""
    return (number for number in range(3))


def echo(value: Any) -> Any:
    """The value."""
    return value


class Stubborn:
    """An object that does not end."""

    def close(self) -> None:
        """Take long."""
        time.sleep(60)


class Absent(WorkerSpec):
    """Memory that there is not."""

    __slots__ = ()

    def open(self) -> tuple[Registry, Device]:
        """Fail."""
        raise MissingRequirementError("there is no such device", hint="plug it in")
