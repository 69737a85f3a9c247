"""Outputs of integers and truth values: the share of elements that must equal the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from etdev.errors import ConfigError
from etdev.execution.float_ends import FloatEnds
from etdev.pipeline.results.result import CheckResult
from etdev.program import model as m
from etdev.program.analysis.quantized_ends import QuantizedEnd
from etdev.verification.agreement import Agreement, allowed_elements
from etdev.verification.compare import Difference
from support.verification import Prepared, prepare

CONFIG = """
    version = 1
    [model]
    entry = "model:Decoder"
    [methods.decode]
    inputs = [{ name = "x", dtype = "float32", shape = [4, 16] }]
    samples = "data:samples"
    [targets.cpu]
    verify.sessions = "data:sessions"
"""

MODEL = """
    import torch
    from torch import nn

    class Decoder(nn.Module):
        def decode(self, x):
            return x.argmax(-1), x * 2
"""

DATA = """
    import torch

    def samples():
        generator = torch.Generator().manual_seed(0)
        return [(torch.rand(4, 16, generator=generator),) for _ in range(8)]

    def sessions():
        yield [("decode", inputs) for inputs in samples()]
"""


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A method that returns an index, called on 8 samples and in one session: 64 elements."""
    return prepare(tmp_path_factory.mktemp("decoder"), "cpu", CONFIG, model=MODEL, data=DATA)


