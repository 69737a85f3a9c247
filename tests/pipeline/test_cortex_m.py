"""Int8 models on the kernels for Cortex-M: lowered, replayed with ExecuTorch's Python functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
import torch

import etdev
from etdev import backends, compat
from etdev.errors import CapacityError
from etdev.pipeline.results.result import CheckResult, TargetResult
from etdev.program import model as m
from etdev.program import read
from etdev.program.analysis.effects import SCRATCH, operator_name
from etdev.runtime.interpreter.schemas import Kernel
from etdev.validator.semantics.operators import OVERWRITTEN
from etdev.verification.checks.plan import check_alone
from support.projects import write_project
from support.small_models import MODELS, config_of

STATE = backends.get("cortex-m").availability()


def needs_packages(test: Callable[..., None]) -> Callable[..., None]:
    reason = f"cortex-m: {STATE.reason}; {STATE.remedy}"
    return pytest.mark.integration(pytest.mark.skipif(not STATE.available, reason=reason)(test))


def write(folder: Path, model: str, more: str = "", cpu: str = "M55") -> Path:
    target = f'partitioners = [{{ backend = "cortex-m", options = {{ cpu = "{cpu}" }} }}]\n{more}'
    return write_project(folder, config_of(model, 'scheme = "cortex-m"', target), models=MODELS)


def _output_step(path: Path) -> float:
    """The scale of the last conversion to float."""
    (plan,) = read(path).execution_plan
    (scale,) = [
        plan.values[call.args[1]]
        for call in plan.instructions
        if isinstance(call, m.KernelCall) and plan.operators[call.op_index].name == "cortex_m::dequantize_per_tensor"
    ]
    assert isinstance(scale, m.Double)
    return scale.double_val


def check(target: TargetResult, name: str) -> CheckResult:
    return next(item for item in target.checks if item.name == name)


@needs_packages
@pytest.mark.parametrize("more", ["", 'runtime.kernels = ["portable", "quantized", "cortex-m"]'])
def test_tiling_is_not_advised_for_kernels_that_compute_whole_tensors(tmp_path: Path, more: str) -> None:
    banks = 'memory.banks = [{ name = "dtcm", id = 1, size = 256 }, { name = "sram", id = 2, size = 256 }]'
    with pytest.raises(CapacityError) as caught:
        etdev.build(write(tmp_path, "CnnLast", f"{banks}\n{more}"))
    assert re.match(r"enlarge bank 'dtcm' to [\d,]+ bytes, or enlarge bank 'sram' to ", str(caught.value.hint))
    assert "tiling" not in str(caught.value.hint)


@needs_packages
@pytest.mark.parametrize("model", ["Cnn", "CnnLast", "Pooled", "Keywords", "Mobile", "Autoencoder"])
@pytest.mark.sampled(1)
def test_a_model(tmp_path: Path, model: str) -> None:
    """It runs on the library's kernels, at most one step from the quantized model. Two builds have the same bytes."""
    first, second = (etdev.build(write(tmp_path / name, model))["mcu"] for name in ("one", "another"))
    assert first.sha256 == second.sha256
    (method,) = first.methods
    assert "cortex-m" in method.libraries
    assert not any("convolution" in item.op or "linear" in item.op[:12] for item in method.undelegated)
    assert not any("stay in float" in note for note in first.notes)
    answer = check(first, "replay")
    assert answer.status == "passed"
    assert answer.summary.startswith("3 samples, ")
    (output,) = answer.outputs
    assert output.step == _output_step(tmp_path / "one" / first.artifact)
    assert (output.steps, output.max_abs_error) in ((0, 0), (1, pytest.approx(output.step, rel=1e-4)))
    assert f"of {output.step:.3g} ({output.allowed_steps} allowed" in answer.summary
    kernels = check(first, "kernels")
    assert kernels.status == "not run"
    assert "the wheel's runtime lacks ExecuTorch's library cortex-m" in kernels.summary


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> TargetResult:
    folder = tmp_path_factory.mktemp("small")
    more = 'runtime.kernels = ["portable", "cortex-m"]'
    result = etdev.build(write(folder, "CnnLast", more))["mcu"]
    return result.model_copy(update={"artifact": str(folder / result.artifact)})


