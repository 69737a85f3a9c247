"""Int8 models on Ethos-U: lowered by Vela, their TOSA graphs executed by the reference model."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import etdev
from etdev import backends
from etdev.errors import ConfigError, LowerError, MissingRequirementError
from etdev.inspection.report.document import file_document
from etdev.pipeline.results.result import BuildResult, CheckResult, TargetResult
from etdev.program import Blob, parse, read
from etdev.program import model as m
from etdev.program.sidecar import read_sidecar
from etdev.verification.compare import Difference
from etdev.verification.tosa.rounding import roundings
from support.projects import write_project
from support.small_models import MODELS, config_of

STATE = backends.get("ethos-u").availability()
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not STATE.available, reason=f"ethos-u: {STATE.reason}; {STATE.remedy}"),
]


def write(folder: Path, model: str, npu: str, more: str = "", options: str = "") -> Path:
    scheme = f'scheme = "arm-ethos-u"\ntarget = "{npu}"'
    given = f'{{ target = "{npu}"{options} }}'
    target = f'partitioners = [{{ backend = "ethos-u", options = {given} }}]\n{more}'
    return write_project(folder, config_of(model, scheme, target), models=MODELS)


def build(folder: Path, *settings: str, **kinds: str) -> TargetResult:
    result = etdev.build(write(folder, *settings, **kinds))
    assert not result.failed
    return result["mcu"]


def check(target: TargetResult, name: str) -> CheckResult:
    return next(item for item in target.checks if item.name == name)


@pytest.mark.parametrize(
    ("model", "npu"),
    [
        ("Cnn", "ethos-u55-128"),
        pytest.param("Mobile", "ethos-u55-256", marks=pytest.mark.slow),
        pytest.param("Transformer", "ethos-u85-256", marks=pytest.mark.slow),
        pytest.param("Keywords", "ethos-u55-64", marks=pytest.mark.slow),
        ("Autoencoder", "ethos-u65-256"),
    ],
)
@pytest.mark.sampled
def test_a_model(tmp_path: Path, model: str, npu: str) -> None:
    """All of it is on the processor and computes the quantized model. Builds in two folders have the same bytes."""
    first, second = (build(tmp_path / name, model, npu, "budget.scratch = '64KiB'") for name in ("one", "another"))
    assert first.sha256 == second.sha256
    (method,) = first.methods
    assert method.delegate_calls == {"EthosUBackend": 1}
    assert all("quantize_per_tensor" in item.op for item in method.undelegated)
    answer = check(first, "tosa")
    assert answer.status == "passed"
    assert "at most 0 LSB" in answer.summary or "at most 1 LSB" in answer.summary
    summary = "Vela compiles the graphs to the bytes in the file; Vela's command stream itself was not executed"
    assert summary in answer.summary
    assert check(first, "replay").status == "passed"
    (memory,) = method.delegate_memory
    assert 0 < memory.sizes["scratch"] <= 64 << 10
    assert sum(size for name, size in memory.sizes.items() if name.endswith("flash") or name == "dram") > 0
    assert check(first, "budget").summary.startswith("scratch ")
    assert str(tmp_path) not in (tmp_path / "one" / "build" / "mcu" / "small.pte").read_bytes().decode("latin-1")


BACKENDS = """
    [quantize.host]
    scheme = "pt2e-xnnpack"
    calibration = "models:cnn"
    [targets.mcu-ends]
    quantize = "int8"
    partitioners = [{ backend = "ethos-u", options = { target = "ethos-u55-128" } }]
    io.forward.quantized = "all"
    [targets.xnnpack]
    quantize = "host"
    partitioners = [{ backend = "xnnpack" }]
    [targets.xnnpack-ends]
    quantize = "host"
    partitioners = [{ backend = "xnnpack" }]
    io.forward.quantized = "all"
    [targets.portable]
    quantize = "host"
    [targets.portable-ends]
    quantize = "host"
    io.forward.quantized = "all"
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildResult]:
    """The CNN on three backends, each with float and with quantized inputs and outputs."""
    folder = tmp_path_factory.mktemp("ends")
    config = write(folder, "Cnn", "ethos-u55-128")
    config.write_text(config.read_text() + textwrap.dedent(BACKENDS))
    result = etdev.build(config)
    assert not result.failed
    return config, result


