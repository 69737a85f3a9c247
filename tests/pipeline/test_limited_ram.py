"""Targets that limit their RAM: forms must not take more of it than they save."""

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
    ("settings", "takes", "noted"),
    [
        ("", True, False),
        ('budget.ram = "1MiB"', True, False),
        ("budget.ram = 20_000", False, False),
        (BANKS.format("512KiB"), True, True),
        (BANKS.format("64KiB"), False, False),
    ],
    ids=["no limit", "room for copies", "no room for copies", "banks with room", "banks without room"],
)
def test_copies_of_operands_have_to_fit(
    project: Callable[..., Project], settings: str, takes: bool, noted: bool
) -> None:
    """The kernel of ``linear`` copies 512 x 128 floats to the heap; ``addmm`` copies nothing, and is slower."""
    found = built(project, settings)
    assert ("linear" in found.methods[0].forms) == takes
    assert any(COPIES in note for note in found.notes) == noted


def test_another_limit_lowers_again(project: Callable[..., Project]) -> None:
    """The object program of an earlier build was chosen for the limit that the target had then."""

    def digest(settings: str) -> str:
        return object_facts(project(CONFIG + settings, model=MODEL), "cpu").digest

    limits = ("", "budget.ram = 20_000", "budget.ram = 30_000", "runner = true")
    assert len({digest(limit) for limit in limits}) == len(limits)
    stock = 'lowering = "stock"\n'
    assert len({digest(stock + limit) for limit in limits}) == 1
