"""The reasons that partitioners state for the ops that they leave out, from the partitioner to the report."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import etdev
from etdev import backends
from etdev.cli.rendering.build_result import render_result
from etdev.cli.rendering.detail import Detail
from etdev.pipeline.project import Project
from etdev.pipeline.results.notes import LINKED_AGAIN
from etdev.pipeline.results.result import UndelegatedOps
from etdev.pipeline.stages.rejections import noted_rejections, stated_reasons
from support.projects import write_project
from support.stages import lower

torch = pytest.importorskip("torch", reason="needs the extra `build`")

from executorch.exir.backend.partitioner import Partitioner, PartitionResult  # noqa: E402
from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter  # noqa: E402

CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{{ name = "x", dtype = "float32", shape = {shape} }}]
[targets.cpu]
partitioners = [{{ backend = "{backend}" }}]
"""
MODEL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv3d(3, 4, 3), nn.ReLU(), nn.Conv3d(4, 4, 1))

    def forward(self, x):
        return self.features(x).erf().to(torch.int32)
"""
SHAPE = "[1, 3, 4, 8, 8]"
CONVOLUTIONS = UndelegatedOps(
    op="aten.convolution.default",
    count=2,
    reasons=("xnnpack: Only support 1D + 2D Conv",),
    module="features.0",
    source="model.py:11",
)
HELPERS = [(WhyNoPartition, "__call__"), (WhyNoPartitionReporter, "report_reject"), (Partitioner, "__call__")]


class Rejecting(Partitioner):
    """A partitioner that rejects every op of a graph, in the way that ``state`` does it."""

    def __init__(self, state: Callable[[Any], None]) -> None:
        super().__init__()
        self.state = state

    def partition(self, exported_program: Any) -> PartitionResult:
        for node in exported_program.graph.nodes:
            self.state(node)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags={})


def _report(*reasons: str) -> Callable[[Any], None]:
    reporter = WhyNoPartitionReporter()
    return lambda node: [reporter.report_reject(node, reason) for reason in reasons][-1]


def _program() -> Any:
    class Sum(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return x + x

    return torch.export.export(Sum(), (torch.zeros(2),))


def _add(program: Any) -> Any:
    return next(node for node in program.graph.nodes if node.op == "call_function")


# The hooks ------------------------------------------------------------------------------------------------------------


def test_reasons_are_noted_on_the_node_with_the_backend() -> None:
    program = _program()
    one, other = Rejecting(_report("one\n  line at 0x7f00ab.", "not this")), Rejecting(_report("x" * 300))
    with noted_rejections({id(one): "first", id(other): "second"}):
        one(program)
        other(program)

    assert stated_reasons(_add(program)) == ("first: one line", f"second: {'x' * 199}…")
    assert not any(stated_reasons(node) for node in program.graph.nodes if node.op != "call_function")


def test_a_node_that_only_replaces_a_rejected_one_has_no_reasons() -> None:
    program = _program()
    partitioner = Rejecting(_report("reason"))
    with noted_rejections({id(partitioner): "xnnpack"}):
        partitioner(program)
    node = _add(program)
    renamed = program.graph.node_copy(node, lambda argument: argument)
    assert renamed.name != node.name
    assert stated_reasons(renamed) == ()
    node.target = torch.ops.aten.sub.Tensor
    assert stated_reasons(node) == ()


def test_only_named_partitioners_that_run_are_heard() -> None:
    program = _program()
    named, unknown = Rejecting(_report("reason")), Rejecting(_report("reason"))
    with noted_rejections({id(named): "xnnpack"}):
        unknown(program)
        named.state(_add(program))
    assert stated_reasons(_add(program)) == ()


@pytest.mark.parametrize("ending", [nullcontext(), pytest.raises(KeyError)], ids=["returns", "raises"])
def test_the_helpers_are_restored(ending: AbstractContextManager[Any]) -> None:
    before = [vars(owner)[name] for owner, name in HELPERS]
    partitioner = Rejecting(_report("reason"))
    program = _program()
    with ending as error, noted_rejections({id(partitioner): "one"}):
        with noted_rejections({1: "other"}):
            assert all(vars(owner)[name] is not old for (owner, name), old in zip(HELPERS, before, strict=True))
        partitioner(program)
        if error is not None:
            raise KeyError
    assert stated_reasons(_add(program)) == ("one: reason",)
    assert [vars(owner)[name] for owner, name in HELPERS] == before


def test_without_partitioners_nothing_is_replaced() -> None:
    before = [vars(owner)[name] for owner, name in HELPERS]
    with noted_rejections({}):
        assert [vars(owner)[name] for owner, name in HELPERS] == before


# The builds -----------------------------------------------------------------------------------------------------------


def test_xnnpack_says_why(project: Callable[..., Project]) -> None:
    (part,) = lower(project(CONFIG.format(shape=SHAPE, backend="xnnpack"), model=MODEL)).delegations
    found = {item.op: item for item in part.undelegated}
    assert found["aten.convolution.default"] == CONVOLUTIONS
    assert found["aten.erf.default"] == UndelegatedOps(op="aten.erf.default", count=1, module="", source="model.py:11")
    (copy,) = (item for item in part.undelegated if "_to_dim_order_copy" in item.op)
    assert copy.reasons == ("xnnpack: invalid dtype",)


@pytest.mark.skipif(not backends.get("vulkan").availability().available, reason="Vulkan cannot be lowered to here")
@pytest.mark.integration
def test_vulkan_says_why(project: Callable[..., Project]) -> None:
    (part,) = lower(project(CONFIG.format(shape=SHAPE, backend="vulkan"), model=MODEL)).delegations
    (convolution,) = (item for item in part.undelegated if item.op == "aten.convolution.default")
    assert convolution.reasons
    assert all(reason.startswith("vulkan: ") for reason in convolution.reasons)


@pytest.mark.integration
def test_a_build_from_the_cache_says_the_same(tmp_path: Path) -> None:
    config = write_project(tmp_path, CONFIG.format(shape=SHAPE, backend="xnnpack"), model=MODEL)
    first = etdev.build(config, verify=False)
    linked = etdev.build(config, verify=False, overrides=["targets.cpu.memory.planner=naive"])
    assert LINKED_AGAIN in linked["cpu"].notes
    texts = [render_result(result, Detail.FULL, io.StringIO()) for result in (first, linked)]
    for result, text in zip((first, linked), texts, strict=True):
        assert CONVOLUTIONS in result["cpu"].methods[0].undelegated
        assert "aten.convolution  features.0 (model.py:11): xnnpack: Only support 1D + 2D Conv\n" in text
    assert "xnnpack" not in render_result(first, Detail.SHORT, io.StringIO())
