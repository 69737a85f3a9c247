"""Backend ``xnnpack``: ExecuTorch's delegate for Arm, x86 and WebAssembly CPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field

from etdev.backends.base import BUILD_EXTRA, Availability, CompileSpecValue, SpecIssue, find_packages, no_compile_specs
from etdev.config.table import Table
from etdev.config.types import Many


class XnnpackOptions(Table):
    """Options of ``executorch.backends.xnnpack``'s partitioner."""

    precisions: Many[Literal["fp32", "static_quant", "dynamic_quant"]] = Field(
        (), description="Take only ops of these precisions. Default: all."
    )
    per_op_mode: bool = Field(
        False, description="Make one delegate call per op, fused ops included, instead of one per region."
    )
    dynamic_fp32_weights: bool = Field(
        False,
        description="Keep the weights of fp32 linear layers outside the delegate, so that they can change at run time.",
    )


class Xnnpack:
    """Backend that lowers through ``XnnpackPartitioner``."""

    name = "xnnpack"
    summary = "XNNPACK delegate for CPUs: fp32, int8, int8 dynamic with int4 weights"
    device_types = ("cpu",)
    delegate_ids = ("XnnpackBackend",)
    options = XnnpackOptions
    compute_dtype = "float32"
    dynamic_shapes = True
    methods_apart = True

    def check_compile_specs(self, specs: Mapping[str, CompileSpecValue]) -> Iterable[SpecIssue]:
        return no_compile_specs(self.name, specs)

    def availability(self) -> Availability:
        return find_packages("torch", "executorch", remedy=BUILD_EXTRA)

    def partitioner(self, options: XnnpackOptions, specs: Mapping[str, CompileSpecValue], method: str) -> Any | None:
        from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        precisions = [ConfigPrecisionType[name.upper()] for name in options.precisions]
        partitioner: Any = XnnpackPartitioner(
            config_precisions=precisions or None,
            per_op_mode=options.per_op_mode,
            force_non_static_weights_for_f32_linear=options.dynamic_fp32_weights,
        )
        partition = partitioner.partition

        def partition_without_copies(program: Any) -> Any:
            result = partition(program)
            _leave_out_copied_results(result.tagged_exported_program.graph)
            return result

        partitioner.partition = partition_without_copies
        return partitioner

    @contextmanager
    def lowering(self) -> Iterator[None]:
        """During the block, make ExecuTorch skip passes that cannot change a delegate's graph.

        ExecuTorch runs 17 passes over the graph of each delegate. Most of them trace the whole graph again. Two of
        them also export patterns, which takes longer than the compilation of a small model. A delegate has the same
        bytes without the skipped passes.
        """
        from executorch.backends.xnnpack import _passes

        transform = _passes._transform

        def transform_if_needed(program: Any, graph_pass: Any) -> Any:
            wanted = OPS_OF_PASSES.get(type(graph_pass).__name__)
            if wanted is None or any(wanted in name for name in _op_names(program.graph)):
                return transform(program, graph_pass)
            return program

        _passes._transform = transform_if_needed
        try:
            yield
        finally:
            _passes._transform = transform


OPS_OF_PASSES = {
    "ConvertToSDPAPass": "any.dim",
    "ConvertToUpsampleBilinear2d": "upsample_bilinear2d",
    "Conv1dUnsqueezePass": "convolution",
    "DecomposeBatchNorm": "batch_norm",
    "DecomposeConcatenate": "cat",
    "DimOrderOpsRevertPass": "dim_order_ops",
    "FuseBatchNormPass": "batch_norm",
    "InsertPadQDQPass": "constant_pad_nd",
    "PReLUReshapePass": "prelu",
    "RemoveGetItemPass": "max",
    "RemoveRedundantCopyPass": "copy",
}
"""Maps the name of a pass to a text. The pass may change a graph only if the name of an op contains this text."""


def _op_names(graph: Any) -> Iterator[str]:
    return (node.target.__name__ for node in graph.nodes if node.op == "call_function")


backend = Xnnpack()


def _leave_out_copied_results(graph: Any) -> None:
    """Take clones of a delegate's results out of the delegate.

    XNNPACK removes clones. If a delegate returns a tensor and its clone, or two clones of a tensor, it would return the
    same tensor twice, which ExecuTorch 1.4.1 and 1.5.1 reject.
    """
    for node in reversed(list(graph.nodes)):
        tag = _tag(node)
        if tag is None or not _is_clone(node) or not _is_result(node, tag):
            continue
        copied = node
        while _is_clone(copied) and _tag(copied.args[0]) == tag:
            copied = copied.args[0]
        clones = [user for user in copied.users if user is not node and _is_clone(user) and _is_result(user, tag)]
        if copied is not node and (clones or any(_tag(user) != tag for user in copied.users)):
            del node.meta["delegation_tag"]


def _tag(node: Any) -> str | None:
    found: str | None = node.meta.get("delegation_tag")
    return found


def _is_clone(node: Any) -> bool:
    return node.op == "call_function" and "clone" in str(node.target)


def _is_result(node: Any, tag: str) -> bool:
    """Return True if all users of a node are outside the delegate with this tag."""
    return all(_tag(user) != tag for user in node.users)
