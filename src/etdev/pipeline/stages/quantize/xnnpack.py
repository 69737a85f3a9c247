"""ExecuTorch's quantizer for XNNPACK, changed so that integer arithmetic stays in integers."""

from __future__ import annotations

from typing import Any

from etdev.config.tables.schemes import Pt2eXnnpack
from etdev.pipeline.stages.emit.module_paths import module_path
from etdev.pipeline.stages.quantize.float_modules import is_in_modules


def make_quantizer(settings: Pt2eXnnpack) -> Any:
    """Return ExecuTorch's quantizer for XNNPACK.

    Before observers are placed, ExecuTorch replaces the number in ``tensor + number`` and ``tensor * number`` by a
    float32 tensor. ExecuTorch does this even if ``tensor`` is an integer tensor. Integer token positions then become
    floats, which cannot be indices. The returned quantizer restores the number if the result of the op is not float32.
    Such a result is never quantized.
    """
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

    config = xnnpack_quantizer.get_symmetric_quantization_config(
        is_per_channel=settings.per_channel, is_dynamic=settings.dynamic
    )
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(config)
    if not settings.dynamic:
        _look_for_batch_norms_only_if_there_are_any(quantizer)
    if settings.keep_float:
        _leave_modules_out(quantizer, settings.keep_float)
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


def _look_for_batch_norms_only_if_there_are_any(quantizer: Any) -> None:
    """Make a quantizer skip its patterns with a batch norm if a graph has no batch norm.

    The quantizer exports each of these patterns again for each graph. These exports take longer than all other work of
    the quantizer. Few graphs have a batch norm, because batch norms behind convolutions are folded earlier.
    """
    annotate, patterns = quantizer.annotate, quantizer.SUPPORTED_PATTERNS

    def annotate_by_fewer_patterns(model: Any) -> Any:
        if not any("batch_norm" in str(node.target) for node in model.graph.nodes):
            model.graph.eliminate_dead_code()  # As the search for these patterns does.
            model.recompile()
            quantizer.SUPPORTED_PATTERNS = [pattern for pattern in patterns if "_bn" not in pattern.name]
        return annotate(model)

    quantizer.annotate = annotate_by_fewer_patterns


def _leave_modules_out(quantizer: Any, patterns: tuple[str, ...]) -> None:
    """Make a quantizer leave out the ops of modules whose paths match the patterns.

    The quantizer ignores a node that has an annotation, so these ops get an empty annotation first. The quantizer's
    filter function would not suffice. The quantizer does not call that function for ops whose output has the scale of
    the input, such as ``mean``.
    """
    from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY, QuantizationAnnotation

    annotate = quantizer.annotate

    def annotate_other_modules(model: Any) -> Any:
        for node in model.graph.nodes:
            if _stays_float(node, patterns):
                node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
        return annotate(model)

    quantizer.annotate = annotate_other_modules


def _stays_float(node: Any, patterns: tuple[str, ...]) -> bool:
    """Return True if an op stays in float, because the path of its module matches one of the patterns.

    A ReLU at the beginning of a module belongs to the convolution or linear layer before the module. The quantizer
    quantizes both of them or neither.
    """
    if not is_in_modules(module_path(node) or "", patterns):
        return False
    is_relu = str(node.target) in ("aten.relu.default", "aten.relu_.default")
    return not is_relu or is_in_modules(module_path(node.args[0]) or "", patterns)


def _returns_float32(node: Any) -> bool:
    import torch

    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32
