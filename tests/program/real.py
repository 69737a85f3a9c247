"""Files that executorch makes of tiny models, one for each feature of a file."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig, to_edge, to_edge_transform_and_lower
from executorch.exir.pass_base import PassBase, PassResult
from executorch.exir.passes import MemoryPlanningPass
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
from torch.export import Dim, export


@dataclass(frozen=True, slots=True)
class RealFile:
    """File, and calls that show its behaviour."""

    pte: Path
    calls: tuple[tuple[str, tuple[torch.Tensor, ...]], ...]
    """Method and inputs, run in order on one fresh state."""
    ptd: Path | None = None


class Layers(nn.Module):
    """Weights, several kinds of arguments, several outputs, a tensor list, views."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.relu(self.linear(self.conv(x))).masked_fill(x.sum() > 1e9, float("-inf"))
        values, indices = torch.topk(y.flatten(1), 3)
        a, b = torch.split(y, 2, dim=1)
        return torch.cat([b, a], dim=1), values, indices


class Branches(nn.Module):
    """Nested conditions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def inner(a: torch.Tensor) -> torch.Tensor:
            return torch.cond(a.max() > 2, lambda b: b * 3, lambda b: b - 1, (a,))

        return torch.cond(x.sum() > 0, inner, lambda a: a + 10, (x,)).view(6) + 1


class Loops(nn.Module):
    """Jumps back."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        carry, rows = torch_scan(lambda c, row: (c + row, c * row), torch.zeros(3), x)
        return carry, rows, torch_map(lambda row, one: row + one, x, torch.ones(3))


class Counter(nn.Module):
    """State with an initial value."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((3,), 7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x)
        return self.count * 2


class KeepInitialValues(PassBase):
    """Pass that keeps the initial values of state; stock emission drops them unless the state is marked."""

    def call(self, graph_module: torch.fx.GraphModule) -> PassResult:
        for node in graph_module.graph.nodes:
            if node.op == "placeholder" and "count" in node.name:
                node.meta["et_init_buffer"] = True
        return PassResult(graph_module, True)


class Two(nn.Module):
    """Two methods over the same weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


class Cache(nn.Module):
    """Two methods on one cache."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.copy_(x * 2 + 1)
        return self.cache.sum(0)

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        self.cache.add_((x @ x.t()) @ x)
        return self.cache * 3 - x


class Bounded(nn.Module):
    """A dynamic dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x * 2, x], dim=1)


class View(nn.Module):
    """A view between two operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bmm(x, x.cumsum(1).view(2, 4, 8)).cumsum(1)


def _save(edge: EdgeProgramManager, folder: Path, name: str, **config: Any) -> Path:
    manager = edge.to_executorch(ExecutorchBackendConfig(**config))
    file = folder / f"{name}.pte"
    manager.save(str(file))
    manager.write_tensor_data_to_file(str(folder))
    return file


def _image() -> tuple[torch.Tensor, ...]:
    return (torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8),)


def portable(folder: Path) -> RealFile:
    x = _image()
    file = _save(to_edge(export(Layers().eval(), x)), folder, "portable", emit_stacktrace=True)
    return RealFile(file, (("forward", x),))


def branches(folder: Path) -> RealFile:
    x = (torch.ones(2, 3),)
    file = _save(to_edge(export(Branches(), x)), folder, "branches")
    return RealFile(file, tuple(("forward", (x[0] * factor,)) for factor in (1.0, 4.0, -1.0)))


def loops(folder: Path) -> RealFile:
    x = (torch.arange(12.0).reshape(4, 3),)
    return RealFile(_save(to_edge(export(Loops(), x)), folder, "loops"), (("forward", x),))


def state(folder: Path) -> RealFile:
    x = (torch.ones(3),)
    edge = to_edge(export(Counter(), x))
    file = _save(edge, folder, "state", passes=[KeepInitialValues()], emit_mutable_buffer_names=True)
    return RealFile(file, (("forward", x),) * 3)


def methods(folder: Path) -> RealFile:
    x, model = (torch.linspace(0, 1, 4)[None],), Two().eval()
    forward = export(model, x)
    encoder = copy.copy(model)
    encoder.forward = model.encode  # type: ignore[method-assign]
    constants = {"get_length": 128, "get_scale": 0.5, "is_ready": True}
    edge = to_edge({"forward": forward, "encode": export(encoder, x)}, constant_methods=constants)
    return RealFile(
        _save(edge, folder, "methods"),
        (("encode", x), ("forward", x), *((name, ()) for name in constants)),
    )


def shared(folder: Path) -> RealFile:
    """Build state at the same place in both methods, for a loader that gives them the same memory."""
    x, model = (torch.linspace(0, 1, 32).reshape(4, 8),), Cache()
    forward = export(model, x)
    decoder = copy.copy(model)
    decoder.forward = model.decode  # type: ignore[method-assign]
    planning = MemoryPlanningPass(share_mutable_buffers=True)
    file = _save(
        to_edge({"forward": forward, "decode": export(decoder, x)}), folder, "shared", memory_planning_pass=planning
    )
    return RealFile(file, (("forward", x), ("decode", x), ("decode", x), ("forward", x), ("decode", x)))


def dynamic(folder: Path) -> RealFile:
    example = (torch.ones(4, 2),)
    exported = export(Bounded(), example, dynamic_shapes={"x": {0: Dim("n", min=1, max=8)}})
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    file = _save(to_edge(exported), folder, "dynamic", memory_planning_pass=planning)
    return RealFile(file, tuple(("forward", (torch.arange(2.0 * n).reshape(n, 2),)) for n in (3, 4, 1)))


def external(folder: Path) -> RealFile:
    x, place = _image(), folder / "external"
    place.mkdir()
    file = _save(to_edge(export(Layers().eval(), x)), place, "external", external_constants=True)
    (data,) = place.glob("*.ptd")
    return RealFile(file, (("forward", x),), ptd=data)


def xnnpack(folder: Path) -> RealFile:
    x = _image()
    edge = to_edge_transform_and_lower(export(Layers().eval(), x), partitioner=[XnnpackPartitioner()])
    return RealFile(_save(edge, folder, "xnnpack"), (("forward", x),))


def xnnpack_view(folder: Path) -> RealFile:
    """Build a call with a view that nothing else uses. No instruction makes the view."""
    from executorch.backends.xnnpack.partition.config.generic_node_configs import BMMConfig

    x = (torch.linspace(0, 1, 64).view(2, 8, 4),)
    edge = to_edge_transform_and_lower(export(View(), x), partitioner=[XnnpackPartitioner(configs=[BMMConfig])])
    return RealFile(_save(edge, folder, "xnnpack_view"), (("forward", x),))


def xnnpack_inline(folder: Path) -> RealFile:
    """Build delegate blobs inside the flatbuffer."""
    x = (torch.linspace(0, 1, 4)[None],)
    edge = to_edge_transform_and_lower(export(Two().eval(), x), partitioner=[XnnpackPartitioner()])
    file = _save(edge, folder, "xnnpack_inline", extract_delegate_segments=False, segment_alignment=4096)
    return RealFile(file, (("forward", x),))


def xnnpack_int8(folder: Path) -> RealFile:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    x = (torch.linspace(0, 1, 4)[None],)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(export(Two().eval(), x).module(), quantizer)
    prepared(*x)
    edge = to_edge_transform_and_lower(export(convert_pt2e(prepared), x), partitioner=[XnnpackPartitioner()])
    return RealFile(_save(edge, folder, "xnnpack_int8"), (("forward", x),))
