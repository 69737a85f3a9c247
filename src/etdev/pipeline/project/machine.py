"""Facts about the machine on which times are measured, and about a process's memory."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from etdev.pipeline.project.versions import versions
from etdev.pipeline.results.result import Part

_BUSY = 0.5
"""Load per core above which other processes may disturb a measurement."""


class Machine(Part):
    """The machine on which a time was measured."""

    cpu: str | None
    """Name of the CPU model; None if the system does not report it."""
    cores: int
    """Number of cores that this process may use."""
    load: float | None
    """Average number of running and waiting processes in the last minute; None if the system does not report it."""
    system: str
    versions: Mapping[str, str]
    """Versions of etdev, Python and the packages that affect the time, by name."""


def describe_machine() -> Machine:
    return Machine(cpu=_cpu(), cores=usable_cores(), load=_load(), system=platform.platform(), versions=versions())


def describe_load(machine: Machine) -> str | None:
    """Return a warning if other processes may have disturbed measured times; None otherwise."""
    if machine.load is None or machine.load <= machine.cores * _BUSY:
        return None
    return f"the machine was busy before the measurement, with a load of {machine.load:.1f}: the times may be too long"


def usable_cores() -> int:
    """Return the number of cores that this process may use; all cores if the system does not state it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str | None:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        found = None
    return found[1].strip() if found else platform.processor() or None


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has no such function.
        return None


def peak_resident(process: int) -> int | None:
    """Return the peak resident memory of a process in bytes; None if the system does not state it.

    The figure is Linux's ``VmHWM``, which also counts pages of mapped files.
    """
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) << 10 if found else None