@pytest.mark.parametrize(
    ("backend", "answer"),
    [("mcu", "replay"), ("xnnpack", "runtime"), pytest.param("portable", "runtime", marks=pytest.mark.slow)],
)
@pytest.mark.nightly
def test_outputs_are_the_same_with_quantized_ends(
    ends: tuple[Path, BuildResult], backend: str, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All outputs of all samples, dequantized: equal bit by bit to those of the program with floats."""
    config, _ = ends
    outputs: dict[str, list[torch.Tensor]] = {}
    add = Difference.add

    def record(self: Difference, found: torch.Tensor, expected: torch.Tensor, at: str) -> None:
        outputs[name].append(found)
        add(self, found, expected, at)

    monkeypatch.setattr(Difference, "add", record)
    for name in (backend, f"{backend}-ends"):
        outputs[name] = []
        assert check(etdev.verify(config, targets=[name])[name], answer).status == "passed"
    first, second = outputs.values()
    assert len(first) >= 3
    assert all(item.dtype == torch.float32 for item in second)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.nightly
def test_no_conversion_is_left_on_the_host(ends: tuple[Path, BuildResult]) -> None:
    """The delegate takes the int8 input and returns the int8 output, which are all planned memory."""
    result = ends[1]
    plan = read(result.path("mcu-ends")).method("forward")
    (call,) = plan.instructions
    assert isinstance(call, m.DelegateCall)
    assert call.args == (*plan.inputs, *plan.outputs)
    assert {plan.values[index].scalar_type for index in call.args} == {m.ScalarType.CHAR}
    assert result["mcu-ends"].methods[0].undelegated == ()
    planned = {target.name: target.memory["cpu"] for target in result.targets}
    assert planned["mcu"] == 15_360
    assert planned["mcu-ends"] == 3_072 + 10
    assert planned["xnnpack-ends"] <= 4 << 10


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a build of the smallest model."""
    folder = tmp_path_factory.mktemp("small")
    build(folder, "Autoencoder", "ethos-u55-128")
    return folder


@pytest.mark.nightly
def test_the_report_page_has_vela_s_figures(small: Path) -> None:
    """A table of the method, with the sizes of the build."""
    file = small / "build" / "mcu" / "small.pte"
    (memory,) = etdev.build(small / "etdev.toml")["mcu"].methods[0].delegate_memory
    (page,) = file_document(file).programs
    (table,) = (table for table in page.methods[0].tables if table.title == "Memory of delegates")
    assert table.rows == (("0", "EthosUBackend", *memory.named_sizes().values()),)
    assert table.columns == ("index", "backend", *memory.named_sizes())
    assert table.columns[2:4] == ("scratch", "sram")


def _edit_sidecar(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "build" / "mcu" / "small.object.json"
    content = json.loads(path.read_text())
    for record in content["delegates"].values():
        change(record)
    path.write_text(json.dumps(content))


def test_roundings_of_a_delegate_are_counted(small: Path) -> None:
    """Each layer rounds once to int8 on the way to the output."""
    (record,) = read_sidecar(small / "build" / "mcu" / "small.object.json").delegates.values()
    (count,) = roundings(parse(Blob(record.reference)))
    assert 1 < count < 8


def test_a_graph_that_is_not_the_delegates_is_found(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vela would make other bytes from it, and it computes something else."""
    from etdev.program.sidecar import records

    place = small / "build" / "mcu" / "small.object.json"
    before = place.read_bytes()
    (record,) = read_sidecar(place).delegates.values()
    weights = bytearray(record.graph)
    changed = _with_other_weights(weights)
    _edit_sidecar(small, lambda content: content.update(graph=records._packed(changed)))
    try:
        result = check(etdev.verify(small / "etdev.toml")["mcu"], "tosa")
    finally:
        place.write_bytes(before)
    assert result.status == "failed"
    assert any("differs from the quantized model in" in problem for problem in result.problems)
    assert any("Vela compiles the TOSA graph to other bytes" in problem for problem in result.problems)


def _with_other_weights(graph: bytearray) -> bytes:
    """Negate bytes in the middle, where the graph's constants are."""
    start = len(graph) // 2
    graph[start : start + 64] = bytes((256 - value) % 256 for value in graph[start : start + 64])
    return bytes(graph)


@pytest.mark.nightly
def test_a_wrong_graph_is_found_though_vela_compiled_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lowering that makes wrong weights: the file is what Vela makes from the graph, and still wrong."""
    from executorch.backends.arm.ethosu import backend

    compile_graph = backend.EthosUBackend._compile_tosa_flatbuffer

    def wrong(graph: bytes, spec: Any) -> Any:
        return compile_graph(_with_other_weights(bytearray(graph)), spec)

    monkeypatch.setattr(backend.EthosUBackend, "_compile_tosa_flatbuffer", staticmethod(wrong))
    target = etdev.build(write(tmp_path, "Autoencoder", "ethos-u55-128"), cache=False)["mcu"]
    answer = check(target, "tosa")
    assert target.status == "rejected"
    assert answer.status == "failed"
    assert not any("Vela compiles the TOSA graph to other bytes" in problem for problem in answer.problems)
    assert any("differs from the quantized model in" in problem for problem in answer.problems)


def test_without_the_object_program_the_check_says_so(small: Path) -> None:
    place = small / "build" / "mcu" / "small.object.json"
    kept = place.rename(place.with_suffix(".kept"))
    try:
        result = check(etdev.verify(small / "etdev.toml")["mcu"], "tosa")
    finally:
        kept.rename(place)
    assert result.status == "not run"
    assert "the object program of this file is not in the output folder" in result.summary


def test_without_the_reference_model_the_error_says_how_to_get_it(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verification quantizes the model again, and Arm's quantizer cannot be imported without the package."""
    monkeypatch.setenv("ETDEV_TOSA_TOOLS", str(tmp_path))
    with pytest.raises(MissingRequirementError, match="'tosa-tools' is neither installed nor in") as caught:
        etdev.verify(small / "etdev.toml")
    assert f'pip install --no-deps --target "{tmp_path}" tosa-tools==' in str(caught.value)


INI = """
[System_Config.Mine]
inherit=System_Config.Ethos_U55_High_End_Embedded
core_clock=500e6
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=1.0
Sram_burst_length=32
Sram_read_latency=32
Sram_write_latency=32
OffChipFlash_clock_scale=0.125
OffChipFlash_burst_length=128
OffChipFlash_read_latency=64
OffChipFlash_write_latency=64
[Memory_Mode.Mine]
const_mem_area=Axi1
arena_mem_area=Axi0
cache_mem_area=Axi0
arena_cache_size={size}
""".replace("inherit=System_Config.Ethos_U55_High_End_Embedded\n", "")


POOL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3, padding=1)
            self.pool = nn.AvgPool2d((25, 1), stride=(5, 1))

        def forward(self, x):
            return torch.topk(self.pool(self.conv(x).relu()), 2).values

    def samples():
        generator = torch.Generator().manual_seed(0)
        return [(torch.randn(1, 8, 50, 8, generator=generator),) for _ in range(2)]
"""
POOL_CONFIG = """
    version = 1
    model.entry = "model:Net"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [1, 8, 50, 8] }]
    [quantize.int8]
    scheme = "arm-ethos-u"
    target = "ethos-u55-128"
    calibration = "model:samples"
    [targets.mcu]
    quantize = "int8"
    partitioners = [{ backend = "ethos-u", options = { target = "ethos-u55-128" } }]
