"""Stage *quantize*: what each scheme does to the program, what it leaves alone, and what stands in its way (E2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etdev.errors import EmitError, QuantizeError
from etdev.pipeline.dry_run import dry_run
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.emit import ObjectProgram
from support.stages import Failure, check_failure, emit, prepare, quantize

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")

CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = ["n", 32] }]
dims.n = { max = 8 }
[quantize.small]
SCHEME
[targets.cpu]
quantize = "small"
partitioners = [{ backend = "BACKEND" }]
"""
MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.first = nn.Linear(32, 64)
            self.second = nn.Linear(64, 8)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            return self.second(self.first(x).relu()) + 0 * self.count
"""
DATA = """
    import torch

    def calibration():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(4, 32, generator=generator),) for _ in range(4)]
"""
STATIC = 'scheme = "pt2e-xnnpack"\ncalibration = "data:calibration"'
DYNAMIC = 'scheme = "pt2e-xnnpack"\ndynamic = true'
INT4 = 'scheme = "8da4w"'
TABLE = "etdev.toml:7:1 (quantize.small)"
CALIBRATION = "etdev.toml:9:15 (quantize.small.calibration)"


def _config(scheme: str, backend: str = "xnnpack") -> str:
    return CONFIG.replace("SCHEME", scheme).replace("BACKEND", backend)


def _ops(model: ExportedModel, method: str = "forward") -> set[str]:
    """The quantization ops of a graph, ``quantize_per_tensor`` for short."""
    nodes = model.methods[method].program.graph.nodes
    names = [str(node.target).split(".") for node in nodes if node.op == "call_function"]
    return {name[1] for name in names if name[0] in ("quantized_decomposed", "torchao")}


def _snr(mine: torch.Tensor, reference: torch.Tensor) -> float:
    return float(20 * (reference.detach().norm() / (mine - reference).detach().norm()).log10())


ACTIVATIONS = {"quantize_per_tensor", "dequantize_per_tensor"}


@pytest.mark.parametrize(
    ("scheme", "ops"),
    [
        (STATIC, ACTIVATIONS | {"dequantize_per_channel"}),
        (STATIC + "\nper_channel = false", ACTIVATIONS),
        (DYNAMIC, ACTIVATIONS | {"dequantize_per_channel", "choose_qparams"}),
        (INT4, {"choose_qparams_affine", "quantize_affine", "dequantize_affine"}),
    ],
    ids=["static", "static per tensor", "dynamic", "8da4w"],
)
def test_each_scheme_quantizes_the_linear_layers_and_lowers(
    project: Callable[..., Project], scheme: str, ops: set[str]
) -> None:
    """The float model stays the reference of the quantized one; sizes stay dynamic."""
    made = project(_config(scheme), model=MODEL, data=DATA)
    floating, quantized = prepare(made)
    assert floating is not quantized
    assert (floating.scheme, quantized.scheme) == (None, scheme.split('"')[1])
    assert (_ops(quantized), _ops(floating)) == (ops, set())
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    reference, result = (model.eager["forward"](x) for model in (floating, quantized))
    assert 15 < _snr(result, reference) < 60
    assert quantized.eager["forward"](torch.ones(8, 32)).shape == (8, 8)  # the batch is dynamic still


BATCH_NORMS = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.layers = nn.Sequential(LAYERS)

        def forward(self, x):
            return self.layers(x[:, None, :, None]).flatten(1)
"""


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        ("nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.ReLU()", False),  # The norm is folded into the convolution.
        pytest.param("nn.BatchNorm2d(1), nn.Conv2d(1, 2, 1), nn.ReLU()", True, marks=pytest.mark.nightly),
    ],
    ids=["folded", "kept"],
)
def test_patterns_with_a_batch_norm_are_exported_only_for_graphs_with_one(
    project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch, layers: str, kept: bool
) -> None:
    from torchao.quantization.pt2e import utils

    from etdev.pipeline.stages.quantize import xnnpack

    counted: list[object] = []
    export = utils._get_aten_graph_module_for_pattern
    monkeypatch.setattr(
        "executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils._get_aten_graph_module_for_pattern",
        lambda *given, **named: counted.append(given) or export(*given, **named),
    )
    made = project(_config(STATIC), model=BATCH_NORMS.replace("LAYERS", layers), data=DATA)
    graph = str(quantize(made).methods["forward"].program.graph)
    assert bool(counted) == kept
    counted.clear()
    monkeypatch.setattr(xnnpack, "_look_for_batch_norms_only_if_there_are_any", lambda quantizer: None)
    assert str(quantize(made).methods["forward"].program.graph) == graph
    assert counted


