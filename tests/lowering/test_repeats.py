"""Equal layers are tiled with one search, and in the same way as with a search for each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from etdev.lowering import estimates, tiling
from etdev.lowering.graph import Editor, FormSettings
from etdev.lowering.repeats import Known, Repeats
from etdev.lowering.rewrite import apply_forms

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")
F = torch.nn.functional


class Layers(torch.nn.Module):
    """Layers of attention and of an MLP; ``wide`` has the width of each MLP."""

    def __init__(self, *wide: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)

        def weight(rows: int, columns: int) -> Any:
            return torch.nn.Parameter(torch.randn(rows, columns, generator=generator) / 8, requires_grad=False)

        self.up = torch.nn.ParameterList(weight(size, 16) for size in wide)
        self.down = torch.nn.ParameterList(weight(16, size) for size in wide)

    def forward(self, x: Any) -> Any:
        for up, down in zip(self.up, self.down, strict=True):
            found = F.layer_norm(x, x.shape[-1:])
            x = x + F.softmax(found @ found.transpose(1, 2), dim=-1) @ found
            x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), up)), down)
        return x


def _lowered(*wide: int) -> Any:
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(Layers(*wide).eval(), (torch.randn(1, 96, 16),))
    return to_edge_transform_and_lower(exported).exported_program()


def _tiled(program: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], int]:
    """Return the ops of a copy of the program after tiling, and the number of estimates."""
    program, count = copy.deepcopy(program), 0
    original: Callable[..., Any] = estimates._estimate

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(estimates, "_estimate", counted)
        assert apply_forms(program, FormSettings(frozenset({"tiling"}), "auto")).is_tiled
    return [f"{node.target} {node.args} {node.kwargs}" for node in program.graph.nodes], count


class _Forgetful(Repeats):
    def find(self, occupancy: Any) -> Known:
        return Known()


@pytest.mark.parametrize(
    "wide", [(200, 200, 120), (200, 200, 300, 200, 200, 120, 200), (200,) * 8], ids=["few", "different", "equal"]
)
@pytest.mark.sampled(1)
def test_reuse_changes_no_choice(wide: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    program = _lowered(*wide)
    ops, count = _tiled(program, monkeypatch)
    monkeypatch.setattr(tiling, "Repeats", _Forgetful)
    assert (ops, True) == ((again := _tiled(program, monkeypatch))[0], count < again[1])


@pytest.mark.slow
def test_more_equal_layers_need_no_more_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _tiled(_lowered(*[200] * 12), monkeypatch)[1] < 1.1 * _tiled(_lowered(*[200] * 9), monkeypatch)[1]


class _Cumulated(torch.nn.Module):
    """A cumulative sum at the peak, of ops that can be tiled or, with ``flips``, of an op that cannot be."""

    def __init__(self, *, flips: bool) -> None:
        super().__init__()
        self.flips = flips
        self.wide = torch.nn.Parameter(torch.randn(512, 16), requires_grad=False)
        self.narrow = torch.nn.Parameter(torch.randn(256, 16), requires_grad=False)

    def forward(self, x: Any) -> Any:
        x = x.exp()
        first = F.linear(x, self.wide).split(256, dim=1)[0]
        found = F.linear(x, self.narrow)
        found = found.flip([0]) if self.flips else found
        return found.cumsum(1, dtype=torch.float64).amax(1), first.amax(1)


def test_a_choice_depends_on_whether_the_peaks_inputs_can_be_tiled() -> None:
    """Of two graphs with equal ops at the peak, only one has an input there that can be tiled."""
    from executorch.exir import to_edge_transform_and_lower

    found = []
    for flips in (True, False):
        exported = torch.export.export(_Cumulated(flips=flips), (torch.randn(64, 16),))
        program = to_edge_transform_and_lower(exported).exported_program()
        apply_forms(program, FormSettings(frozenset({"linear", "addmm"})))
        found.append(Editor(program, program.graph_module, FormSettings(frozenset({"tiling"}))).occupancy())
    repeats = Repeats()
    assert tiling._best(found[0], 1000, repeats) is None
    assert tiling._best(found[1], 1000, repeats) is not None
