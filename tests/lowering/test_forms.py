"""Kernel-aware lowering: where a form applies it computes what eager PyTorch does, elsewhere it stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etdev.lowering.forms import FORMS, usable_forms
from etdev.pipeline.project.runtime_contents import library_operators
from support.stock import shared_runtime

torch = pytest.importorskip("torch", reason="needs the extra `build`")
F = torch.nn.functional
NAMES = [form.name for form in FORMS]


class Net(torch.nn.Module):
    """A function of inputs and of parameters ``p0``, ``p1`` and so on, and next to it what takes 2.4 MB of memory."""

    def __init__(self, function: Callable[..., Any], parameters: tuple[Any, ...], *, beside: bool) -> None:
        super().__init__()
        self.function, self.beside = function, beside
        for index, value in enumerate(parameters):
            self.register_parameter(f"p{index}", torch.nn.Parameter(value, requires_grad=False))
        self.count = len(parameters)

    def forward(self, *inputs: Any) -> Any:
        result = self.function(*inputs, *(getattr(self, f"p{index}") for index in range(self.count)))
        results = result if isinstance(result, tuple) else (result,)
        return (*results, (torch.ones(300_000) + inputs[0].flatten()[0]).amax()) if self.beside else results


@dataclass(frozen=True)
class Case:
    """What is lowered, and what is replaced in it."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    parameters: tuple[Any, ...] = ()
    replaced: dict[str, int] | None = None
    """Ops by form; None for none."""
    gone: str = ""
    """An operator that the file has no more."""
    dynamic: bool = False
    """Whether the first input's first size changes."""
    beside: bool = True
    """Whether the method has something else that needs more memory."""

    @property
    def net(self) -> Net:
        """The module."""
        return Net(self.function, self.parameters, beside=self.beside)


def _random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape))).to(dtype)