INTEGERS = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.layer = nn.Linear(32, 32)
            self.table = nn.Parameter(torch.randn(12, 32))

        def forward(self, x):
            positions = torch.arange(x.shape[0]) + 2
            large = positions * 3 + 2**24 + 1
            return self.layer(x * 2) + self.table[positions], positions, large
"""


@pytest.mark.parametrize("scheme", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_numbers_added_to_integers_stay_integers(project: Callable[..., Project], scheme: str) -> None:
    """A reproducer: the quantizer made them float32, and positions of tokens no longer indexed a table."""
    _, quantized = prepare(project(_config(scheme), model=INTEGERS, data=DATA))
    _, positions, large = quantized.eager["forward"](torch.ones(4, 32))
    assert positions.tolist() == [2, 3, 4, 5]
    assert large.tolist() == [2**24 + 1 + 3 * position for position in positions.tolist()]
    assert (positions.dtype, large.dtype) == (torch.int64, torch.int64)
    assert _ops(quantized)


def operators(emitted: ObjectProgram) -> list[str]:
    """Names of the operators that the only method calls."""
    return [operator.name for operator in emitted.program.execution_plan[0].operators]


@pytest.mark.parametrize("scheme", [STATIC, INT4], ids=["static", "8da4w"])
@pytest.mark.sampled(1)
def test_a_quantized_program_goes_to_the_delegate(project: Callable[..., Project], scheme: str) -> None:
    fixed = _config(scheme).replace('["n", 32]', "[4, 32]").replace("dims.n = { max = 8 }", "")
    emitted = emit(project(fixed, model=MODEL, data=DATA))
    (plan,) = emitted.program.execution_plan
    assert {delegate.id for delegate in plan.delegates} == {"XnnpackBackend"}
    assert not [name for name in operators(emitted) if "quantize" in name]


@pytest.mark.parametrize("scheme", [STATIC, DYNAMIC, INT4], ids=["static", "dynamic", "8da4w"])
def test_quantizing_leaves_the_float_model_and_its_state_alone(project: Callable[..., Project], scheme: str) -> None:
    """A reproducer: calibration ran on buffers that it shared with the float model, whose counter began at 5."""
    floating, quantized = prepare(project(_config(scheme), model=MODEL, data=DATA))
    module = floating.eager["forward"]
    torch.manual_seed(3)
    assert torch.equal(module.first.weight, torch.nn.Linear(32, 64).weight)  # type: ignore[attr-defined]
    assert type(module.first.weight) is torch.nn.Parameter  # type: ignore[attr-defined]
    assert module.count.item() == 0  # type: ignore[attr-defined]
    for model in (floating, quantized):
        assert model.methods["forward"].program.state_dict["count"].item() == 0
    assert dict(quantized.eager["forward"].named_buffers())["count"].item() == 0  # type: ignore[attr-defined]


def test_every_calibration_sample_starts_on_fresh_state(project: Callable[..., Project]) -> None:
    model = MODEL.replace("+ 0 * self.count", "* self.count")
    graph = quantize(project(_config(STATIC), model=model, data=DATA)).methods["forward"].program.graph
    (result,) = next(node for node in graph.nodes if node.op == "output").args[0]
    scale = result.args[1]  # of the last dequantize_per_tensor; four samples in a row would have stretched it fourfold
    assert scale * 256 < 4


METHODS = """
version = 1
[model]
entry = "model:Net"
[methods.wide]
inputs = [{ name = "x", dtype = "float32", shape = [2, 32] }]
[methods.narrow]
inputs = [{ name = "x", dtype = "float32", shape = [2, 8] }]
[quantize.small]
scheme = "pt2e-xnnpack"
calibration = { wide = "data:wide", narrow = "data:narrow" }
[targets.cpu]
quantize = "small"
"""
TWO = """
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(32, 4)
            self.b = nn.Linear(8, 4)

        def wide(self, x):
            return self.a(x)

        def narrow(self, x):
            return self.b(x)
