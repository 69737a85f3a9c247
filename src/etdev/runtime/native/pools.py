"""Measurement of the pools that a program needs when it runs without a heap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from etdev.runtime.native.client import NativeRuntime, Pools
from etdev.runtime.native.devices import NO_DEVICES, Devices


def measure_pools(
    executable: Path,
    file: Path,
    calls: Iterable[tuple[str, Sequence[Any]]],
    *,
    data: Sequence[Path] = (),
    devices: Devices = NO_DEVICES,
) -> dict[str, Pools]:
    """Return the smallest sizes of the pools with which these calls work, by method.

    ``calls`` are methods with their inputs; a method with dynamic shapes needs a call with its largest sizes. The
    temporary pool has the size that the calls need. Loading takes scratch memory from it only if it has twice that
    room, otherwise from the method pool. So the method pool is measured with the temporary pool of its final size.

    Raises :class:`~etdev.runtime.child.ProgramFailureError` if a call fails.
    """
    made = list(calls)
    first = _measured(executable, file, made, data, devices, {})
    limited = {method: Pools(temporary=found.temporary) for method, found in first.items()}
    return _measured(executable, file, made, data, devices, limited)


def _measured(
    executable: Path,
    file: Path,
    calls: Sequence[tuple[str, Sequence[Any]]],
    data: Sequence[Path],
    devices: Devices,
    pools: dict[str, Pools],
) -> dict[str, Pools]:
    found: dict[str, Pools] = {}
    with NativeRuntime(executable, devices=devices, watch=False, pools=pools) as runtime:
        runtime.load(file, data=data)
        for method, inputs in calls:
            runtime.call(method, inputs)
            assert runtime.called is not None
            found[method] = Pools(runtime.called.method_pool, runtime.called.temporary_pool)
    return found
