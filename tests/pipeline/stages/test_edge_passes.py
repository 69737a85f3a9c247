"""Passes of ExecuTorch's edge conversion that etdev skips: which graphs need them, and that files stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.program import _program
from torch import Tensor, nn
from torch.export import Dim

from etdev.pipeline.stages.edge_passes import CHANGED_NODES, needed_passes


class Model(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(4, 4)

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self.linear, *inputs)


def _branches(linear: nn.Linear, x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 0, lambda x: x + 1.5, lambda x: x.clone(), (x,))


FLOATS = (torch.ones(2, 4),)
CONVERTED = {"RemoveMixedTypeOperators", "MemoryFormatOpsPass"}
"""The first adds conversions of dtypes. The second replaces each conversion."""
INTEGRATION = pytest.mark.integration
CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], set[str]]] = {
    "nothing": (lambda linear, x: linear(x).relu() * x, FLOATS, set()),
    "views": (lambda linear, x: linear(x).view(4, 2).transpose(0, 1), FLOATS, set()),
    "scalar": (lambda _, x: x * 1.5, FLOATS, {"ScalarToTensorPass"}),
    "integer": (lambda _, x: x * 2, FLOATS, {"ScalarToTensorPass", *CONVERTED}),
    "dtypes": (lambda _, x, y: x + y, (*FLOATS, torch.ones(2, 4, dtype=torch.int64)), CONVERTED),
    "division": (
        lambda _, x, y: x / y,
        (torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)),
        CONVERTED,
    ),
    "conversion": (lambda _, x: x.to(torch.int32), FLOATS, {"MemoryFormatOpsPass"}),
    "empty": (lambda _, x: torch.empty(2, 4).fill_(0.5) + x, FLOATS, {"MemoryFormatOpsPass"}),
    "branches": (_branches, FLOATS, {"MemoryFormatOpsPass", "ScalarToTensorPass"}),
}


@contextmanager
def noted_passes() -> Iterator[set[str]]:
    """Collect the names of the passes that run, although etdev may skip them."""
    ran: set[str] = set()
    chosen, memory_format = _program._get_aten_to_edge_passes, _program.MemoryFormatOpsPass

    def noted(graph_pass: Any) -> Any:
        name = getattr(graph_pass, "__name__", type(graph_pass).__name__)

        def call(program: Any) -> Any:
            ran.add(name)
            return graph_pass(program)

        call.__name__ = name
        return call

    _program._get_aten_to_edge_passes = lambda config: tuple(
        [noted(graph_pass) for graph_pass in passes] for passes in chosen(config)
    )
    _program.MemoryFormatOpsPass = lambda: noted(memory_format())
    try:
        yield ran
    finally:
        _program._get_aten_to_edge_passes, _program.MemoryFormatOpsPass = chosen, memory_format


def lowered(function: Callable[..., Any], inputs: tuple[Tensor, ...], *, skip: bool, **options: Any) -> bytes:
    torch.manual_seed(0)
    program = torch.export.export(Model(function).eval(), inputs, strict=True, **options)
    with needed_passes() if skip else nullcontext():
        return bytes(to_edge_transform_and_lower(program).to_executorch().buffer)


@pytest.mark.parametrize(
    "name", [name if name in ("nothing", "integer") else pytest.param(name, marks=INTEGRATION) for name in CASES]
)
def test_only_passes_that_change_the_graph_run(name: str) -> None:
    function, inputs, needed = CASES[name]
    with noted_passes() as ran:
        short = lowered(function, inputs, skip=True)
    assert ran & CHANGED_NODES.keys() == needed
    assert short == lowered(function, inputs, skip=False)


@INTEGRATION
def test_sizes_used_as_numbers_become_tensors() -> None:
    def scaled(_: nn.Linear, x: Tensor) -> Tensor:
        return x * x.shape[0]

    dims = {"dynamic_shapes": (({0: Dim("rows", min=2, max=8)},),)}
    with noted_passes() as ran:
        short = lowered(scaled, FLOATS, skip=True, **dims)
    assert "SymToTensorPass" in ran
    assert short == lowered(scaled, FLOATS, skip=False, **dims)


def test_each_skipped_pass_is_one_of_executorchs() -> None:
    with noted_passes() as ran:
        lowered(CASES["nothing"][0], FLOATS, skip=False)
    assert ran >= CHANGED_NODES.keys()


def test_passes_are_skipped_in_the_block_only() -> None:
    before = _program._get_aten_to_edge_passes, _program.MemoryFormatOpsPass
    with needed_passes():
        assert _program._get_aten_to_edge_passes is not before[0]
        assert _program.MemoryFormatOpsPass is not before[1]
    assert (_program._get_aten_to_edge_passes, _program.MemoryFormatOpsPass) == before
