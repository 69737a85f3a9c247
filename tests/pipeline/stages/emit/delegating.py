"""A partitioner that delegates sums and differences everywhere, in branches and loop bodies too, to XNNPACK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401 - registers the backend
import torch
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.graph_module import get_control_flow_submodules


class EverySum(Partitioner):  # type: ignore[misc]
    """One delegate for each sum or difference of two floating-point tensors."""

    def partition(self, exported_program: Any) -> PartitionResult:
        """Tag them."""
        tags = {}
        for node in _sums(exported_program.graph_module):
            tag = f"sum{len(tags)}"
            node.meta["delegation_tag"] = tag
            tags[tag] = DelegationSpec("XnnpackBackend", [])
        return PartitionResult(exported_program, tags)


def delegate_every_sum(manager: Any) -> Any:
    """The lowered manager with the sums delegated."""
    return manager.to_backend(EverySum())


def _sums(module: Any) -> Iterator[Any]:
    for node in module.graph.nodes:
        if any(f": aten.{name}.Tensor>" in str(node.target) for name in ("add", "sub")):
            values = [getattr(item, "meta", {}).get("val") for item in node.args]
            if all(isinstance(value, torch.Tensor) and value.dtype == torch.float32 for value in values):
                yield node
    for _, body, _ in get_control_flow_submodules(module):
        yield from _sums(body)