"""


@pytest.mark.nightly
def test_each_method_is_calibrated_on_its_own_data(project: Callable[..., Project]) -> None:
    data = "import torch\n"
    for name, scale, size in (("wide", 1.0, 32), ("narrow", 100.0, 8)):
        data += f"def {name}():\n    return [(sign * {scale} * torch.ones(2, {size}),) for sign in (1, -1)]\n"
    quantized = quantize(project(METHODS, model=TWO, data=data))
    scales = {}
    for name, method in quantized.methods.items():
        node = next(node for node in method.program.graph.nodes if "quantize_per_tensor" in str(node.target))
        scales[name] = node.args[1]
    assert scales["wide"] == pytest.approx(2 / 255, rel=0.01)
    assert scales["narrow"] == pytest.approx(200 / 255, rel=0.01)


BAD_DATA = {
    "another shape": (
        "return [(torch.ones(4, 31),)]",
        (
            "'data:calibration' returns inputs that method 'forward' does not accept: sample 0: input 'x' "
            "has the shape [4, 31], but is declared as [n, 32]: axis 1 is 31 instead of 32"
        ),
        "the config declares x: float32 [n, 32]; if the samples are right, set `shape` of 'x' to [\"n\", 31]",
    ),
    "raising": (
        "raise OSError('no such file')",
        "'data:calibration' failed: OSError: no such file (data.py:3, in calibration)",
        None,
    ),
    "raising midway": (
        "yield (torch.ones(4, 32),)\n    raise OSError('no such file')",
        "'data:calibration' failed at sample 1: OSError: no such file (data.py:4, in calibration)",
        None,
    ),
    "empty": ("return []", "'data:calibration' returned no samples", "check that the function finds its data"),
}


@pytest.mark.parametrize(("body", "message", "hint"), BAD_DATA.values(), ids=BAD_DATA)
@pytest.mark.sampled
def test_calibration_that_cannot_be_used(
    project: Callable[..., Project], body: str, message: str, hint: str | None
) -> None:
    made = project(_config(STATIC), model=MODEL, data=f"import torch\ndef calibration():\n    {body}\n")
    check_failure(lambda: quantize(made), Failure(QuantizeError, CALIBRATION, message, hint))


RESET = """
        def reset(self):
            self.count.zero_()
            return self.count.clone()
"""
"""A method of :data:`MODEL` in which there is nothing to quantize."""


@pytest.mark.parametrize("scheme", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.nightly
def test_a_method_with_nothing_to_quantize_stays_float(project: Callable[..., Project], scheme: str) -> None:
    """It takes no inputs, so that nobody has to name any to calibrate on; and the others are quantized."""
    config = _config(scheme).replace("[quantize.small]", "[methods.reset]\ninputs = []\n[quantize.small]")
    made = project(config, model=MODEL.rstrip() + "\n" + RESET, data=DATA)
    model = quantize(made)
    assert model.notes == ("methods with nothing to quantize, which stay in float: 'reset'",)
    assert _ops(model)
    assert not _ops(model, "reset")


CONV = """
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = LAYER

        def forward(self, x):
            return self.layer(x[:, None])