def judge(decoder: Prepared, *settings: str, wrong: int = 1, method: Any = None) -> dict[str, CheckResult]:
    """All answers if the model picks another index in the first ``wrong`` elements of the first sample."""
    first = torch.rand(4, 16, generator=torch.Generator().manual_seed(0))  # As in DATA.

    def pick(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        index = x.argmax(-1)
        if torch.equal(x, first):
            index[:wrong] = (index[:wrong] + 9) % 16
        return index, x * 2

    model = replace(decoder.candidate.reference, eager={"decode": method or pick})
    overrides = [f"targets.cpu.verify.{text}" for text in settings]
    return decoder.judge(*overrides, float_model=model, reference=model)


def test_equal_elements_are_counted(decoder: Prepared) -> None:
    check = judge(decoder, wrong=0)["runtime"]

    assert check.status == "passed"
    assert "elements" not in check.summary
    assert [(item.dtype, item.elements, item.differing) for item in check.outputs] == [
        ("int64", 64, 0),
        ("float32", None, None),
    ]


def test_another_index_is_counted_over_samples_and_sessions(decoder: Prepared) -> None:
    """The distance between two token ids is not an error."""
    check = judge(decoder)["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.problems == (
        "output 0 of 'decode': 2 of 64 elements differ (96.8% agree; int64 allows none by default; first in sample 0)",
    )
    assert check.hint == (
        "the method computes an index (argmax), and a tie or rounding may pick another one: "
        "set `verify.min_agreement` to the share of elements that must agree"
    )
    (found, _) = check.outputs
    assert (found.elements, found.differing, found.max_abs_error, found.snr_db) == (64, 2, 0, None)


@pytest.mark.parametrize(
    ("limit", "wrong", "status"),
    [("0.96", 1, "passed"), ("0.97", 1, "failed"), ("1", 1, "failed"), ("1.0", 0, "passed"), ("0.96", 2, "failed")],
)
def test_the_share_of_equal_elements_has_a_limit(decoder: Prepared, limit: str, wrong: int, status: str) -> None:
    check = judge(decoder, f"min_agreement={limit}", "min_snr_db=60", "atol=0.001", wrong=wrong)["runtime"]

    assert (check.status, check.gate) == (status, False)
    if wrong:
        assert f"output 0 of 'decode': {2 * wrong} of 64 elements differ" in check.summary
    if status == "failed":
        assert f"but min_agreement is {float(limit):g}; first in sample 0)" in check.summary
        assert check.hint is not None
        assert check.hint.endswith("lower `min_agreement` to the share of elements that must agree")


def test_a_check_of_a_few_calls_may_have_the_difference_of_all(decoder: Prepared) -> None:
    """The replay runs few session calls. A difference that is 3% of all elements may be more of these."""
    checks = judge(decoder, "min_agreement=0.99", wrong=0)
    few = checks["replay"].outputs[0].elements
    assert few is not None
    assert 0 < few < 64

    checks = judge(decoder, "min_agreement=0.96")
    assert {checks[name].status for name in ("runtime", "replay")} == {"passed"}
    assert "agree)" in checks["replay"].summary


def test_floats_next_to_an_index_keep_their_limits(decoder: Prepared) -> None:
    check = judge(decoder, "min_agreement=0.5", method=lambda x: (x.argmax(-1), x * 3))["runtime"]

    assert check.status == "failed"
    assert "output 1 of 'decode' has an error of" in check.summary


@pytest.mark.parametrize(("limit", "status"), [(None, "failed"), ("0.9", "passed"), ("0.999", "failed")])
def test_rows_that_swap_places_have_a_limit(decoder: Prepared, limit: str | None, status: str) -> None:
    """A tie in a `topk` swaps two rows. With 2 times 32 of 1,024 elements, 93.7% are within the tolerance."""
    first = torch.rand(4, 16, generator=torch.Generator().manual_seed(0))  # As in DATA.

    def swap(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = x[[1, 0, 2, 3]] if torch.equal(x, first) else x
        return x.argmax(-1), rows * 2

    settings = [] if limit is None else [f"min_close={limit}"]
    check = judge(decoder, *settings, method=swap)["runtime"]

    assert (check.status, check.gate) == (status, False)
    if limit is None:
        assert "output 1 of 'decode' has an error of" in check.summary
        assert check.summary.endswith("32 of 512 elements differ by more")
        said = "set `verify.min_close` to the share of elements that must agree"
    else:
        assert "output 1 of 'decode': 64 of 1,024 elements differ (93.7% agree" in check.summary
        said = "lower `min_close` to the share of elements that must agree"
    if status == "failed":
        assert check.hint is not None
        assert check.hint.startswith("the method computes an index (argmax), and a tie or rounding may pick another")
        assert check.hint.endswith(said)


def test_without_an_op_that_picks_an_index_the_backend_may_be_the_cause(tmp_path: Path) -> None:
    model = MODEL.replace("x.argmax(-1)", "x > 0.5")
    program = prepare(tmp_path, "cpu", CONFIG, model=model, data=DATA)
    check = judge(program, method=lambda x: (x > 0.6, x * 2))["runtime"]

    assert "bool allows none by default" in check.summary
    assert check.hint is not None
    assert "computes an index" not in check.hint
    assert check.hint.endswith("set `verify.min_agreement` to the share of elements that must agree")


def test_rounding_is_no_reason_for_most_elements_to_differ(decoder: Prepared) -> None:
    """ExecuTorch's kernel was wrong in 98% of the elements, and a lower `min_agreement` was the advice."""
    check = judge(decoder, method=lambda x: ((x.argmax(-1) + 9) % 16, x * 2))["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert check.hint is not None
    assert "min_agreement" not in check.hint


@pytest.mark.parametrize(("settings", "status"), [((), "passed"), (("min_agreement=1",), "failed")])
def test_a_quantized_program_may_differ_as_much_as_quantization_did(
    decoder: Prepared, settings: tuple[str, ...], status: str
) -> None:
    """Here the quantized model differs from the float model in the first sample, as the program does from it."""
    first = torch.rand(4, 16, generator=torch.Generator().manual_seed(0))  # As in DATA.

    def pick(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        index = x.argmax(-1)
        index[0] = (index[0] + torch.equal(x, first)) % 16
        return index, x * 2

    quantized = replace(decoder.candidate.reference, eager={"decode": pick}, scheme="pt2e-xnnpack")
    check = decoder.judge(*(f"targets.cpu.verify.{text}" for text in settings), reference=quantized)["runtime"]

    assert check.status == status
    assert "output 0 of 'decode': 2 of 64 elements differ (96.8% agree" in check.summary


def test_a_quantized_program_that_differs_more_is_broken(decoder: Prepared) -> None:
    quantized = replace(decoder.candidate.reference, eager={"decode": lambda x: (x.argmin(-1), x * 2)}, scheme="8da4w")
    check = decoder.judge(float_model=quantized, reference=replace(quantized))["runtime"]

    assert (check.status, check.gate) == ("failed", False)
    assert "0.0% agree; quantization changed 0, and no more are allowed by default" in check.summary


@pytest.mark.parametrize("limit", ["0", "-0.5", "1.01", "nan"])
def test_a_share_that_is_none(decoder: Prepared, limit: str) -> None:
    with pytest.raises(ConfigError, match="min_agreement"):
        judge(decoder, f"min_agreement={limit}")


@pytest.mark.parametrize(
    ("limit", "elements", "few", "allowed"),
    [
        (None, 64, False, 0),
        (None, 64, True, 0),
        (1.0, 64, True, 0),
        (0.98, 100, False, 2),
        (0.98, 64, False, 1),
        (0.98, 64, True, 2),
        (0.98, 8, False, 0),
        (0.98, 8, True, 1),
        (0.5, 0, True, 0),
    ],
)
def test_elements_that_may_differ(limit: float | None, elements: int, few: bool, allowed: int) -> None:
    assert allowed_elements(limit, elements, few=few) == allowed


def test_the_share_is_never_rounded_up_to_all() -> None:
    found = Agreement(1_000_000, 1, "sample 3")
    assert (str(found), found.share) == ("1 of 1,000,000 elements differs", "99.9%")


def test_quantized_outputs_are_numbers_and_keep_their_ratio() -> None:
    """They are compared as floats, so an error of one step has a size and an SNR."""

    class Fixed:
        def call(self, *_: Any, **__: Any) -> tuple[torch.Tensor, ...]:
            return (torch.tensor([5, -4], dtype=torch.int8),)

    end = QuantizedEnd("output", 0, 0.5, 0, -128, 127, m.ScalarType.CHAR)
    (found,) = FloatEnds(Fixed(), {"forward": (end,)}).call("forward", ())  # type: ignore[arg-type]
    difference = Difference("float32")
    difference.add(found, torch.tensor([2.0, -2.0]), "sample 0")
    assert (difference.whole, difference.max_abs_error) == (False, 0.5)
    assert difference.snr_db is not None
