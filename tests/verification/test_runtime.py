"""Check *runtime*, and the gates on its figures: real programs in the stock runtime against eager PyTorch."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etdev.config.models import Constants
from etdev.errors import LoadError, VerifyError
from etdev.pipeline.api import open_project
from etdev.pipeline.results.result import outcome
from support.verification import Prepared, prepare


def test_a_float_program_computes_what_eager_pytorch_computes(linear: Prepared) -> None:
    """E2: the figures are those of the config's own samples."""
    check = linear.judge()["runtime"]

    assert check.status == "passed"
    assert check.summary.startswith("3 samples, max abs error ")
    assert "weak" not in check.summary
    (output,) = check.outputs
    assert (output.method, output.output, output.dtype) == ("forward", 0, "float32")
    assert 0 <= output.max_abs_error <= 1e-5 < output.allowed
    assert output.float_snr_db is None


def test_a_program_with_results_in_half_precision_may_round_as_much(tmp_path: Path) -> None:
    """ExecuTorch's kernel of ``var`` rounds in another place than eager PyTorch."""
    config = """
        version = 1
        [model]
        entry = "model:Mixed"
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = [4, 50] }]
        [targets.cpu]
    """
    model = """
        from torch import nn
        class Mixed(nn.Module):
            def forward(self, x):
                return x.bfloat16().var(-1, unbiased=False).float()
    """
    check = prepare(tmp_path, "cpu", config, model=model).judge()["runtime"]

    assert check.status == "passed"
    (output,) = check.outputs
    assert output.dtype == "float32"
    assert 0.002 < output.max_abs_error < output.allowed


@pytest.mark.integration
def test_a_quantized_program_is_compared_with_both_models(quantized: Prepared) -> None:
    check = quantized.judge()["runtime"]

    assert check.status == "passed"
    assert "against the quantized model" in check.summary
    (output,) = check.outputs
    assert output.float_snr_db is not None
    assert 15 < output.float_snr_db < 50  # int8