"""


@pytest.mark.parametrize(
    ("scheme", "layer", "message", "hint"),
    [
        (
            STATIC,
            "nn.Sigmoid()",
            "the scheme 'pt2e-xnnpack' found nothing to quantize in method 'forward'",
            "remove `quantize`",
        ),
        (
            DYNAMIC,
            "nn.Conv1d(1, 1, 3)",
            "the scheme 'pt2e-xnnpack' found nothing to quantize in method 'forward'",
            "set `dynamic` to false: dynamic quantization covers linear layers only",
        ),
        (
            INT4,
            "nn.Conv1d(1, 1, 3)",
            "the scheme '8da4w' works on linear layers, but the model has none",
            "use the scheme 'pt2e-xnnpack'",
        ),
        (
            INT4 + "\ngroup_size = 64",
            "nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 1))",
            "group_size 64 does not divide the width of layer.0 (32)",
            "set `group_size` to 32, or name 'layer.0' in `keep_float`",
        ),
    ],
    ids=["static", "dynamic", "8da4w", "8da4w, uneven"],
)
def test_models_that_a_scheme_does_not_fit(
    project: Callable[..., Project], scheme: str, layer: str, message: str, hint: str
) -> None:
    made = project(_config(scheme), model=CONV.replace("LAYER", layer), data=DATA)
    where = "etdev.toml:9:14 (quantize.small.group_size)" if "group_size" in scheme else TABLE
    failure = Failure(QuantizeError, where, message, hint)
    check_failure(lambda: quantize(made), failure)
    if "8da4w" in scheme:  # The model is enough to know it.
        check_failure(lambda: dry_run(made, BuildOptions()), failure)


def test_the_output_projection_of_attention_stays_float(project: Callable[..., Project]) -> None:
    """torchao passes it over by its class; its width does not count either."""
    layer = "nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)"
    quantized = quantize(project(_config(INT4), model=CONV.replace("LAYER", layer)))
    kinds = {
        name: type(part.weight).__name__ == "IntxUnpackedToInt8Tensor"
        for name, part in quantized.eager["forward"].named_modules()  # type: ignore[attr-defined]
        if isinstance(part, torch.nn.Linear)
    }
    assert kinds == {"layer.self_attn.out_proj": False, "layer.linear1": True, "layer.linear2": True}


@pytest.mark.parametrize("scheme", [STATIC, DYNAMIC, INT4], ids=["static", "dynamic", "8da4w"])
@pytest.mark.nightly
def test_named_modules_stay_in_float(project: Callable[..., Project], scheme: str) -> None:
    model = MODEL.replace("nn.Linear(64, 8)", "nn.Sequential(nn.ReLU(), nn.Linear(32, 8))").replace(
        "self.second(self.first(x).relu()) + 0 * self.count", "self.first(x), self.second(x)"
    )
    made = project(_config(scheme + '\nkeep_float = ["second"]'), model=model, data=DATA)
    x = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    (first, second), (quantized, kept) = (model.eager["forward"](x) for model in prepare(made))
    assert torch.equal(kept, second)
    assert not torch.equal(quantized, first)
    assert _snr(quantized, first) > 15


KEPT = "`keep_float` has 'secnd', but the model computes nothing in a module with this path"


@pytest.mark.parametrize("scheme", [STATIC, INT4], ids=["static", "8da4w"])
@pytest.mark.parametrize(
    ("names", "message", "hint"),
    [
        ('["first", "secnd"]', KEPT, "did you mean 'second'?"),
        ('["zzzz*"]', KEPT.replace("secnd", "zzzz*"), "use some of first, second"),
    ],
    ids=["similar", "none"],
)
def test_modules_to_keep_that_do_not_exist(
    project: Callable[..., Project], scheme: str, names: str, message: str, hint: str
) -> None:
    made = project(_config(f"{scheme}\nkeep_float = {names}"), model=MODEL, data=DATA)
    line = 9 + scheme.count("\n")
    where = f"etdev.toml:{line}:14 (quantize.small.keep_float)"
    check_failure(lambda: quantize(made), Failure(QuantizeError, where, message, hint))


@pytest.mark.parametrize(
    ("scheme", "where", "message", "hint"),
    [
        (
            STATIC,
            TABLE,
            "the scheme 'pt2e-xnnpack' found nothing to quantize in method 'forward'",
            "name fewer modules in `keep_float` or remove `quantize`",
        ),
        (
            INT4,
            "etdev.toml:9:14 (quantize.small.keep_float)",
            "`keep_float` leaves no linear layer to quantize",
            "name fewer modules, or remove `quantize` from the target",
        ),
    ],
    ids=["static", "8da4w"],
)
@pytest.mark.sampled(1)
def test_modules_to_keep_that_are_all(
    project: Callable[..., Project], scheme: str, where: str, message: str, hint: str
) -> None:
    made = project(_config(f'{scheme}\nkeep_float = ["*"]'), model=MODEL.replace("+ 0 * self.count", ""), data=DATA)
    check_failure(lambda: quantize(made), Failure(QuantizeError, where, message, hint))


HEAD = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.conv = nn.Conv2d(1, 4, 3)
            self.head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8))

        def forward(self, x):
            return self.head(self.conv(x.reshape(-1, 1, 4, 8)))
"""


