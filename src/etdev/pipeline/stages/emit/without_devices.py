"""Emission without devices, because only the linker decides placement and inserts copies between devices.

ExecuTorch 1.4 and 1.5 insert such copies during emission, for every delegate with the compile spec ``target_device``.
This cannot be turned off. So this module renames the key of that compile spec during emission, and restores the key in
the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from etdev.devices import TARGET_DEVICE
from etdev.pipeline.stages.artifacts import LoweredModel
from etdev.pipeline.stages.emit.graphs import lowered_modules
from etdev.program.model import BackendDelegate, ExecutionPlan

_HIDDEN = "etdev.target_device"


@contextmanager
def hidden_devices(lowered: LoweredModel) -> Iterator[None]:
    """Rename the ``target_device`` key in all delegates of a lowered model while the block runs."""
    specs = {
        id(spec): spec  # Several delegates may share a spec object.
        for method in lowered.manager.methods
        for delegate in lowered_modules(lowered.manager.exported_program(method).graph_module)
        for spec in delegate.compile_specs
        if spec.key == TARGET_DEVICE
    }
    for spec in specs.values():
        spec.key = _HIDDEN
    try:
        yield
    finally:
        for spec in specs.values():
            spec.key = TARGET_DEVICE


def with_devices(plan: ExecutionPlan) -> ExecutionPlan:
    """Return the emitted method with the key ``target_device`` restored."""
    return replace(plan, delegates=tuple(_shown(delegate) for delegate in plan.delegates))


def _shown(delegate: BackendDelegate) -> BackendDelegate:
    specs = (replace(spec, key=TARGET_DEVICE) if spec.key == _HIDDEN else spec for spec in delegate.compile_specs)
    return replace(delegate, compile_specs=tuple(specs))
