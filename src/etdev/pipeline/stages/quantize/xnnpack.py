"""ExecuTorch's quantizer for XNNPACK, changed so that integer arithmetic stays in integers."""

from __future__ import annotations

from typing import Any

from etdev.config.tables.schemes import Pt2eXnnpack
from etdev.pipeline.stages.emit.module_paths import module_path
from etdev.pipeline.stages.quantize.float_modules import is_in_modules


def make_quantizer(settings: Pt2eXnnpack) -> Any:
    """Return ExecuTorch's quantizer for XNNPACK.

    Before observers are placed, ExecuTorch replaces the number in ``tensor + number`` and ``tensor * number`` by a
    float32 tensor, even if ``tensor`` is an integer tensor. Integer token positions then become floats, which cannot be
    indices. The returned quantizer restores the number in ops whose result is not float32 and thus never quantized.
    """
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

    config = xnnpack_quantizer.get_symmetric_quantization_config(
        is_per_channel=settings.per_channel, is_dynamic=settings.dynamic
    )
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    if settings.keep_float:
        quantizer.set_filter_function(lambda node: not is_in_modules(module_path(node) or "", settings.keep_float))
    transform = quantizer.transform_for_annotation

    def transform_float_only(model: Any) -> Any:
        before = {node: node.args for node in model.graph.nodes if not _returns_float32(node)}
        changed = transform(model)
        for node, args in before.items():
            if node.args != args:
                constants = [argument for argument in node.args if argument not in args]
                node.args = args
                for constant in constants:
                    changed.graph.erase_node(constant)
                    delattr(changed, constant.target)
        changed.recompile()
        return changed

    quantizer.transform_for_annotation = transform_float_only
    return quantizer


def _returns_float32(node: Any) -> bool:
    import torch

    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32
