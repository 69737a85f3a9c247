"""Sizes of the pools from which the runtime allocates, and their estimates for 32-bit targets."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.analysis.runtime_objects import runtime_objects

POOL_ALIGNMENT = 64
"""Alignment in bytes of a pool's memory.

For allocations with at most this alignment, the required pool size does not depend on the pool's address.
"""


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Sizes in bytes of a method's pools, measured on a 64-bit machine."""

    method: int
    """Size of the pool for the method's objects."""
    temp: int
    """Size of the pool for temporary memory: enough to load the method and to call it with the largest inputs."""
    heap: int | None = None
    """Largest number of heap bytes in use at once, during loading or a call; None if the heap was not counted."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Data for estimating the size of a method's pool on a 32-bit target."""

    counted: int
    """Size in bytes of the runtime's own objects on a 64-bit machine, computed from the file."""
    counted32: int
    """Size in bytes of the runtime's own objects on a 32-bit machine, computed from the file."""

    def estimate(self, measured: int) -> int:
        """Return the estimated size in bytes of the pool on a 32-bit target.

        ``measured`` is the size on a 64-bit machine. The bytes that exceed ``counted`` belong to delegates. The
        estimate assumes that a delegate needs the same number of bytes on both targets.
        """
        return self.counted32 + max(measured - self.counted, 0)


def scaling(plan: m.ExecutionPlan, *, merged: bool = False) -> Scaling:
    """Compute the sizes of the runtime's own objects in a method's pool.

    ``merged`` is True if a data file and the program both contain named data.
    """
    return Scaling(runtime_objects(plan, 8, merged=merged), runtime_objects(plan, 4, merged=merged))
