"""Files that ExecuTorch makes by itself, with its defaults and with its best settings."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager
    from torch.export import ExportedProgram

DEFAULTS: Mapping[str, Any] = {}
TUNED: Mapping[str, Mapping[str, Any]] = {
    "const-prop": {"do_quant_fusion_and_const_prop": True},
    "reinplace": {"run_reinplace_pass": True},
    "both": {"do_quant_fusion_and_const_prop": True, "run_reinplace_pass": True},
}
"""Switches of `ExecutorchBackendConfig` that make memory smaller and are off by default; all of its kind in 1.4.1."""


def export(name: str) -> ExportedProgram:
    """The model of that name as `torch.export` gives it."""
    import torch
    from architectures import BY_NAME, random_inputs

    from model import make

    return torch.export.export(make(name), random_inputs(BY_NAME[name], 0))


def lower(program: ExportedProgram, backend: str) -> EdgeProgramManager:
    """The program in the edge dialect, as ExecuTorch's documentation does it."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()] if backend == "xnnpack" else [])


def write_plain(edge: EdgeProgramManager, settings: Mapping[str, Any], path: Path) -> None:
    """Emit and write a program; what is handed over stays as it is."""
    from executorch.exir import ExecutorchBackendConfig

    emitted = deepcopy(edge).to_executorch(ExecutorchBackendConfig(**settings) if settings else None)
    with path.open("wb") as file:
        emitted.write_to_file(file)