def test_a_quantized_program_that_is_not_what_was_quantized_is_broken(quantized: Prepared) -> None:
    reference = replace(quantized.candidate.reference, eager={"forward": lambda x: x * 0 + 1})
    check = quantized.judge(reference=reference)["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert "against the quantized model before lowering, " in check.summary


@pytest.mark.nightly
def test_without_samples_the_inputs_are_random_and_the_result_is_called_weak(tmp_path: Path) -> None:
    config = """
        version = 1
        [model]
        entry = "model:Both"
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = ["n", 3] }]
        dims.n = { min = 2, max = 4 }
        [methods.look_up]
        inputs = [{ name = "index", dtype = "int64", shape = [2] }]
        samples = "data:indices"
        [targets.cpu]
    """
    model = """
        import torch
        from torch import nn
        class Both(nn.Module):
            def forward(self, x):
                return x.exp()
            def look_up(self, index):
                return torch.arange(5)[index], index.shape[0]
    """
    data = """
        import torch
        def indices():
            return [[torch.tensor([1, 4])]]
    """
    check = prepare(tmp_path, "cpu", config, model=model, data=data).judge()["runtime"]

    assert check.status == "passed"
    assert check.summary.startswith("4 samples")
    assert check.summary.endswith("weak: random inputs for forward")
    assert [(output.method, output.dtype) for output in check.outputs] == [
        ("forward", "float32"),
        ("look_up", "int64"),
        ("look_up", "int"),
    ]


STATE = """
    version = 1
    [model]
    entry = "model:Counter"
    [constants]
    steps = 3
    scale = 0.5
    label = "counter"
    on = true
    stops = [7, 9]
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [2] }]
    samples = "data:samples"
    [methods.peek]
    inputs = [{ name = "x", dtype = "float32", shape = [2] }]
    [targets.cpu]
    verify.accuracy = { fn = "data:metric", min = 1 }
"""

COUNTER = """
    import torch
    from torch import nn

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            x.mul_(2)
            return x + self.count

        def peek(self, x):
            return x + x
"""

COUNTING = """
    import torch

    def samples():
        return [(torch.ones(2),)] * 3

    def metric(run):
        counted = [run(torch.zeros(2)) for _ in range(3)]
        assert [len(outputs) for outputs in counted] == [1, 1, 1], counted
        (peeked,) = run.method("peek")(torch.ones(2))
        assert peeked.tolist() == [2, 2]
        assert [tuple(one) for one in zip(*[outputs[0].tolist() for outputs in counted])] == [(1, 2, 3)] * 2, counted
        return 1
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("counter"), "cpu", STATE, model=COUNTER, data=COUNTING)


def test_state_inputs_that_change_methods_and_constants(counter: Prepared) -> None:
    """Each sample runs on fresh state; the metric's calls share theirs, and get outputs without the changed inputs.

    A program that changed an input was rejected: it answers the input too, which eager PyTorch does not return.
    """
    checks = counter.judge()

    assert checks["runtime"].status == "passed", checks["runtime"].problems
    assert checks["accuracy"].status == "passed"
    assert [output.method for output in checks["runtime"].outputs] == ["forward", "forward", "peek"]


def test_eager_state_is_left_as_it_was(counter: Prepared) -> None:
    module = counter.candidate.float_model.eager["forward"]
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}  # type: ignore[attr-defined]
    counter.judge()

    for name, buffer in module.named_buffers():  # type: ignore[attr-defined]
        assert buffer.equal(before[name])


@pytest.mark.parametrize(
    ("constant", "answer"),
    [
        ({"steps": 4}, "constant method 'steps' returns [3] instead of [4]"),
        ({"label": "x"}, "returns ['counter'] instead of ['x']"),
        ({"stops": (7, 1)}, "returns [7, 9] instead of [7, 1]"),
    ],
)
def test_a_constant_that_answers_otherwise(counter: Prepared, constant: Constants, answer: str) -> None:
    reference = counter.candidate.reference
    check = counter.judge(reference=replace(reference, constants=reference.constants | constant))["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert answer in check.summary


def test_more_methods_than_the_config_declares(counter: Prepared) -> None:
    """They would never be run, and the file would still count as verified."""
    reference = counter.candidate.reference
    fewer = replace(reference, signatures={"forward": reference.signatures["forward"]})
    checks = counter.judge(reference=fewer)

    assert (checks["runtime"].status, checks["runtime"].gate) == ("failed", False)
    assert checks["runtime"].summary == (
        "the file has the methods forward, label, on, peek, scale, steps, stops, but the config declares "
        "forward, label, on, scale, steps, stops"
    )
    assert checks["accuracy"].summary == "the check `runtime` failed"


def test_fewer_methods_than_the_config_declares(counter: Prepared) -> None:
    reference = counter.candidate.reference
    check = counter.judge(reference=replace(reference, constants=reference.constants | {"more": 1}))["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.summary.endswith("the config declares forward, label, more, on, peek, scale, steps, stops")


def test_the_program_of_another_model_is_broken(linear: Prepared, other: Prepared) -> None:
    checks = linear.judge('targets.cpu.verify.accuracy={fn="data:right", min=0}', path=other.candidate.path)

    assert (checks["runtime"].status, checks["runtime"].gate) == ("failed", False)
    assert "allows at most" in checks["runtime"].summary
    assert (checks["accuracy"].status, checks["accuracy"].summary) == ("not run", "the check `runtime` failed")
    assert outcome(tuple(checks.values())) == "rejected"


@pytest.mark.parametrize("content", [b"no program at all", None], ids=["garbage", "truncated"])
def test_of_a_file_that_cannot_be_read_nothing_is_run(linear: Prepared, tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "broken.pte"
    good = linear.candidate.path.read_bytes()
    file.write_bytes(content if content is not None else good[: len(good) // 2])
    checks = linear.judge(path=file)

    assert (checks["bytes"].status, checks["bytes"].gate) == ("failed", False)
    for check in ("plan", "placement", "kernels", "runtime", "replay", "device", "accuracy"):
        assert (checks[check].status, checks[check].summary) == ("not run", "the check `bytes` failed")


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (
            "wrong_shape",
            "sample 1: input 'x' has the shape [2, 31], but is declared as [2, 32]: axis 1 is 31 instead of 32",
        ),
        ("nothing", "returned no samples"),
        ("raising", "failed: OSError: the data set is gone (data.py:"),
    ],
)
def test_bad_samples_are_an_error_at_their_key(linear: Prepared, samples: str, said: str) -> None:
    with pytest.raises(LoadError) as caught:
        linear.judge(f'methods.forward.samples="data:{samples}"')
    assert said in str(caught.value)
    assert caught.value.where == f'--set methods.forward.samples="data:{samples}" (methods.forward.samples)'


def test_an_error_of_xnnpack_has_its_own_remedy(linear: Prepared) -> None:
    override = 'targets.cpu.partitioners=[{backend="xnnpack"}]'
    built = replace(linear.candidate, project=open_project(linear.config, overrides=[override], environ={}))
    assert "per_op_mode" in built.broken("Attempted to resize a static tensor. Expected (1,4,20,20)").hint
    assert "per_op_mode" not in built.broken("output 0 has an error of 3").hint
    assert "per_op_mode" not in linear.candidate.broken("Attempted to resize a static tensor").hint


def test_an_eager_model_that_fails_is_an_error(linear: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(VerifyError, match=r"'forward' failed in eager PyTorch.*told to") as caught:
        linear.judge()
    assert caught.value.where is not None
    assert caught.value.where.endswith("etdev.toml:9:11 (methods.forward.samples)")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("atol=0.0",), "output 0 of 'forward' exceeds the config's tolerance (atol 0, rtol 0) by "),
        (("atol=1e-12", "rtol=0.0"), "exceeds the config's tolerance (atol 1e-12, rtol 0) by "),
        (("min_snr_db=400",), "dB against the float model on the samples, but min_snr_db is 400 (worst: sample "),
    ],
)
def test_a_tolerance_of_the_config_is_a_gate(linear: Prepared, settings: tuple[str, ...], said: str) -> None:
    check = linear.judge(*(f"targets.cpu.verify.{text}" for text in settings))["runtime"]

    assert (check.status, check.gate) == ("failed", True)
    assert said in check.summary
    assert check.where is not None
    assert check.where.endswith(f"(targets.cpu.verify.{settings[0].partition('=')[0]})")
    assert check.hint
    assert outcome((check,)) == "gate failed"


@pytest.mark.parametrize("settings", [("atol=1e-3",), ("rtol=1e-2", "atol=1e-6"), ("min_snr_db=60",)])
def test_a_tolerance_that_holds(linear: Prepared, settings: tuple[str, ...]) -> None:
    assert linear.judge(*(f"targets.cpu.verify.{text}" for text in settings))["runtime"].status == "passed"


@pytest.mark.parametrize(("minimum", "status"), [(10, "passed"), (60, "failed")])
def test_the_ratio_of_a_quantized_program_is_against_the_float_model(
    quantized: Prepared, minimum: int, status: str
) -> None:
    check = quantized.judge(f"targets.int8.verify.min_snr_db={minimum}")["runtime"]

    assert check.status == status
    assert check.gate == (status == "failed")
    if status == "failed":
        said, _, modules = check.summary.partition("; with exact inputs, these modules have the largest errors: ")
        assert said.endswith("; it equals the quantized model, so quantization is the cause")
        assert re.fullmatch(r"'\w+' \(\d+\.\d dB\)(, '\w+' \(\d+\.\d dB\)){0,2}", modules), modules
        assert check.hint is not None
        assert check.hint.startswith("calibrate on more or other data")


def test_modules_that_are_not_known_can_be_had(quantized: Prepared) -> None:
    """With a reused object program, the model is not quantized again, and nothing said why no module was named."""
    known = replace(quantized.candidate.reference, local_errors={})
    check = quantized.judge("targets.int8.verify.min_snr_db=60", reference=known)["runtime"]
    assert check.summary.endswith(
        "so quantization is the cause; a build with `--no-cache` also names the modules with the largest errors"
    )


def test_a_ratio_that_lowering_spoils_names_it(quantized: Prepared) -> None:
    """The quantized model equals the float model here, so the difference is the program's own."""
    forward = quantized.candidate.reference.eager["forward"]
    model = replace(quantized.candidate.reference, eager={"forward": lambda x: forward(x) * 1.02})
    settings = "targets.int8.verify.min_snr_db=50"
    check = quantized.judge(settings, float_model=model, reference=replace(model))["runtime"]

    assert (check.status, check.gate) == ("failed", True)
    said = "; it has 34.2 dB against the quantized model, which itself equals the float model, so lowering is the cause"
    assert check.summary.endswith(said)
    assert check.hint == (
        "build a target without this partitioner to see if the backend is the cause, or lower min_snr_db"
    )


DYNAMIC = """
    version = 1
    [model]
    entry = "model:Dynamic"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = ["n", 8] }]
    dims.n = { max = 16 }
    samples = "data:samples"
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = "data:samples"
    [targets.cpu]
    verify.atol = 0.9
    [targets.int8]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
"""


def dynamic(folder: Path, forward: str, *sizes: int, target: str = "cpu", config: str = DYNAMIC) -> Prepared:
    model = f"""
        import torch
        from torch import nn
        class Dynamic(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(1)
                self.layer = nn.Linear(8, 8)
            def forward(self, x):
                {forward}
    """
    data = f"""
        import torch
        def samples():
            return [(torch.ones(n, 8),) for n in {sizes}]
    """
    return prepare(folder, target, config, model=model, data=data)


@pytest.mark.nightly
def test_a_size_that_no_sample_has_is_run_too(tmp_path: Path) -> None:
    """It passed with samples of 8 rows; with one row the stock runtime ends with error 0x12."""
    check = dynamic(tmp_path, "return (x + 1).squeeze(0)", 8).judge()["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.summary.startswith("method 'forward' at the smallest sizes (inputs [1, 8]): ")
    assert check.where is not None
    assert check.where.endswith("(methods.forward.dims)")


@pytest.mark.parametrize(
    ("sizes", "ran"),
    [
        ((8,), "1 sample and the smallest and largest sizes, "),
        ((1, 3), "2 samples and the largest sizes, "),
        ((16, 1), "2 samples, "),
    ],
)
@pytest.mark.sampled(1)
def test_only_the_sizes_that_the_samples_leave_out(tmp_path: Path, sizes: tuple[int, ...], ran: str) -> None:
    check = dynamic(tmp_path, "return x + 1", *sizes).judge()["runtime"]

    assert check.status == "passed"
    assert check.summary == f"{ran}max abs error 0; equal"


@pytest.mark.parametrize("target", ["cpu", "int8"])
@pytest.mark.sampled(1)
def test_a_range_of_multiples(tmp_path: Path, target: str) -> None:
    """The program computes the halves of an even number of rows. The smallest number is two."""
    config = DYNAMIC.replace("max = 16", "max = 16, multiple_of = 2")
    check = dynamic(tmp_path, "return self.layer(x[::2] + x[1::2])", 6, target=target, config=config).judge()["runtime"]
    assert check.status == "passed", check.problems
    assert check.summary.startswith("1 sample and the smallest and largest sizes, ")


def test_made_inputs_that_the_model_refuses_are_left_out(tmp_path: Path) -> None:
    prepared = dynamic(tmp_path, "return x + 1", 8)

    def positive(x: torch.Tensor) -> torch.Tensor:
        if x.min() < 0 and x.shape[0] == 1:
            raise ValueError("only positive numbers")
        return x + 1

    model = replace(prepared.candidate.float_model, eager={"forward": positive})
    check = prepared.judge(float_model=model, reference=model)["runtime"]

    assert check.status == "passed"
    assert check.summary == "1 sample and the largest sizes, max abs error 0; equal"
    (warning,) = check.warnings
    assert warning.message == (
        "the smallest sizes of method 'forward' (inputs [1, 8]) were not tried: the model itself fails there, "
        "on random inputs: ValueError: only positive numbers"
    )
    assert warning.where.endswith("(methods.forward.dims)")
    assert "narrow the range" in warning.hint


@pytest.mark.nightly
def test_a_quantized_program_is_not_held_to_values_on_made_inputs(tmp_path: Path) -> None:
    prepared = dynamic(tmp_path, "return self.layer(x)", 8, target="int8")
    right = prepared.candidate.reference.eager["forward"]

    def off(x: torch.Tensor) -> torch.Tensor:
        return right(x) if x.shape[0] == 8 else right(x) + 100

    reference = replace(prepared.candidate.reference, eager={"forward": off})
    check = prepared.judge(reference=reference)["runtime"]

    assert check.status == "passed", check.problems
    assert check.summary.startswith("1 sample and the smallest and largest sizes, max abs error ")
    assert check.summary.endswith("at the smallest and largest sizes, only shapes and dtypes are compared")


def test_a_float_program_is_held_to_the_default_on_made_inputs(tmp_path: Path) -> None:
    """And to nothing else: the config's ``atol`` is for its own samples."""
    prepared = dynamic(tmp_path, "return x + 1", 8)

    def off(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] == 8 else x + 1.5

    model = replace(prepared.candidate.float_model, eager={"forward": off})
    check = prepared.judge(float_model=model, reference=model)["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert (
        "at the smallest sizes (inputs [1, 8]): output 0 has an error of 0.5, but float32 allows at most "
    ) in check.summary
    assert check.outputs[0].max_abs_error == 0
