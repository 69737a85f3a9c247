"""Targets that limit their RAM: notes on the heap, and the facts of their object programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.pipeline.builder.build import build_project
from etdev.pipeline.cache import object_facts
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.results.result import TargetResult

pytestmark = pytest.mark.integration

pytest.importorskip("torch", reason="needs the extra `build`")

MODEL = """
    from torch import nn


    def make():
        return nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 4))
    """
CONFIG = """
version = 1
[model]
entry = "model:make"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [4, 128] }]
[targets.cpu]
"""
BANKS = 'memory.banks = [{{ name = "fast", id = 1, size = "8KiB" }}, {{ name = "slow", id = 2, size = "{}" }}]'
COPIES = "matrix products may copy 262,144 bytes of their operands to the heap, which is in no bank"


def built(project: Callable[..., Project], settings: str) -> TargetResult:
    found = build_project(project(CONFIG + settings, model=MODEL), BuildOptions(verify=False))["cpu"]
    assert found.status == "built"
    return found


@pytest.mark.parametrize(
    ("settings", "noted"),
    [("", False), (BANKS.format("512KiB"), True), (BANKS.format("512KiB") + '\nlowering = "stock"', False)],
    ids=["no banks", "banks", "stock"],
)
def test_copies_of_operands_are_noted(project: Callable[..., Project], settings: str, noted: bool) -> None:
    """The kernel of ``linear`` copies 512 x 128 floats to the heap; ``addmm`` copies nothing, and is slower."""
    assert any(COPIES in note for note in built(project, settings).notes) == noted


def test_a_limit_lowers_again(project: Callable[..., Project]) -> None:
    """Forms are chosen by the RAM of the runtime's objects only where the target limits it."""

    def digest(settings: str) -> str:
        return object_facts(project(CONFIG + settings, model=MODEL), "cpu").digest

    limits = ("budget.ram = 20_000", "budget.ram = 30_000", "runner = true")
    (limited,) = {digest(limit) for limit in limits}
    assert limited != digest("")
    stock = 'lowering = "stock"\n'
    assert len({digest(stock + limit) for limit in ("", *limits)}) == 1