def _computed_selection(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    index: Any = place.item()
    torch._check(index >= 0)
    torch._check(index < 9)
    return x.select(1, index) + 1


def _both_outputs(x: Any) -> Any:
    return F.max_pool2d(x, 3, return_indices=True)


def _branches(x: Any, w: Any) -> Any:
    return torch.cond(x.sum() > 0, F.linear, lambda a, b: F.linear(a, b) * 2, (x, w))


IMAGE, PLANE = _random(1, 6, 12, 13), _random(64, 64)
WEIGHT, BIAS = _random(8, 6, 3, 3), _random(8)

APPLIES = {
    "linear": Case(F.linear, (_random(2, 7, 16),), (_random(5, 16), _random(5)), {"linear": 1}, "aten::addmm.out"),
    "linear without a bias": Case(F.linear, (_random(7, 16),), (_random(5, 16),), {"linear": 1}, "aten::mm.out"),
    "linear of one row": Case(F.linear, (_random(1, 16),), (_random(5, 16), _random(5)), {"linear": 1}),
    "linear of a dynamic batch": Case(
        F.linear, (_random(3, 16),), (_random(5, 16), _random(5)), {"linear": 1}, "aten::addmm.out", dynamic=True
    ),
    "linear in float64": Case(
        F.linear,
        (_random(3, 16, dtype=torch.float64),),
        (_random(5, 16, dtype=torch.float64), _random(5, dtype=torch.float64)),
        {"linear": 1},
    ),
    "linear of inputs": Case(F.linear, (_random(3, 16), _random(5, 16)), replaced={"linear": 1}),
    "linear in branches": Case(_branches, (_random(3, 16),), (_random(5, 16),), {"linear": 2}, "aten::mm.out"),
    "addmm": Case(
        lambda x, w, b: torch.addmm(b, x, w),
        (_random(3, 16),),
        (_random(16, 5), _random(5)),
        {"addmm": 1},
        "aten::addmm.out",
    ),
    "addmm with a matrix that others use": Case(
        lambda x, w, b: torch.addmm(b, x, w) + w.sum(),
        (_random(3, 16),),
        (_random(16, 5), _random(5)),
        {"addmm": 1},
        "aten::addmm.out",
    ),
    "addmm of a full matrix": Case(
        lambda x, w, b: torch.addmm(b, x, w),
        (_random(3, 16),),
        (_random(16, 5), _random(3, 5)),
        {"addmm": 1},
        "aten::addmm.out",
    ),
    "powers": Case(
        lambda x: x**2 + x**3 + (x.abs() + 1) ** 0.5 + (x.abs() + 1) ** -0.5,
        (PLANE,),
        replaced={"pow": 4},
        gone="aten::pow.Tensor_Scalar_out",
    ),
    "clamp": Case(lambda x: x.clamp(-0.5, 1), (PLANE,), replaced={"clamp": 1}, gone="aten::clamp.out"),
    "gelu": Case(lambda x: F.gelu(4 * x, approximate="tanh"), (PLANE,), replaced={"gelu": 1}, gone="aten::gelu.out"),
    "convolution": Case(
        lambda x, w, b: F.conv2d(x, w, b, padding=1),
        (IMAGE,),
        (WEIGHT, BIAS),
        {"convolution": 1},
        "aten::convolution.out",
    ),
    "convolution with a stride": Case(
        lambda x, w: F.conv2d(x, w, stride=2, dilation=2), (IMAGE,), (WEIGHT,), {"convolution": 1}
    ),
    "convolution of 1x1": Case(
        F.conv2d, (IMAGE,), (_random(8, 6, 1, 1), BIAS), {"convolution": 1}, "aten::as_strided_copy.out"
    ),
    "convolution of each channel": Case(
        lambda x, w: F.conv2d(x, w, padding=1, groups=6), (IMAGE,), (_random(6, 1, 3, 3),), {"convolution": 1}
    ),
    "convolution of a batch": Case(
        lambda x, w, b: F.conv2d(x, w, b, padding=1), (_random(3, 6, 9, 9),), (WEIGHT, BIAS), {"convolution": 1}
    ),
    "convolution in one dimension": Case(
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=2),
        (_random(1, 6, 90),),
        (_random(8, 6, 5), BIAS),
        {"convolution": 1},
    ),
    "maximum pooling": Case(
        lambda x: F.max_pool2d(x, 3, 2, 1), (IMAGE,), replaced={"pooling": 1}, gone="aten::max_pool2d_with_indices.out"
    ),
    "average pooling": Case(
        lambda x: F.avg_pool2d(x, 2), (IMAGE,), replaced={"pooling": 1}, gone="aten::avg_pool2d.out"
    ),
    "average pooling that counts padding": Case(
        lambda x: F.avg_pool2d(x, 3, 1, 1), (_random(2, 6, 12, 13),), replaced={"pooling": 1}
    ),
    "average pooling that does not": Case(
        lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False), (IMAGE,), replaced={"pooling": 1}
    ),
    "average pooling of whole images": Case(
        lambda x: F.avg_pool2d(x, 640, ceil_mode=True), (IMAGE,), replaced={"pooling": 1}, gone="aten::avg_pool2d.out"
    ),
    "permutation": Case(
        lambda x: x.permute(2, 0, -1, 1) + 1, (IMAGE,), replaced={"movement": 1}, gone="aten::permute_copy.out"
    ),
    "slice": Case(
        lambda x: x[:, :, 2:-1, ::3] + 1, (IMAGE,), replaced={"movement": 2}, gone="aten::slice_copy.Tensor_out"
    ),
    "selection": Case(lambda x: x[..., -2] + 1, (IMAGE,), replaced={"movement": 1}),
    "expansion": Case(
        lambda x: x.expand(4, 6, 12, 13) + 1,
        (_random(6, 1, 13),),
        replaced={"movement": 1},
        gone="aten::expand_copy.out",
    ),
    "a result that is returned twice": Case(
        lambda x: (x.permute(1, 0) + 1, x.permute(1, 0)), (_random(9, 16),), replaced={"movement": 2}
    ),
}
"""Cases that a form is for."""

