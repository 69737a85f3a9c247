"""Measurements of processor time that do not depend on the machine: seconds are those of a usual one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

_WORKLOAD = """
import argparse, asyncio, concurrent.futures, decimal, email.message, http.client, inspect, logging.config, unittest
sum(number * number for number in range(400_000))
"""
"""Fixed work, half of it imports, as in a short command."""
_USUAL = 0.08
"""Seconds of processor time that the workload takes on a usual machine."""


def command_time(command: Sequence[str], folder: Path | None = None) -> float:
    """Return the seconds of processor time that a command takes, which has to succeed."""
    before = os.times()
    subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=60)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def action_time(action: Callable[[], object]) -> float:
    """Return the seconds of processor time that an action takes in this process."""
    start = time.process_time()
    action()
    return time.process_time() - start


def usual_seconds(measure: Callable[[], float], limit: float, *, most: int = 10) -> float:
    """Return the seconds that ``measure`` returns, converted to those of a usual machine.

    A fixed workload is measured before and after. Both are the least of up to ``most`` measurements, since a busy
    machine makes some of them slower. The first result below ``limit`` ends the measurements.
    """
    workload = partial(command_time, [sys.executable, "-I", "-c", _WORKLOAD])
    references, times = [workload()], list[float]()
    while True:
        times.append(measure())
        references.append(workload())
        found = min(times) / min(references) * _USUAL
        if found < limit or len(times) == most:
            return found
