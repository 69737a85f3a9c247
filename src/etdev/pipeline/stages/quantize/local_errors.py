"""Errors that quantization makes in each module, without the errors of the modules before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from etdev.pipeline.stages.artifacts import LocalError
from etdev.pipeline.stages.eager import restored_buffers
from etdev.pipeline.stages.emit.module_paths import module_path

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule


class LocalErrors:
    """Measurement of local errors of a method that a quantizer of PT2E has prepared."""

    def __init__(self, prepared: GraphModule) -> None:
        """Keep the prepared graph, because the conversion changes it."""
        import torch

        self._float = torch.fx.GraphModule(prepared, deepcopy(prepared.graph))

    def measure(self, converted: GraphModule, inputs: Sequence[torch.Tensor]) -> list[LocalError]:
        """Return the error of each module that has one, the largest first.

        ``converted`` is the quantized graph, and ``inputs`` are those of one call. Both graphs run on them, and leave
        their buffers unchanged. In the quantized graph, each op gets inputs from the float graph. Such an input may be
        quantized on the way, so an error shows what the rounding of inputs and weights does to this op alone.
        """
        import torch

        values: dict[str, Any] = {}
        lowest: dict[str, float] = {}

        class Float(torch.fx.Interpreter):
            def run_node(self, node: torch.fx.Node) -> Any:
                if node.op == "call_module" and hasattr(self.fetch_attr(str(node.target)), "calculate_qparams"):
                    return self.map_nodes_to_values(node.args[0], node)
                values[node.name] = super().run_node(node)
                return values[node.name]

        class Quantized(torch.fx.Interpreter):
            def run_node(self, node: torch.fx.Node) -> Any:
                found, expected = super().run_node(node), values.get(node.name)
                if node.op != "call_function" or expected is None:
                    return found
                snr = _snr_db(found, expected)
                if snr is not None:
                    module = module_path(node) or node.name
                    lowest[module] = min(snr, lowest.get(module, math.inf))
                return expected

        with torch.no_grad():
            for graph, interpreter in ((self._float, Float), (converted, Quantized)):
                with restored_buffers(graph):
                    interpreter(graph).run(*(tensor.clone() for tensor in inputs))
        return sorted((LocalError(module, snr) for module, snr in lowest.items()), key=lambda error: error.snr_db)


def _snr_db(found: Any, expected: Any) -> float | None:
    """Return the SNR in dB; None if the values are no tensors of floats or are equal, or for an infinite SNR."""
    import torch

    if not isinstance(found, torch.Tensor) or not found.is_floating_point() or found.shape != expected.shape:
        return None
    wanted = expected.double()
    signal, noise = float(wanted.square().sum()), float((found.double() - wanted).square().sum())
    if not (0.0 < signal < math.inf and 0.0 < noise < math.inf):
        return None
    return 10.0 * math.log10(signal / noise)
