"""Programs with quantized inputs and outputs: the same results as with float ends, the report, and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch

import etdev
from etdev.errors import ConfigError
from etdev.execution.float_ends import float_outputs, quantized_inputs
from etdev.pipeline.results.result import BuildResult, CheckResult
from etdev.program import model as m
from etdev.program import read, write
from etdev.program.analysis.quantized_ends import quantized_ends
from runner.compiled import compiled, expected, source, tools
from support.projects import write_project
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first = nn.Conv2d(3, 8, 3, padding=1, stride=2)
            self.second = nn.Conv2d(8, 16, 3, padding=1, stride=2)
            self.last = nn.Linear(16, 10)
            self.other = nn.Linear(16, 10)

        def forward(self, image):
            x = self.second(self.first(image).relu()).relu()
            return self.last(nn.functional.avg_pool2d(x, 8).flatten(1))

        def pair(self, left, right, index):
            both = self.last(left) + self.other(right)
            return both, both.softmax(-1), index.neg()

        def plain(self, x):
            return x.sin()
"""
DATA = """
    import torch

    def images():
        generator = torch.Generator().manual_seed(1)
        return [(torch.randn(n, 3, 32, 32, generator=generator),) for n in (1, 4, 2)]

    def pairs():
        generator = torch.Generator().manual_seed(2)
        draw = lambda: torch.randn(2, 16, generator=generator)
        return [(draw(), draw() * 3, torch.tensor([7])) for _ in range(4)]

    def numbers():
        return [(torch.arange(4.0),)]

    def mean(run):
        found = [run(*images)[0] for images in images()]
        assert all(outputs.dtype == torch.float32 for outputs in found)
        return float(torch.cat(found).abs().mean())
"""
CONFIG = """
    version = 1
    [project]
    name = "net"
    [model]
    entry = "model:Net"
    [constants]
    get_width = 10
    [methods.forward]
    inputs = [{ name = "image", dtype = "float32", shape = ["batch", 3, 32, 32] }]
    dims.batch = { max = 4 }
    samples = "data:images"
    [methods.pair]
    inputs = [
        { name = "left", dtype = "float32", shape = [2, 16] },
        { name = "right", dtype = "float32", shape = [2, 16] },
        { name = "index", dtype = "int64", shape = [1] },
    ]
    samples = "data:pairs"
    [methods.plain]
    inputs = [{ name = "x", dtype = "float32", shape = [4] }]
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = { forward = "data:images", pair = "data:pairs", plain = "data:numbers" }
    [targets.floats]
    quantize = "int8"
    [targets.integers]
    quantize = "int8"
    verify.accuracy = { fn = "data:mean", min = 0.01 }
    budget.latency = { p50 = "100s", method = "pair" }
    io.forward.quantized = "all"
    io.pair.quantized = ["right", "output0"]
    [targets.xnnpack-floats]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
    [targets.xnnpack]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
    io.forward = { quantized = "all", inputs = "caller", outputs = "caller" }
    io.pair.quantized = ["right", "output0"]
"""
PAIRS = (("floats", "integers"), ("xnnpack-floats", "xnnpack"))
EACH_PAIR = [PAIRS[0], pytest.param(*PAIRS[1], marks=pytest.mark.nightly)]
QUANTIZED = ["integers", pytest.param("xnnpack", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("net"), CONFIG, model=MODEL, data=DATA)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of :func:`built`."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def built(config: Path, cache: Path, pytestconfig: pytest.Config) -> BuildResult:
    """The targets, verified; those with delegates every night only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETDEV_CACHE_DIR", str(cache))
        return etdev.build(config, targets=[] if pytestconfig.getoption("--nightly") else PAIRS[0])


def check(result: BuildResult, target: str, name: str) -> CheckResult:
    return next(found for found in result[target].checks if found.name == name)


def calls() -> list[tuple[str, tuple[Any, ...]]]:
    generator = torch.Generator().manual_seed(5)

    def draw() -> torch.Tensor:
        return torch.randn(2, 16, generator=generator)

    images = [(torch.randn(size, 3, 32, 32, generator=generator) * 2,) for size in (1, 3, 4)]
    pairs = [(draw(), draw(), torch.tensor([3])) for _ in range(3)]
    return [*(("forward", one) for one in images), *(("pair", one) for one in pairs)]


@pytest.mark.parametrize(("floats", "integers"), EACH_PAIR)
def test_the_same_bits_as_with_float_ends(built: BuildResult, floats: str, integers: str) -> None:
    program = read(built.path(integers))
    ends = quantized_ends(program)
    assert {name: [(end.side, end.position) for end in found] for name, found in ends.items()} == {
        "forward": [("input", 0), ("output", 0)],
        "pair": [("input", 1), ("output", 0)],
    }
    runtime = shared_runtime()
    for method, inputs in calls():
        runtime.load(built.path(floats))
        wanted = runtime.call(method, inputs)
        runtime.load(built.path(integers))
        given = quantized_inputs(ends, method, inputs)
        assert [one.dtype == torch.int8 for one in given] == [("input", at) in _ends(ends[method]) for at in _at(given)]
        outputs = runtime.call(method, given)
        assert [one.dtype == torch.int8 for one in outputs] == [
            ("output", at) in _ends(ends[method]) for at in _at(outputs)
        ]
        for found, value in zip(float_outputs(ends, method, outputs), wanted, strict=True):
            assert torch.equal(found, value)


def _ends(ends: Any) -> set[tuple[str, int]]:
    return {(end.side, end.position) for end in ends}


def _at(values: Any) -> range:
    return range(len(values))


@pytest.mark.parametrize(("floats", "integers"), EACH_PAIR)
def test_no_conversion_is_left_at_the_ends(built: BuildResult, floats: str, integers: str) -> None:
    before, after = (read(built.path(name)).method("forward") for name in (floats, integers))
    image, output = (after.values[index] for index in (*after.inputs, *after.outputs))
    assert isinstance(image, m.Tensor)
    assert isinstance(output, m.Tensor)
    assert image.nbytes == 4 * 3 * 32 * 32
    assert output.scalar_type is m.ScalarType.CHAR
    assert conversions(before) - conversions(after) == (2 if integers == "integers" else 0)


def conversions(plan: m.ExecutionPlan) -> int:
    names = [plan.operators[call.op_index].name for call in plan.instructions if isinstance(call, m.KernelCall)]
    return sum(name.endswith("quantize_per_tensor") for name in names)


@pytest.mark.parametrize("target", QUANTIZED)
def test_all_checks_pass(built: BuildResult, target: str) -> None:
    assert built[target].status == "built"
    for name in ("runtime", "native") + ("replay", "accuracy", "latency") * (target == "integers"):
        assert check(built, target, name).status == "passed"
    found, other = (check(built, name, "runtime").outputs for name in (target, dict(map(reversed, PAIRS))[target]))
    assert [(one.dtype, one.max_abs_error, one.float_snr_db) for one in found] == [
        (one.dtype, one.max_abs_error, one.float_snr_db) for one in other
    ]


def test_the_report(built: BuildResult, config: Path) -> None:
    forward, pair, plain = (
        next(method for method in built["integers"].methods if method.name == name)
        for name in ("forward", "pair", "plain")
    )
    assert [(one.name, one.dtype) for one in forward.quantized] == [("image", "int8"), ("output0", "int8")]
    assert [one.name for one in pair.quantized] == ["right", "output0"]
    assert plain.quantized == ()
    end = quantized_ends(read(built.path("integers")))["forward"][0]
    (image, _) = forward.quantized
    assert (image.scale, image.zero_point, image.quant_min, image.quant_max) == (end.scale, end.zero_point, -128, 127)
    told = json.loads((config.parent / "build" / "integers" / "report.json").read_text())
    assert next(method for method in told["targets"][0]["methods"] if method["name"] == "forward")["quantized"]
    runtime = shared_runtime()
    runtime.load(built.path("integers"))
    assert list(runtime.call("forward_input0_scale", ())) == [end.scale]
    assert list(runtime.call("forward_input0_zp", ())) == [end.zero_point]
    assert list(runtime.call("get_width", ())) == [10]


@pytest.mark.parametrize("target", ["integers", "xnnpack"])
@pytest.mark.nightly
def test_a_runner_takes_and_returns_the_integers(built: BuildResult, target: str, tmp_path: Path) -> None:
    tools()
    file = built.path(target)
    ends = quantized_ends(read(file))
    project = compiled(source(file), tmp_path / "project")
    given = [(method, quantized_inputs(ends, method, inputs)) for method, inputs in calls()]
    found, told = project.calls(tmp_path / "out", given)
    runtime = shared_runtime()
    runtime.load(file)
    assert found == [expected(runtime.call(method, inputs)) for method, inputs in given]
    assert "_zp::kMethodPoolBytes" not in told, "the constants are in the header"


@pytest.mark.slow
def test_a_wrong_constant_is_found(built: BuildResult, config: Path) -> None:
    """The scale of the file is the one that verification uses, as any user of the file does."""
    path = built.path("integers")
    content, program = path.read_bytes(), read(path)
    plans = [
        replace(plan, values=(m.Double(0.5),)) if plan.name == "forward_output0_scale" else plan
        for plan in program.execution_plan
    ]
    write(replace(program, execution_plan=tuple(plans)), path)
    try:
        result = etdev.verify(config, targets=["integers"])
    finally:
        path.write_bytes(content)
    assert check(result, "integers", "runtime").status == "failed"


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        pytest.param(
            ["targets.floats.io.forward.quantized=all"],
            "input 'image' of method 'forward' is not quantized, but the",
            marks=pytest.mark.slow,
        ),
        (
            ['targets.integers.io.pair.quantized=["right", "output0", "output1"]'],
            "output 1 of method 'pair' is not quantized, but the config requires it",
        ),
        pytest.param(
            ["targets.integers.io.pair.quantized=[]"],
            "the file has the methods forward, forward_input0_dtype, ",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.nightly
def test_a_file_of_another_config_is_refused(
    built: BuildResult, config: Path, overrides: list[str], problem: str
) -> None:
    target = overrides[0].split(".")[1]
    result = etdev.verify(config, targets=[target], overrides=overrides)
    assert check(result, target, "runtime").problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("overrides", "message", "hint"),
    [
        (
            ["targets.integers.io.pair.quantized=all"],
            (
                "output 1 of method 'pair' is not quantized: "
                "`aten.softmax.int` computes it in floats (model.py:19, in pair)"
            ),
            'quantize only the others: quantized = ["left", "right", "output0"]',
        ),
        pytest.param(
            ["targets.integers.io.plain.quantized=all"],
            "input 'x' of method 'plain' is not quantized: `aten.sin.default` reads its floats (model.py:22, in plain)",
            "remove this key",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ['targets.integers.io.pair.quantized=["left", "output2"]'],
            "method 'pair' has no float input or output 'output2'",
            "did you mean 'output1'?",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.nightly
def test_errors(config: Path, overrides: list[str], message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        etdev.build(config, targets=["integers"], overrides=overrides, verify=False)
    key, _, text = error.value.message.partition(": ")
    assert (text, error.value.hint) == (message, hint)
    assert key.startswith("`targets.integers.io.")


@pytest.mark.nightly
def test_a_constant_of_the_same_name(tmp_path: Path) -> None:
    config = write_project(tmp_path, CONFIG.replace("get_width", "forward_input0_zp"), model=MODEL, data=DATA)
    with pytest.raises(ConfigError) as error:
        etdev.build(config, targets=["integers"], verify=False)
    message = (
        "`targets.integers.io.forward.quantized` adds the constant method 'forward_input0_zp', but the model already "
        "has a method 'forward_input0_zp'"
    )
    assert (error.value.message, error.value.hint) == (message, "rename that method")


def kind(result: BuildResult) -> str:
    (target,) = result.targets
    return "all" if "lower" in target.seconds else "link"


@pytest.mark.slow
def test_only_a_change_of_quantized_lowers_again(
    built: BuildResult, config: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(cache))

    def again(*overrides: str) -> str:
        return kind(etdev.build(config, targets=["integers"], overrides=list(overrides), verify=False))

    assert again("targets.integers.io.plain.outputs=caller") == "link"
    assert again("targets.integers.io.forward.inputs=caller") == "link"
    assert again('targets.integers.io.pair.quantized=["right"]') == "all"


@pytest.mark.slow
def test_methods_in_several_processes(built: BuildResult, config: Path) -> None:
    again: Callable[..., BuildResult] = etdev.build
    result = again(config, targets=["integers"], verify=False, cache=False, jobs=3)
    assert result["integers"].sha256 == built["integers"].sha256
    assert result["integers"].methods == built["integers"].methods