def test_ops_that_share_a_scale_stay_in_float(project: Callable[..., Project]) -> None:
    """The convolution is quantized with the ReLU behind it. The pooling takes no scale from them."""
    made = project(_config(STATIC + '\nkeep_float = ["head"]'), model=HEAD, data=DATA)
    graph = quantize(made).methods["forward"].program.graph
    kinds = [str(node.target).partition(".default")[0] for node in graph.nodes if node.op == "call_function"]
    first = next(number for number, kind in enumerate(kinds) if "conv2d" in kind)
    assert any("quantize_per_tensor" in kind for kind in kinds[:first])
    pooling = next(number for number, kind in enumerate(kinds) if "adaptive_avg_pool2d" in kind)
    assert any("quantize_per_tensor" in kind for kind in kinds[first:pooling])
    assert not any("quantize" in kind for kind in kinds[pooling:])


def test_a_module_with_two_names_is_kept_by_either(project: Callable[..., Project]) -> None:
    model = MODEL.replace("self.register_buffer(", "self.alias = self.second\n            self.register_buffer(")
    quantized = quantize(project(_config(INT4 + '\nkeep_float = ["alias"]'), model=model))
    module: Any = quantized.eager["forward"]
    assert type(module.second.weight) is torch.nn.Parameter
    assert type(module.first.weight) is not torch.nn.Parameter


def test_a_model_that_cannot_be_copied(project: Callable[..., Project]) -> None:
    model = MODEL.replace("self.count.add_(1)", "pass").replace(
        "self.register_buffer(", "self.kept = self.first.weight * 2\n            self.register_buffer("
    )
    message = "the scheme '8da4w' failed: RuntimeError: Only Tensors created explicitly by the user…"
    check_failure(lambda: quantize(project(_config(INT4), model=model)), Failure(QuantizeError, TABLE, message))


@pytest.mark.nightly
def test_8da4w_without_a_delegate_says_which_to_add(project: Callable[..., Project]) -> None:
    made = project(_config(INT4, "portable"), model=MODEL)
    check_failure(
        lambda: emit(made),
        Failure(
            EmitError,
            "etdev.toml:9:1 (targets.cpu)",
            "these ops have no out variant, so an ExecuTorch kernel cannot run them: "
            "torchao::choose_qparams_affine, torchao::dequantize_affine, torchao::quantize_affine",
            "add a partitioner that takes these ops (xnnpack): they come from quantization, and no delegate took them",
        ),
    )


@pytest.mark.parametrize("scheme", [STATIC, DYNAMIC], ids=["static", "dynamic"])
@pytest.mark.nightly
def test_int8_without_a_delegate_runs_on_kernels(project: Callable[..., Project], scheme: str) -> None:
    emitted = emit(project(_config(scheme, "portable"), model=MODEL, data=DATA))
    assert any(name.startswith("quantized_decomposed::") for name in operators(emitted))


@pytest.mark.nightly
def test_a_saved_program_is_quantized_too(project: Callable[..., Project], tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(32, 8))
    program = torch.export.export(
        net, (torch.zeros(4, 32),), dynamic_shapes=({0: torch.export.Dim("n", max=8)},), strict=False
    )
    torch.export.save(program, tmp_path / "model.pt2")
    config = _config(STATIC)
    start, end = config.index("entry"), config.index("[quantize")
    config = config[:start] + 'pt2 = "model.pt2"\ntrust = true\n' + config[end:]
    floating, quantized = prepare(project(config, data=DATA))
    assert "dequantize_per_channel" in _ops(quantized)
    x = torch.randn(3, 32)
    assert _snr(quantized.eager["forward"](x), floating.eager["forward"](x)) > 15