@needs_packages
def test_ops_that_stay_in_float_are_named(tmp_path: Path) -> None:
    """The kernels take no convolution over one dimension."""
    model = """
        from torch import nn

        class Wave(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Conv1d(2, 4, 3), nn.Linear(6, 3)

            def forward(self, x):
                return self.last(self.first(x))
    """
    config = """
        version = 1
        [model]
        entry = "models:Wave"
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = [1, 2, 8] }]
        samples = "models:samples"
        [quantize.int8]
        scheme = "cortex-m"
        calibration = "models:samples"
        [targets.mcu]
        quantize = "int8"
        partitioners = [{ backend = "cortex-m" }]
    """
    samples = """
        def samples():
            return [(torch.linspace(-1, 1, 16).reshape(1, 2, 8),)]
    """
    found = etdev.build(write_project(tmp_path, config, models=f"import torch\n{dedent(model)}{dedent(samples)}"))[
        "mcu"
    ]
    said = (
        "ops that stay in float on the portable kernels: aten.convolution x1; the backend 'cortex-m' did not take them"
    )
    assert said in found.notes


@needs_packages
def test_the_float_input_is_free_after_the_first_instruction(small: TargetResult) -> None:
    """At the peak are the input and its int8 values. No kernel of the library reads tensors that it is not given."""
    assert small.memory == {"cpu": 12_288 + 3_072}
    assert check(small, "kernels").status == "passed"


@needs_packages
@pytest.mark.nightly
def test_more_steps_than_quantization_explains_fail_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step more than allowed, in one value of one sample. Its SNR is still high enough."""
    from etdev.runtime.interpreter import machine

    config = write(tmp_path, "CnnLast")
    (output,) = check(etdev.build(config)["mcu"], "replay").outputs
    assert output.allowed_steps is not None
    resolve, more = machine.resolve, output.allowed_steps + 2

    def wrong(operator: m.Operator) -> Kernel | None:
        kernel = resolve(operator)
        if kernel is None or operator_name(operator) != "cortex_m::quantized_linear.out":
            return kernel

        def function(*arguments: object) -> torch.Tensor:
            result: torch.Tensor = kernel.function(*arguments)
            result[0, 0] += more
            return result

        return replace(kernel, function=function)

    monkeypatch.setattr(machine, "resolve", wrong)
    answer = check(etdev.verify(config)["mcu"], "replay")
    assert answer.status == "failed"
    assert "are allowed: 1 for rounding" in answer.problems[0]


@needs_packages
def test_scratch_memory_over_a_tensor_in_use_is_found(small: TargetResult) -> None:
    program = read(Path(small.artifact))
    assert check_alone(program).status == "passed"
    (plan,) = program.execution_plan
    call = next(
        item
        for item in plan.instructions
        if isinstance(item, m.KernelCall) and operator_name(plan.operators[item.op_index]) in SCRATCH
    )
    (position,) = SCRATCH[operator_name(plan.operators[call.op_index])]
    scratch, source = plan.values[call.args[position]], plan.values[call.args[0]]
    assert isinstance(scratch, m.Tensor)
    assert isinstance(source, m.Tensor)
    values = list(plan.values)
    values[call.args[position]] = replace(scratch, allocation_info=source.allocation_info)
    broken = replace(program, execution_plan=(replace(plan, values=tuple(values)),))
    assert check_alone(broken).status == "failed"


def test_linker_and_validator_know_the_same_scratch_memory() -> None:
    assert dict(SCRATCH) == OVERWRITTEN


@pytest.mark.skipif(compat.lacks_cortex_m() is not None, reason=f"cortex-m: {compat.lacks_cortex_m()}")
def test_the_positions_are_those_of_the_arguments_that_executorch_names_scratch() -> None:
    from etdev.backends import kernels

    kernels.listed_operators("cortex-m")  # Skips nothing: executorch is a requirement of these tests.
    spec = kernels.importlib.util.find_spec("executorch")
    assert spec is not None
    (folder,) = list(spec.submodule_search_locations or ())[:1]
    text = (Path(folder) / "backends" / "cortex_m" / "ops" / "operators.yaml").read_text()
    found = {}
    for name, given in re.findall(r"^- func: (\S+?)\((.*?), \*, Tensor\(a!\) out\)", text, re.MULTILINE):
        names = [item.rpartition(" ")[2] for item in given.split(", ")]
        scratch = tuple(position for position, item in enumerate(names) if "scratch" in item)
        if scratch:
            found[name] = scratch
    assert found == dict(SCRATCH)