"""


def test_ops_that_the_processor_lacks_have_a_reason(tmp_path: Path) -> None:
    result = etdev.build(write_project(tmp_path, POOL_CONFIG, model=POOL), verify=False)
    found = {item.op: item for item in result["mcu"].methods[0].undelegated}
    pool = found["aten.avg_pool2d.default"]
    assert (pool.module, pool.source) == ("pool", "model.py:11")
    (reason,) = pool.reasons
    assert reason.startswith("ethos-u: ")
    assert "stride" in reason
    (reason,) = found["aten.topk.default"].reasons
    assert reason.startswith("ethos-u: ")


@pytest.mark.slow
def test_a_config_file_is_an_input_of_the_build(tmp_path: Path) -> None:
    """Its path may have spaces; it is not in the program; a change of the file builds the target again."""
    folder = tmp_path / "a b"
    options = ', config = "my vela.ini", system_config = "Mine", memory_mode = "Mine"'
    config = write(folder, "Autoencoder", "ethos-u55-128", options=options)
    (folder / "my vela.ini").write_text(INI.format(size=65536))
    first = etdev.build(config)["mcu"]
    assert check(first, "tosa").status == "passed"
    assert "my vela.ini" in (folder / "etdev.lock").read_text()
    (folder / "my vela.ini").write_text(INI.format(size=131072))
    second = etdev.build(config)["mcu"]
    assert "lower" in second.seconds
    flags = [spec.value for spec in read(folder / second.artifact).execution_plan[0].delegates[0].compile_specs]
    assert not any(str(tmp_path).encode() in bytes(flag) for flag in flags)


def test_files_and_names_are_checked_before_the_model_is_loaded(tmp_path: Path) -> None:
    options = ', config = "none.ini"'
    with pytest.raises(ConfigError, match=r"there is no file .*none\.ini"):
        etdev.build(write(tmp_path / "one", "Autoencoder", "ethos-u55-128", options=options))
    folder = tmp_path / "two"
    config = write(folder, "Autoencoder", "ethos-u55-128", options=', config = "my.ini", memory_mode = "Mina"')
    (folder / "my.ini").write_text(INI.format(size=65536))
    with pytest.raises(ConfigError, match=r"has no section \[Memory_Mode\.Mina\]"):
        etdev.build(config)


@pytest.mark.nightly
def test_vela_refuses_a_flag(tmp_path: Path) -> None:
    config = write(tmp_path, "Autoencoder", "ethos-u55-128", options=', extra_flags = ["--optimise=Fast"]')
    with pytest.raises(LowerError, match="Vela cannot compile a delegate: KeyError: 'Fast'"):
        etdev.build(config)


@pytest.mark.nightly
def test_too_much_scratch_memory_fails_the_budget(tmp_path: Path) -> None:
    target = build(tmp_path, "Autoencoder", "ethos-u55-128", "budget.scratch = 16")
    answer = check(target, "budget")
    assert (target.status, answer.status, answer.gate) == ("gate failed", "failed", True)
    assert "more than budget.scratch (16); delegate 0 of 'forward'" in answer.problems[0]