STAYS = {
    "a selection at a place that is computed": Case(_computed_selection, (_random(160, 9), torch.tensor(3))),
    "linear of integers": Case(
        F.linear, (torch.arange(48).reshape(3, 16),), (torch.arange(80).reshape(5, 16),), gone="aten::linear.out"
    ),
    "a scaled sum": Case(lambda x, w, b: torch.addmm(b, x, w, beta=2), (_random(3, 16),), (_random(16, 5), _random(5))),
    "another power": Case(lambda x: x.abs() ** 1.7, (PLANE,)),
    "clamp on one side": Case(lambda x: x.clamp(min=-0.5), (PLANE,)),
    "clamp of integers": Case(lambda x: x.clamp(1, 5), (torch.arange(400),)),
    "the exact gelu": Case(F.gelu, (PLANE,)),
    "a small gelu": Case(lambda x: F.gelu(x, approximate="tanh"), (_random(3, 4),)),
    "a small convolution": Case(F.conv2d, (_random(1, 1, 5, 5),), (_random(1, 1, 3, 3),)),
    "a transposed convolution": Case(F.conv_transpose2d, (IMAGE,), (_random(6, 8, 3, 3),)),
    "a convolution of a dynamic batch": Case(F.conv2d, (_random(3, 6, 9, 9),), (WEIGHT,), dynamic=True),
    "a convolution in float64": Case(F.conv2d, (IMAGE.double(),), (WEIGHT.double(),), gone="aten::as_strided_copy.out"),
    "a convolution of a large batch": Case(F.conv2d, (_random(9, 6, 9, 9),), (WEIGHT,)),
    "a convolution of channels that lie side by side": Case(
        lambda x, w: F.conv2d(x.contiguous(memory_format=torch.channels_last), w).contiguous(), (IMAGE,), (WEIGHT,)
    ),
    "a convolution without room for columns": Case(F.conv2d, (IMAGE,), (WEIGHT,), beside=False),
    "pooling without room for copies": Case(lambda x: F.max_pool2d(x, 3, 1, 1), (_random(1, 1, 12, 13),), beside=False),
    "maxima whose places are used": Case(_both_outputs, (IMAGE,)),
    "windows beyond the image": Case(lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (_random(1, 6, 12, 12),)),
    "a divisor of its own": Case(lambda x: F.avg_pool2d(x, 3, divisor_override=2), (IMAGE,)),
    "a permutation of a dynamic batch": Case(
        lambda x: x.permute(1, 0, 2) + 1, (_random(3, 6, 9),), dynamic=True, gone="aten::as_strided_copy.out"
    ),
    "a permutation that moves nothing": Case(lambda x: x.permute(1, 0, 2, 3) + 1, (IMAGE,)),
    "a slice that is a run of bytes": Case(lambda x: x[:, 2:4] + 1, (IMAGE,)),
    "a permuted weight": Case(lambda x, w: x + w.permute(1, 0), (_random(16, 9),), (_random(9, 16),)),
}
"""Cases that no form is for, or that it would not make faster."""


def _lowered(case: Case) -> Any:
    from executorch.exir import to_edge_transform_and_lower

    shapes = None
    if case.dynamic:
        shapes = (({0: torch.export.Dim("n", min=2, max=8)}, *[None] * (len(case.inputs) - 1)),)
    return to_edge_transform_and_lower(torch.export.export(case.net, case.inputs, dynamic_shapes=shapes))


def _run(manager: Any, inputs: tuple[Any, ...], folder: Path) -> tuple[list[Any], set[str]]:
    """Outputs in the stock runtime, and the names of the operators."""
    emitted = manager.to_executorch()
    path = folder / "program.pte"
    path.write_bytes(emitted.buffer)
    runtime = shared_runtime()
    runtime.load(path)
    operators = {
        f"{operator.name}.{operator.overload}" for operator in emitted.executorch_program.execution_plan[0].operators
    }
    return list(runtime.call("forward", inputs)), operators


