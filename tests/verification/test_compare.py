"""How far outputs are from a reference: equality, errors, NaNs, kinds, and the two ways of judging them."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etdev.verification.agreement import Agreement
from etdev.verification.compare import (
    QUANTIZED_MARGIN_DB,
    QUANTIZED_SNR_RANGE,
    RELATIVE_TOLERANCE,
    SMALLEST_PEAK,
    Difference,
    Sums,
    allowed_steps,
    required_snr_db,
    same_bits,
    steps_apart,
    tolerance,
    worst_excess,
)

FLOATS = tuple(RELATIVE_TOLERANCE)
WHOLE = ("int8", "uint8", "int16", "int32", "int64", "bool")
INF, NAN = math.inf, math.nan


def compare(*samples: tuple[Any, Any], compute_dtype: str = "float32") -> Difference:
    """The comparison of (found, expected) pairs."""
    dtype = str(getattr(samples[0][1], "dtype", type(samples[0][1]).__name__)).removeprefix("torch.")
    difference = Difference(dtype, compute_dtype)
    for index, (found, expected) in enumerate(samples):
        difference.add(found, expected, f"sample {index}")
    return difference


def tensor(*values: float, dtype: str = "float32") -> torch.Tensor:
    return torch.tensor(values, dtype=getattr(torch, dtype))


@pytest.mark.parametrize("dtype", FLOATS + WHOLE)
@pytest.mark.parametrize("values", [(), (0.0,), (1.0, 0.0, 1.0)])
def test_equal_outputs_have_no_error(dtype: str, values: tuple[float, ...]) -> None:
    found = compare((tensor(*values, dtype=dtype), tensor(*values, dtype=dtype)))

    assert found.problems == []
    assert (found.max_abs_error, found.snr_db) == (0.0, None)
    assert found.excess <= 0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("share", "within"), [(0.5, True), (2.0, False)])
def test_an_error_is_held_against_the_largest_value(dtype: str, share: float, within: bool) -> None:
    expected = tensor(8.0, 0.5, dtype="float64")
    error = share * RELATIVE_TOLERANCE[dtype] * 8
    found = expected + torch.tensor([0.0, error])
    difference = compare((found.to(getattr(torch, dtype)), expected.to(getattr(torch, dtype))))

    assert (difference.excess <= 0) == within
    assert difference.max_abs_error == pytest.approx(error, rel=0.3)
    assert difference.allowed == pytest.approx(8 * RELATIVE_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_are_exact(dtype: str) -> None:
    difference = compare((tensor(0, 1, dtype=dtype), tensor(1, 1, dtype=dtype)))

    assert (difference.whole, difference.agreement) == (True, Agreement(2, 1, "sample 0"))
    assert (difference.max_abs_error, difference.snr_db) == (0.0, None)


def test_large_whole_numbers_are_exact() -> None:
    """Their difference was lost in the conversion to float64."""
    difference = compare((torch.tensor([2**53 + 1]), torch.tensor([2**53])))

    assert difference.agreement.differing == 1


def test_small_outputs_are_compared_with_the_smallest_peak() -> None:
    assert tolerance("float32", "float32", 0.0) == SMALLEST_PEAK * RELATIVE_TOLERANCE["float32"]
    assert compare((tensor(1e-6), tensor(0.0))).excess <= 0
    assert compare((tensor(1e-4), tensor(0.0))).excess > 0


def test_a_backend_that_computes_in_bfloat16_is_held_to_bfloat16() -> None:
    assert tolerance("float32", "bfloat16", 1.0) == RELATIVE_TOLERANCE["bfloat16"]
    assert tolerance("bfloat16", "float32", 1.0) == RELATIVE_TOLERANCE["bfloat16"]
    assert tolerance("int32", "bfloat16", 1.0) == 0.0


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        pytest.param((NAN, 1.0), (NAN, 1.0), True, id="NaN at its place"),
        pytest.param((INF, -INF), (INF, -INF), True, id="infinities at their places"),
        pytest.param((NAN, INF), (NAN, INF), True, id="nothing finite"),
        pytest.param((1.0, 1.0), (NAN, 1.0), False, id="one instead of NaN"),
        pytest.param((0.0, 1.0), (NAN, 1.0), False, id="zero instead of NaN"),
        pytest.param((NAN, 1.0), (0.0, 1.0), False, id="NaN instead of a number"),
        pytest.param((INF, 1.0), (NAN, 1.0), False, id="infinity instead of NaN"),
        pytest.param((-INF, 1.0), (INF, 1.0), False, id="the other infinity"),
        pytest.param((3.4028234663852886e38, 1.0), (INF, 1.0), False, id="the largest number instead of infinity"),
        pytest.param((INF, 1.0), (3.4028234663852886e38, 1.0), False, id="overflow"),
    ],
)
def test_what_is_not_finite_must_be_where_the_reference_has_it(
    found: tuple[float, ...], expected: tuple[float, ...], same: bool
) -> None:
    """A 1.0 where the reference has a NaN passed as equal."""
    difference = compare((tensor(*found), tensor(*expected)))

    assert (difference.problems == []) == same
    if same:
        assert difference.snr_db is None
    else:
        assert difference.problems == [
            "sample 0: NaN or infinite values are not at the same positions as in the reference",
        ]


@pytest.mark.parametrize(
    ("found", "expected", "problem"),
    [
        pytest.param(tensor(1.0), tensor(1.0, 2.0), "has the shape [1] instead of [2]", id="shape"),
        pytest.param(torch.ones(()), torch.ones(1), "has the shape [] instead of [1]", id="rank"),
        pytest.param(tensor(1, dtype="int32"), tensor(1.0), "is torch.int32 instead of torch.float32", id="dtype"),
        pytest.param(3, tensor(3.0), "is int instead of Tensor", id="number instead of a tensor"),
        pytest.param(tensor(3.0), 3, "is Tensor instead of int", id="tensor instead of a number"),
        pytest.param(3, 4, "is 3 instead of 4", id="another number"),
        pytest.param("a", None, "is 'a' instead of None", id="text"),
    ],
)
def test_another_kind_of_output_is_a_problem(found: Any, expected: Any, problem: str) -> None:
    assert compare((expected, expected), (found, expected)).problems == [f"sample 1: {problem}"]


@pytest.mark.parametrize("value", [None, 3, 2.5, "text", True])
def test_plain_values_that_are_equal(value: Any) -> None:
    difference = compare((value, value))

    assert difference.problems == []
    assert difference.snr_db is None


def test_the_signal_to_noise_ratio_is_over_all_samples() -> None:
    difference = compare((tensor(3.0), tensor(3.0)), (tensor(4.1), tensor(4.0)))

    assert difference.snr_db == pytest.approx(10 * math.log10(25 / 0.01), abs=1e-3)


@given(
    varying=st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=2, max_size=5),
    noise=st.lists(st.lists(st.integers(-9, 9), min_size=3, max_size=3), min_size=5, max_size=5),
    constant=st.integers(-1000, 1000),
)
def test_a_part_that_is_the_same_in_all_calls_does_not_count(
    varying: list[list[int]], noise: list[list[int]], constant: int
) -> None:
    difference = Difference("float32", sums=Sums())
    wanted = torch.tensor(varying, dtype=torch.float64)
    error = torch.tensor(noise[: len(varying)], dtype=torch.float64)
    for index in range(len(varying)):
        difference.add(wanted[index] + constant + error[index], wanted[index] + constant, f"sample {index}")
    signal, loss = (float((item - item.mean(0)).square().sum()) for item in (wanted, error))
    if signal < 1e-6 or loss < 1e-6:
        assert difference.varying_snr_db is None
    else:
        assert difference.varying_snr_db == pytest.approx(10 * math.log10(signal / loss), abs=1e-3)


@pytest.mark.parametrize(
    "calls",
    [[tensor(1.0, 2.0)], [tensor(1.0, 2.0), tensor(1.0)], [tensor(1.0, NAN), tensor(2.0, NAN)]],
    ids=["one", "several shapes", "not finite"],
)
def test_the_part_is_not_known(calls: list[torch.Tensor]) -> None:
    difference = Difference("float32", sums=Sums())
    for index, wanted in enumerate(calls):
        difference.add(wanted + 0.25 * (1 + index), wanted, "")
    assert difference.varying_snr_db is None


def test_noise_on_a_reference_of_zeros_is_a_number() -> None:
    """It was minus infinity, which a report writes as "equal"."""
    assert compare((tensor(1.0), tensor(0.0))).snr_db == pytest.approx(-40)


number = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(number, max_size=6), st.lists(number, max_size=6), st.sampled_from(FLOATS))
def test_a_comparison_always_gives_numbers(found: list[float], expected: list[float], dtype: str) -> None:
    """Whatever the values, a report can be written and read: no NaN, no infinity, no exception."""
    expected = (expected + found)[: len(found)]
    difference = compare((tensor(*found, dtype=dtype), tensor(*expected, dtype=dtype)))

    assert math.isfinite(difference.max_abs_error)
    assert difference.snr_db is None or math.isfinite(difference.snr_db)
    if difference.excess > 0:
        assert difference.snr_db is not None


@given(st.lists(number, max_size=6), st.sampled_from(FLOATS))
def test_an_output_equals_itself(values: list[float], dtype: str) -> None:
    difference = compare((tensor(*values, dtype=dtype), tensor(*values, dtype=dtype)))

    assert (difference.problems, difference.snr_db, difference.max_abs_error) == ([], None, 0.0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4), st.integers(0, 3), st.integers(1, 2**20))
def test_any_change_of_a_whole_number_shows(values: list[int], place: int, change: int) -> None:
    expected = torch.tensor(values)
    found = expected.clone()
    found[place % len(values)] ^= change

    assert compare((found, expected)).agreement.differing == 1


finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1, max_size=6), finite, st.floats(0, 10), st.floats(0, 1))
def test_worst_excess_is_what_it_says(values: list[float], error: float, atol: float, rtol: float) -> None:
    expected = tensor(*values, dtype="float64")
    found = expected + error

    by_hand = max(abs(a - b) - (atol + rtol * abs(b)) for a, b in zip(found.tolist(), expected.tolist(), strict=True))
    assert worst_excess(found, expected, atol, rtol) == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize("place", [0, 1_048_575, 1_048_576, 2_500_000])
def test_every_part_of_a_large_output_counts(place: int) -> None:
    expected = torch.full((2_500_001,), 2.0)
    expected[5] = math.inf
    found = expected.clone()
    found[place] = 2.5
    difference = Difference("float32")
    difference.add(found, expected, "sample 0")
    assert (difference.max_abs_error, difference.noise, difference.signal) == (0.5, 0.25, 4.0 * 2_500_000)
    assert worst_excess(found, expected, 0.25, 0.0) == 0.25

    found[place] = math.nan
    difference.add(found, expected, "sample 1")
    assert difference.problems == ["sample 1: NaN or infinite values are not at the same positions as in the reference"]
    assert difference.noise == 0.25


def test_worst_excess_leaves_what_is_not_finite_alone() -> None:
    values = tensor(INF, NAN, -INF)

    assert worst_excess(values, values, 0.0, 0.0) == -INF
    assert worst_excess(tensor(), tensor(), 0.0, 0.0) == -INF
    assert worst_excess(tensor(INF, 2.5), tensor(INF, 2.0), 0.25, 0.0) == 0.25


@pytest.mark.parametrize(
    ("reference", "needed"),
    [
        (None, QUANTIZED_SNR_RANGE[1]),
        (100.0, QUANTIZED_SNR_RANGE[1]),
        (20.0, 20.0 - QUANTIZED_MARGIN_DB),
        (5.0, QUANTIZED_SNR_RANGE[0]),
        (-sys.float_info.max, QUANTIZED_SNR_RANGE[0]),
    ],
)
def test_a_quantized_program_may_add_as_much_noise_as_quantization_did(reference: float | None, needed: float) -> None:
    assert required_snr_db(reference) == needed


@pytest.mark.parametrize(("error", "steps"), [(0.0, 0), (0.0099, 1), (0.01, 1), (0.0301, 3)])
def test_errors_in_steps(error: float, steps: int) -> None:
    assert steps_apart(error, 0.01) == steps


@pytest.mark.parametrize(("quantization_error", "steps"), [(0.0, 1), (0.004, 2), (0.01, 2), (0.0101, 3), (5.0, 8)])
def test_kernels_may_add_one_step_to_the_error_of_quantization(quantization_error: float, steps: int) -> None:
    assert allowed_steps(quantization_error, 0.01) == steps


@pytest.mark.parametrize(
    ("found", "again", "same"),
    [
        pytest.param(torch.ones(2), 1, False, id="tensor and number"),
        pytest.param(1, torch.ones(2), False, id="number and tensor"),
        pytest.param(math.nan, math.nan, True, id="the same number"),
        pytest.param(torch.tensor([0.0]), torch.tensor([-0.0]), False, id="equal numbers of other bits"),
    ],
)
def test_the_same_bits(found: object, again: object, same: bool) -> None:
    assert same_bits(found, again) is same
