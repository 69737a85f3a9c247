"""The files that ExecuTorch makes of drawn modules by itself, with its defaults.

They do not depend on etdev. So a campaign can keep them for the next one, which then takes about half as long.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import os
from importlib import metadata
from pathlib import Path

import torch
from drawn_models import Drawn, module, tensor


class PlainRefusedError(Exception):
    """ExecuTorch refuses a module. The text is the type of its error."""


class PlainFiles:
    """Makes files. Keeps them in a folder, if it has one, for the same module, inputs, target and versions."""

    def __init__(self, kept: Path | None) -> None:
        self._kept = kept
        if kept is not None:
            kept.mkdir(parents=True, exist_ok=True)

    def make(self, drawn: Drawn, source: str, target: str, folder: Path) -> Path:
        """Return the path of the file, which is in ``folder`` or among the kept ones.

        Raises:
            PlainRefusedError: ExecuTorch refuses the module.
        """
        place = (self._kept or folder) / _key(drawn, source, target)
        file, refused = place.with_suffix(".pte"), place.with_suffix(".refused")
        if refused.exists():
            raise PlainRefusedError(refused.read_text())
        if not file.exists():
            torch.compiler.reset()  # An earlier export must not matter.
            try:
                _write(file, _made(drawn, source, target))
            except Exception as error:  # of ExecuTorch, whatever it is
                name = type(error).__name__
                _write(refused, name.encode())
                raise PlainRefusedError(name) from error
        return file


def _write(place: Path, content: bytes) -> None:
    temporary = place.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(place)


def _key(drawn: Drawn, source: str, target: str) -> str:
    versions = [metadata.version(package) for package in ("torch", "executorch")]
    parts = (source, drawn.inputs, drawn.dynamic, target.startswith("xnnpack"), versions, inspect.getsource(_made))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _made(drawn: Drawn, source: str, target: str) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
    from torch.export import Dim, export

    made, methods = module(source), {}
    for method, inputs in drawn.inputs.items():
        one = copy.copy(made)
        one.forward = getattr(made, method)  # type: ignore[method-assign]
        example = tuple(tensor(dtype, shape, 1) for _, dtype, shape in inputs)
        dims = {shape[0]: Dim(f"n{shape[0]}", min=1, max=max(shape[0], 2) + 2) for _, _, shape in inputs if shape}
        shapes = tuple({0: dims[shape[0]]} if shape else {} for _, _, shape in inputs) if drawn.dynamic else None
        methods[method] = export(one, example, dynamic_shapes=shapes)
    parts = [XnnpackPartitioner()] if target.startswith("xnnpack") else []
    planning = MemoryPlanningPass(share_mutable_buffers=len(methods) > 1)
    content = [InitializedMutableBufferPass(drawn.buffers())] if drawn.has_content else []
    manager = to_edge_transform_and_lower(methods, partitioner=parts).to_executorch(
        ExecutorchBackendConfig(memory_planning_pass=planning, passes=content)
    )
    return bytes(manager.buffer)