def _check(case: Case, folder: Path) -> None:
    from etdev.lowering.graph import FormSettings
    from etdev.lowering.rewrite import apply_forms

    manager = _lowered(case)
    counts = apply_forms(manager.exported_program("forward"), FormSettings(frozenset(NAMES))).counts
    assert counts == (case.replaced or {})
    found, operators = _run(manager, case.inputs, folder)
    for value, reference in zip(found, case.net(*case.inputs), strict=True):
        torch.testing.assert_close(value, reference, atol=1e-5 * float(reference.abs().max()), rtol=0)
    assert case.gone not in operators
    if counts:
        listed = {name for form in FORMS if form.name in counts for name in form.operators}
        # What the form brought is what the table says.
        assert operators - listed <= _stock_operators(case, folder)


def _stock_operators(case: Case, folder: Path) -> set[str]:
    return _run(_lowered(case), case.inputs, folder)[1]


@pytest.mark.integration
@pytest.mark.parametrize("case", APPLIES.values(), ids=APPLIES)
@pytest.mark.sampled(2)
def test_a_form_computes_the_same(case: Case, tmp_path: Path) -> None:
    _check(case, tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("case", STAYS.values(), ids=STAYS)
@pytest.mark.sampled(2)
def test_what_no_form_is_for_stays(case: Case, tmp_path: Path) -> None:
    _check(case, tmp_path)


@pytest.mark.nightly
def test_a_nan_goes_through(tmp_path: Path) -> None:
    """As in eager PyTorch; the portable pooling kernel loses it."""
    image = torch.zeros(1, 4, 12, 12)
    image[0, 0, 5, 5] = float("nan")
    for function in (lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: x.clamp(-1, 1)):
        from etdev.lowering.graph import FormSettings
        from etdev.lowering.rewrite import apply_forms

        manager = _lowered(Case(function, (image,)))
        assert apply_forms(manager.exported_program("forward"), FormSettings(frozenset(NAMES))).counts
        (found, *_), _ = _run(manager, (image,), tmp_path)
        torch.testing.assert_close(found, function(image), equal_nan=True)


# Convolutions, in all pieces ------------------------------------------------------------------------------------------


def _dimension() -> st.SearchStrategy[tuple[int, ...]]:
    """Size, kernel, stride, padding, dilation."""
    return st.tuples(st.integers(3, 12), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2))


def _convolution_graph(x: Any, weight: Any, bias: Any, arguments: tuple[Any, ...]) -> Any:
    """An editor of a graph with one convolution, and its node."""
    from executorch.exir.dialects._ops import ops
    from torch._subclasses import FakeTensorMode

    from etdev.lowering.graph import Editor, FormSettings

    graph, mode, values = torch.fx.Graph(), FakeTensorMode(), (x, weight, bias)
    operands = [None if value is None else graph.placeholder(name) for name, value in zip("xwb", values, strict=True)]
    for node, value in zip(operands, values, strict=True):
        if node is not None:
            node.meta["val"] = mode.from_tensor(value)
    node = graph.call_function(ops.edge.aten.convolution.default, (*operands, *arguments))
    node.meta["val"] = mode.from_tensor(torch.convolution(x, weight, bias, *arguments))
    graph.output(node)
    signature = SimpleNamespace(inputs_to_parameters={}, inputs_to_lifted_tensor_constants={}, inputs_to_buffers={})
    program = SimpleNamespace(graph_module=None, graph_signature=signature)
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    return Editor(program, module, FormSettings(frozenset())), node  # type: ignore[arg-type]


