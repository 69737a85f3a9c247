"""Kernel-aware lowering of whole targets: the runtime and the config decide, delegates stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.errors import EmitError
from etdev.pipeline.builder.build import build_project
from etdev.pipeline.cache import object_facts
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.project.runtime_contents import needed_libraries
from etdev.pipeline.results.result import MethodResult, TargetResult
from etdev.pipeline.stages.emit import emission
from support.stages import emit

pytestmark = pytest.mark.integration

pytest.importorskip("torch", reason="needs the extra `build`")

MODEL = """
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Conv2d(3, 8, 3, padding=1)
            self.last = nn.Linear(8 * 64, 10)
            self.pool = nn.MaxPool2d(2)
            self.register_buffer("total", torch.zeros(10))

        def scores(self, x):
            return self.last(self.pool(self.first(x)).flatten(1))

        def forward(self, x):
            return self.scores(x)

        def rows(self, x):
            return self.last(x[:, :, ::2, 1::2].permute(0, 2, 3, 1).repeat(1, 1, 1, 3)[..., :8].flatten(1)) ** 2

        def branch(self, x):
            y = self.pool(self.first(x)).flatten(1)
            return torch.cond(y.sum() > 0, lambda z: self.last(z), lambda z: self.last(-z), (y,))

        def count(self, x):
            self.total.add_(self.scores(x).flatten())
            return self.total + 0
    """
FORWARD = {"linear": 1, "tiling": 3, "convolution": 8, "movement": 8}
"""The convolution is tiled: columns of the whole image would take more memory than the stock lowering."""


MOBILE = """
    import torch
    from torch import nn


    class Excite(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.narrow, self.wide = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

        def forward(self, x):
            weights = nn.functional.relu(self.narrow(nn.functional.adaptive_avg_pool2d(x, 1)))
            return x * nn.functional.hardsigmoid(self.wide(weights))


    class Mobile(nn.Module):
        def __init__(self, stem):
            super().__init__()
            torch.manual_seed(0)
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), getattr(nn, stem)())
            self.block = nn.Sequential(
                nn.Conv2d(16, 16, 3, 2, 1, groups=16), nn.ReLU(), Excite(16), nn.Conv2d(16, 24, 1)
            )

        def forward(self, x):
            return self.block(self.stem(x)).mean((2, 3))


    def relu():
        return Mobile("ReLU")


    def hardswish():
        return Mobile("Hardswish")
    """


@pytest.fixture
def mobile(project: Callable[..., Project]) -> Callable[..., TargetResult]:
    """Build a small MobileNet with squeeze-excite."""

    def build(stem: str, target: str = "", *, cache: bool = True) -> TargetResult:
        config = (
            f'version = 1\n[model]\nentry = "model:{stem}"\n[methods.forward]\n'
            f'inputs = [{{ name = "x", dtype = "float32", shape = [1, 3, 96, 96] }}]\n[targets.cpu]\n{target}\n'
        )
        return build_project(project(config, model=MOBILE), BuildOptions(verify=False, cache=cache))["cpu"]

    return build


@pytest.mark.parametrize("stem", ["relu", pytest.param("hardswish", marks=pytest.mark.slow)])
@pytest.mark.parametrize("tiling", ["auto", "off", "always"])
@pytest.mark.sampled
def test_no_form_takes_more_memory_than_the_stock_lowering(
    mobile: Callable[..., TargetResult], stem: str, tiling: str
) -> None:
    stock = mobile(stem, 'lowering = "stock"')
    found = mobile(stem, f'memory.tiling = "{tiling}"')
    assert found.memory["cpu"] <= stock.memory["cpu"]
    assert "convolution" in _method(found).forms


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("", "no other form of its ops outside of delegates is known"),
        ('runtime.kernels = ["portable"]', "the kernels of the target's runtime do not allow it"),
        ('lowering = "stock"', '`lowering` is "stock"'),
    ],
)
def test_a_method_that_is_not_tiled_as_asked_is_named(
    project: Callable[..., Project], target: str, reason: str
) -> None:
    config = (
        'version = 1\n[model]\nentry = "model:Net"\n[methods.forward]\n'
        'inputs = [{ name = "x", dtype = "float32", shape = [2] }]\n'
        f'[targets.cpu]\nmemory.tiling = "always"\n{target}\n'
    )
    model = """
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return x + 1
    """
    made = build_project(project(config, model=model), BuildOptions(verify=False))["cpu"]
    assert f"`memory.tiling` is \"always\", but method 'forward' is not tiled: {reason}" in made.notes


@pytest.mark.parametrize("plain", [0, 1], ids=["ExecuTorch emits all", "ExecuTorch emits all but the first"])
@pytest.mark.nightly
def test_the_file_does_not_depend_on_who_emits_the_candidates(
    mobile: Callable[..., TargetResult], monkeypatch: pytest.MonkeyPatch, plain: int
) -> None:
    expected = mobile("relu").sha256
    emit_directly, left = emission.emit_directly, iter(range(plain))
    monkeypatch.setattr(
        emission, "emit_directly", lambda *given: None if next(left, None) is None else emit_directly(*given)
    )
    assert mobile("relu", cache=False).sha256 == expected


WIDE = """
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)

        def forward(self, x):
            return nn.functional.relu(self.second(self.first(x)))
    """


STACKED = """
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.zeros(2, 4))

        def forward(self, x):
            part = x[..., 1:]
            both = torch.stack([part, part])
            return self.state * 2, both, torch.add(both, part, alpha=2)
    """


@pytest.mark.nightly
def test_sizes_among_the_arguments_of_ops(project: Callable[..., Project]) -> None:
    """Decomposed, ``stack`` has sizes without a node as arguments. Tiling looked for them among the nodes, and failed.

    ExecuTorch cannot emit such a list of sizes.
    """
    config = (
        'version = 1\n[model]\nentry = "model:Net"\n[methods.forward]\n'
        'inputs = [{ name = "x", dtype = "float32", shape = ["n", 1] }]\ndims.n = { max = 4 }\n[targets.cpu]\n'
    )
    with pytest.raises(EmitError, match="Unsupported type encountered in int list"):
        build_project(project(config, model=STACKED), BuildOptions(verify=False))


@pytest.mark.nightly
def test_a_convolution_that_keeps_a_slow_kernel_is_reported(project: Callable[..., Project]) -> None:
    """Input and output of the second convolution are the peak of the stock lowering, so nothing else fits in whole."""
    config = (
        'version = 1\n[model]\nentry = "model:Net"\n[methods.forward]\n'
        'inputs = [{ name = "x", dtype = "float32", shape = [1, 1, 48, 64] }]\n[targets.cpu]\n'
    )
    tiled = build_project(project(config, model=WIDE), BuildOptions(verify=False))["cpu"]
    assert _method(tiled).slow_convolutions == ()

    whole = project(f'{config}memory.tiling = "off"\n', model=WIDE)
    found = build_project(whole, BuildOptions(verify=False))["cpu"]
    (needed,) = _method(found).slow_convolutions
    assert found.memory["cpu"] < needed < 2 * found.memory["cpu"]
    assert _method(found).forms["convolution"] == 1


@pytest.mark.nightly
def test_a_method_is_tiled_where_that_saves_more_memory_than_it_adds_to_the_file(
    mobile: Callable[..., TargetResult],
) -> None:
    found = {tiling: mobile("hardswish", f'memory.tiling = "{tiling}"') for tiling in ("auto", "off", "always")}
    decisions = {tiling: _method(target).tiling for tiling, target in found.items()}
    assert [decision is not None and decision.tiled for decision in decisions.values()][1:] == [False, True]
    assert found["always"].memory["cpu"] <= found["auto"].memory["cpu"] <= found["off"].memory["cpu"]
    cost = {tiling: target.memory["cpu"] + target.size for tiling, target in found.items()}
    assert cost["auto"] <= cost["off"]


def _config(target: str = "", method: str = "forward", batch: str = "1", more: str = "") -> str:
    shape = f'[{{ name = "x", dtype = "float32", shape = [{batch}, 3, 16, 16] }}]'
    return (
        f'version = 1\n[model]\nentry = "model:Net"\n[methods.{method}]\ninputs = {shape}\n{more}\n'
        f"[targets.cpu]\n{target}\n"
    )


def _build(project: Callable[..., Project], config: str) -> TargetResult:
    return build_project(project(config, model=MODEL), BuildOptions())["cpu"]


def _method(target: TargetResult) -> MethodResult:
    return target.methods[0]


@pytest.mark.parametrize(
    ("method", "forms"),
    [
        ("forward", FORWARD),
        ("rows", {"linear": 1, "pow": 1, "movement": 4}),
        ("branch", {**FORWARD, "linear": 2}),
        ("count", FORWARD),
    ],
)
@pytest.mark.sampled(1)
def test_methods_compute_the_same(project: Callable[..., Project], method: str, forms: dict[str, int]) -> None:
    """Branches, state and several ops: the stock runtime computes what eager PyTorch does."""
    target = _build(project, _config(method=method))
    assert target.status == "built", target.checks
    assert _method(target).forms == forms
    assert "optimized" in _method(target).libraries


@pytest.mark.nightly
def test_a_dynamic_batch_keeps_linear(project: Callable[..., Project]) -> None:
    target = _build(project, _config(batch='"n"', more="dims.n = { max = 4 }"))
    assert target.status == "built", target.checks
    assert _method(target).forms == {"linear": 1}


@pytest.mark.parametrize(
    ("target", "usable"),
    [
        ('lowering = "stock"', ()),
        ('runtime.kernels = ["portable"]', ()),
        ('runtime.kernels = ["portable", "quantized"]', ()),
        ('runtime.operators = "operators.yaml"', ("pooling",)),
        ('runtime.kernels = ["portable", "optimized"]', tuple(FORWARD)),
    ],
)
@pytest.mark.sampled(1)
def test_the_runtime_decides(project: Callable[..., Project], target: str, usable: tuple[str, ...]) -> None:
    """A runtime without the library gets the stock lowering: the same bytes."""
    from etdev.lowering.forms import FORMS

    listed = next(form for form in FORMS if form.name == "pooling").operators
    Path("operators.yaml").write_text("operators:\n" + "".join(f"  {name}: {{}}\n" for name in listed))
    stock = emit(project(_config('lowering = "stock"'), model=MODEL)).path.read_bytes()
    made = project(_config(target), model=MODEL)
    built = emit(made)
    operators = {f"{operator.name}.{operator.overload}" for operator in built.program.execution_plan[0].operators}
    assert (built.path.read_bytes() == stock) == (usable == ())
    assert ("aten::linear.out" in operators) == ("linear" in usable)
    assert ("aten::convolution.out" in operators) == ("convolution" not in usable)
    assert ("aten::max_pool2d_with_indices.out" in operators) == ("pooling" not in usable)


@pytest.mark.nightly
def test_the_report_of_a_stock_lowering(project: Callable[..., Project]) -> None:
    target = _build(project, _config('lowering = "stock"'))
    assert (_method(target).forms, _method(target).libraries) == ({}, ("portable",))


@pytest.mark.parametrize(("method", "forms"), [("forward", {}), ("rows", {"movement": 2})])
@pytest.mark.nightly
def test_what_a_delegate_takes_is_left_to_it(
    project: Callable[..., Project], method: str, forms: dict[str, int]
) -> None:
    """XNNPACK gets the ops that it expects; what it does not take gets its form."""
    steps = 'partitioners = [{ backend = "xnnpack" }]'
    stock = _build(project, _config(f'lowering = "stock"\n{steps}', method))
    target = _build(project, _config(steps, method))
    assert target.status == "built", target.checks
    assert _method(target).delegate_calls == _method(stock).delegate_calls
    assert _method(target).delegated_ops == _method(stock).delegated_ops
    assert _method(target).forms == forms
    assert (target.sha256 == stock.sha256) == (not forms)


@pytest.mark.parametrize("backend", ["portable", pytest.param("xnnpack", marks=pytest.mark.slow)])
@pytest.mark.nightly
def test_a_quantized_model(project: Callable[..., Project], backend: str) -> None:
    """Its outputs stay those of the quantized model; XNNPACK takes as much of it as without."""
    more = '[quantize.int8]\nscheme = "pt2e-xnnpack"\ncalibration = "data:samples"'
    data = "import torch\n\ndef samples():\n    torch.manual_seed(0)\n    return [(torch.randn(1, 3, 16, 16),)]\n"
    steps = f'quantize = "int8"\npartitioners = [{{ backend = "{backend}" }}]'

    def build(target: str) -> TargetResult:
        return build_project(project(_config(target, more=more), model=MODEL, data=data), BuildOptions())["cpu"]

    stock, target = build(f'lowering = "stock"\n{steps}'), build(steps)
    assert target.status == "built", target.checks
    if backend == "xnnpack":
        assert target.sha256 == stock.sha256
    else:
        assert _method(target).forms["linear"] == 1
        assert _method(target).forms["convolution"] == 1
        (before,), (after,) = _method(stock).buffers, _method(target).buffers
        assert after.size < 0.6 * before.size


@pytest.mark.nightly
def test_two_methods_with_one_weight(project: Callable[..., Project]) -> None:
    """A matrix that both use is stored once, as the form of both wants it."""
    model = """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.matrix, self.row = nn.Parameter(torch.randn(64, 96)), nn.Parameter(torch.randn(96))

            def forward(self, x):
                return torch.addmm(self.row, x, self.matrix)

            def again(self, x):
                return torch.addmm(self.row, x, self.matrix).relu()
        """
    method = '[methods.{}]\ninputs = [{{ name = "x", dtype = "float32", shape = [{}, 64] }}]\n'
    config = 'version = 1\n[model]\nentry = "model:Net"\n' + method.format("forward", 2) + method.format("again", 5)
    sizes = {}
    for lowering in ("stock", "kernels"):
        made = project(f'{config}[targets.cpu]\nlowering = "{lowering}"\n', model=model)
        target = build_project(made, BuildOptions())["cpu"]
        assert target.status == "built", target.checks
        sizes[lowering] = target.size
    assert [item.forms for item in target.methods] == [{"addmm": 1}, {"addmm": 1}]
    assert sizes["kernels"] < sizes["stock"] + 64 * 96


PORTABLE = 'runtime.kernels = ["portable"]'


def test_another_runtime_lowers_again(project: Callable[..., Project]) -> None:
    """The object program of an earlier build is for the kernels that the runtime had then."""
    keys = {
        target: object_facts(project(_config(target), model=MODEL), "cpu").digest
        for target in (
            "",
            'lowering = "stock"',
            'runtime.kernels = ["portable"]',
            'runtime.kernels = ["portable", "optimized"]',
            'runtime.backends = ["XnnpackBackend"]',
        )
    }
    default, stock, portable, optimized, backends = keys.values()
    assert default == optimized == backends
    assert default not in (stock, portable)


def test_sizes_of_banks_lower_again_only_where_ops_may_be_tiled(project: Callable[..., Project]) -> None:
    def digest(size: str, runtime: str) -> str:
        bank = f'memory.banks = [{{ name = "fast", id = 1, size = "{size}" }}]\n'
        return object_facts(project(_config(bank + runtime), model=MODEL), "cpu").digest

    assert digest("64KiB", "") != digest("32KiB", "")
    assert digest("64KiB", PORTABLE) == digest("32KiB", PORTABLE)


def test_a_list_of_operators_that_cannot_be_read(project: Callable[..., Project]) -> None:
    from etdev.errors import ConfigError
    from etdev.pipeline.project.usable_forms import usable_forms

    Path("operators.yaml").write_text("nothing")
    made = project(_config('runtime.operators = "operators.yaml"'), model=MODEL)
    with pytest.raises(ConfigError, match="does not contain a table"):
        usable_forms(made, "cpu")


@pytest.mark.parametrize("backend", ["ethos-u", "cortex-m"])
def test_microcontrollers_do_not_run_the_kernels_of_the_wheel(project: Callable[..., Project], backend: str) -> None:
    from etdev.pipeline.project.usable_forms import usable_forms

    options = ', options = { target = "ethos-u55-128" }' if backend == "ethos-u" else ""
    target = f'partitioners = [{{ backend = "{backend}"{options} }}]'
    assert usable_forms(project(_config(target), model=MODEL), "cpu") == ()
    listed = project(_config(f'{target}\nruntime.kernels = ["portable", "optimized"]'), model=MODEL)
    assert "pooling" in usable_forms(listed, "cpu")


@pytest.mark.parametrize(
    ("operators", "libraries"),
    [
        ((), ()),
        (("aten::add.out", "aten::linear.out"), ("optimized", "portable")),
        (("quantized_decomposed::add.out", "dim_order_ops::_clone_dim_order.out"), ("portable", "quantized")),
        (("executorch_prim::et_view.default", "aten::sym_size.int", "mine::op.out"), ()),
    ],
)
def test_libraries_that_operators_need(operators: tuple[str, ...], libraries: tuple[str, ...]) -> None:
    assert needed_libraries(operators) == libraries
