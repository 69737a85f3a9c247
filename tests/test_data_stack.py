"""Loops of calls map no memory, however deep the caller is."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import resource, sys
from etdev.data_stack import with_room

def leaf():
    pass

def loop():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(300):
        leaf()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def most(depth):
    # Plain recursion: each level is one frame deeper.
    return max(loop(), most(depth - 1)) if depth else loop()

print((with_room(most) if sys.argv[1] == "room" else most)(300))
"""


def _faults(mode: str) -> int:
    """Return the most page faults of 300 calls from any of 300 depths, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, mode], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def test_a_loop_of_calls_maps_no_memory_at_any_depth() -> None:
    assert _faults("plain") >= 300, "the test reaches the end of a chunk"
    assert _faults("room") < 30
