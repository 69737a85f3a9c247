"""The native runtime: a child process that runs programs with ExecuTorch's own C++ runtime.

etdev compiles the executable of the child process on first use.
"""

from etdev.runtime.native.client import Fault, NativeRuntime, Pools
from etdev.runtime.native.executable import host_executable
from etdev.runtime.native.measure import MemoryMeter, is_steady, lookup_bytes, measure_memory
from etdev.runtime.native.measured import Called, Left, Opened
from etdev.runtime.native.toolchain import Missing, find_toolchain

__all__ = [
    "Called",
    "Fault",
    "Left",
    "MemoryMeter",
    "Missing",
    "NativeRuntime",
    "Opened",
    "Pools",
    "find_toolchain",
    "host_executable",
    "is_steady",
    "lookup_bytes",
    "measure_memory",
]
