"""The template `llm`, float32 and 4 bits, by etdev and by plain ExecuTorch: bytes of the files and of planned memory.

By hand the same module is exported, quantized and lowered to XNNPACK as ExecuTorch's documentation does it, and planned
by its greedy planner. etdev's files are verified, so this takes some minutes. Two more rows have embeddings in 8 and 4
bits, which ExecuTorch's documentation does by other means, and which are not compared here.

    python benchmarks/llm.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import etdev
from etdev.templates import render
from etdev.templates.create import create_project, plan_project

if TYPE_CHECKING:
    from torch import nn

TARGETS = ("float", "int4")
LENGTH, CHUNK = 128, 32


def by_hand(module: nn.Module, path: Path) -> Path:
    """Export, lower and emit as ExecuTorch's documentation does it."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    example = torch.zeros(1, CHUNK, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    shapes = ({1: torch.export.Dim("count", min=1, max=CHUNK)}, None)
    program = torch.export.export(module, example, dynamic_shapes=shapes)
    emitted = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    with path.open("wb") as file:
        emitted.write_to_file(file)
    return path


def make(target: str) -> nn.Module:
    """The module of a target; quantized by torchao's own function where the target is."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    from model import make as make_model

    module = make_model(LENGTH)
    if target == "int4":
        quantize_(module, Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)))
    return module


def row(name: str, path: Path) -> str:
    """A line of the table."""
    found = etdev.inspect(path)
    (forward,) = (method for method in found.methods if method.name == "forward")
    return f"| {name} | {found.size:,} | {sum(found.memory.values()):,} | {forward.instructions} |"


def main() -> None:
    """Build all and print the table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "llm"
        create_project(plan_project(folder, render("llm", "llm")))
        result = etdev.build(folder / "etdev.toml", environ={})
        assert result.ok
        sys.path.insert(0, str(folder))
        rows = []
        for target in TARGETS:
            rows.append(row(f"{target}, ExecuTorch", by_hand(make(target), Path(place) / f"{target}.pte")))
            rows.append(row(f"{target}, etdev", result.path(target)))
        for bits in (8, 4):
            settings = [f"quantize.int4.embedding_bits={bits}", "targets.int4.budget={}"]
            result = etdev.build(folder / "etdev.toml", targets=["int4"], overrides=settings, environ={})
            assert result.ok
            rows.append(row(f"int4, embeddings in {bits} bits, etdev", result.path("int4")))
    print("| file | bytes | planned memory, bytes | instructions |\n| --- | ---: | ---: | ---: |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