@given(
    st.lists(_dimension(), min_size=1, max_size=2),
    st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    st.booleans(),
    st.tuples(st.integers(1, 3), st.integers(1, 4), st.booleans()),
)
@pytest.mark.nightly
def test_pieces_make_the_whole(
    dimensions: list[tuple[int, ...]], channels: tuple[int, ...], has_bias: bool, pieces: tuple[int, int, bool]
) -> None:
    """However a convolution is split, its output is the same."""
    from etdev.lowering import convolution
    from etdev.lowering.convolution_sizes import sizes_of

    size, kernel, stride, padding, dilation = map(list, zip(*dimensions, strict=True))
    samples, groups, inside, outside = channels
    assume(all(n + 2 * p > d * (k - 1) for n, k, p, d in zip(size, kernel, padding, dilation, strict=True)))
    x, weight = _random(samples, groups * inside, *size), _random(groups * outside, inside, *kernel)
    bias = _random(groups * outside) if has_bias else None
    given_ = (stride, padding, dilation, False, [0] * len(size), groups)
    editor, node = _convolution_graph(x, weight, bias, given_)
    sizes = sizes_of(node)
    assert (sizes is None) == any(p > d * (k - 1) for k, p, d in zip(kernel, padding, dilation, strict=True))
    if sizes is None:
        return
    most = groups if groups > 1 else outside
    parts, bands, pads_first = pieces
    split = (1, 1) if sizes.is_product else (min(parts, most), min(bands, convolution._bandable(sizes)))
    chosen = convolution.Pieces(*split, pads_first and any(padding), 0, 0.0)
    with editor.before(node):
        editor.replace(node, convolution._convolved(editor, node, sizes, chosen))
    found = torch.fx.GraphModule(torch.nn.Module(), editor.graph)(*(v for v in (x, weight, bias) if v is not None))
    torch.testing.assert_close(found, torch.convolution(x, weight, bias, *given_), atol=1e-4, rtol=1e-4)


def test_pieces_fit_into_the_room() -> None:
    from etdev.lowering.convolution import fastest, possible_ways
    from etdev.lowering.convolution_sizes import Convolution

    sizes = Convolution(1, 32, 56, 56, 64, (3, 3), (1, 1), (1, 1), (1, 1), 1, bias=True)
    ways = possible_ways(sizes, input_stays=False)
    assert (fastest(ways, 10**9).parts, fastest(ways, 10**9).bands) == (1, 1)
    small = fastest(ways, 1_700_000)
    assert small.memory <= 1_700_000
    assert small.bands > 1
    assert fastest(ways, 0).memory == min(way.memory for way in ways)


# The table ------------------------------------------------------------------------------------------------------------


def test_every_entry_has_a_pass_and_a_figure() -> None:
    from etdev.lowering.rewrite import PASSES

    assert list(PASSES) == NAMES
    assert all(max(form.gain, form.less_memory) > 1 and form.measured and form.reason for form in FORMS)


def test_the_runtime_has_every_operator_of_the_table() -> None:
    """And what is in the optimized library alone, a runtime without it lacks."""
    names = {name for form in FORMS for name in form.operators}
    assert names <= shared_runtime().operators
    assert names - library_operators("portable", frozenset()) == {"aten::linear.out"}


def _runtimes() -> Iterator[tuple[Any, Any, tuple[str, ...]]]:
    everything = tuple(NAMES)
    yield None, None, everything
    yield ("portable", "optimized"), None, everything
    yield ("optimized",), None, everything
    yield ("portable",), None, ()
    yield ("portable", "quantized"), None, ()
    yield (), None, ()
    yield None, frozenset({"aten::linear.out", "aten::erf.out"}), ("linear",)
    yield None, frozenset(), ()


@pytest.mark.parametrize(("libraries", "operators", "usable"), list(_runtimes()))
def test_the_runtime_decides(libraries: Any, operators: Any, usable: tuple[str, ...]) -> None:
    assert usable_forms(libraries, operators) == usable
