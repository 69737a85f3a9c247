"""Samples against the declared inputs, and inputs made from the declaration (E2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.config.models import Dim, Input, Method
from etdev.errors import LoadError, QuantizeError
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.inputs import Signature, check_sample, make_inputs, random_samples, read_samples
from etdev.pipeline.stages.trials import sizes_to_try
from support.stages import Failure, check_failure

torch = pytest.importorskip("torch", reason="needs the extra `build`")

METHOD = Method.model_validate(
    {
        "inputs": [
            {"name": "image", "dtype": "float32", "shape": ["n", 3, "side", "side"]},
            {"name": "mask", "dtype": "bool", "shape": ["n"]},
        ],
        "dims": {"n": {"min": 2, "max": 8}, "side": {"max": 16}},
    }
)
SIGNATURE = Signature.of("forward", METHOD)
DECLARED = "image: float32 [n, 3, side, side], mask: bool [n]"
WHERE = "etdev.toml:3:1 (methods.forward.samples)"


def image(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def mask(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.bool)


MISMATCHES = {
    "a tensor": (
        image(2, 3, 4, 4),
        "it is a tensor of shape [2, 3, 4, 4], not a tuple of tensors such as (image, mask)",
    ),
    "a dict": ({"image": 1}, "it is a dict, not a tuple of tensors such as (image, mask)"),
    "an int": (3, "it is an int, not a tuple of tensors such as (image, mask)"),
    "too few": ((image(2, 3, 4, 4),), "it contains 1 value, but the method takes 2"),
    "too many": ((image(2, 3, 4, 4), mask(2), mask(2)), "it contains 3 values, but the method takes 2"),
    "not a tensor": ((image(2, 3, 4, 4), [True, False]), "input 'mask' is a list, not a tensor"),
    "None": ((None, mask(2)), "input 'image' is a NoneType, not a tensor"),
    "another dtype": ((image(2, 3, 4, 4).double(), mask(2)), "input 'image' is float64, but is declared as float32"),
    "another device": (
        (image(2, 3, 4, 4).to("meta"), mask(2)),
        "input 'image' is on the device 'meta', not on the CPU",
    ),
    "a sparse tensor": (
        (image(2, 3, 4, 4).to_sparse(), mask(2)),
        "input 'image' has the layout torch.sparse_coo instead of a dense layout",
    ),
    "another rank": (
        (image(3, 4, 4), mask(2)),
        "input 'image' has the shape [3, 4, 4], but is declared as [n, 3, side, side]",
    ),
    "another size": (
        (image(2, 1, 4, 4), mask(2)),
        "input 'image' has the shape [2, 1, 4, 4], but is declared as [n, 3, side, side]: axis 1 is 1 instead of 3",
    ),
    "below the range": (
        (image(1, 3, 4, 4), mask(1)),
        (
            "input 'image' has the shape [1, 3, 4, 4], but is declared as [n, 3, side, side]: axis 0 is 1, which is "
            "outside 'n' = 2..8"
        ),
    ),
    "above the range": (
        (image(2, 3, 17, 17), mask(2)),
        (
            "input 'image' has the shape [2, 3, 17, 17], but is declared as [n, 3, side, side]: axis 2 is 17, which "
            "is outside 'side' = 1..16"
        ),
    ),
    "unequal within an input": (
        (image(2, 3, 4, 5), mask(2)),
        (
            "input 'image' has the shape [2, 3, 4, 5], but is declared as [n, 3, side, side]: 'side' is 5 here, but 4 "
            "at an earlier axis"
        ),
    ),
    "unequal between inputs": (
        (image(2, 3, 4, 4), mask(3)),
        "input 'mask' has the shape [3], but is declared as [n]: 'n' is 3 here, but 2 at an earlier axis",
    ),
}


@pytest.mark.parametrize(("sample", "problem"), MISMATCHES.values(), ids=MISMATCHES)
def test_each_mismatch_is_a_sentence(sample: object, problem: str) -> None:
    assert check_sample(sample, SIGNATURE) == problem


@pytest.mark.parametrize("kind", [tuple, list])
def test_a_sample_that_fits(kind: Callable[[Any], object]) -> None:
    assert check_sample(kind((image(2, 3, 4, 4), mask(2))), SIGNATURE) is None


SIZES = st.integers(1, 20)


@given(n=SIZES, side=SIZES, low=SIZES, high=SIZES)
def test_exactly_the_sizes_within_the_ranges_fit(n: int, side: int, low: int, high: int) -> None:
    low, high = min(low, high), max(low, high)
    signature = Signature("forward", SIGNATURE.inputs, {"n": Dim(min=low, max=high), "side": Dim(max=16)})
    fits = low <= n <= high and side <= 16
    assert (check_sample((image(n, 3, side, side), mask(n)), signature) is None) == fits


@given(n=SIZES, low=st.integers(1, 4), count=st.integers(0, 3), step=SIZES)
def test_exactly_the_multiples_fit(n: int, low: int, count: int, step: int) -> None:
    dim = Dim(min=low * step, max=(low + count) * step, multiple_of=step)
    assert [*dim.sizes] == [step * each for each in range(low, low + count + 1)]
    signature = Signature("forward", SIGNATURE.inputs, {"n": dim, "side": Dim(max=16)})
    assert (check_sample((image(n, 3, 4, 4), mask(n)), signature) is None) == (n in dim.sizes)
    for choice in sizes_to_try(signature):
        assert check_sample(make_inputs(signature, choice), signature) is None


@given(low=SIZES, high=SIZES, seed=st.integers(0, 5), share=st.floats(0, 1))
def test_what_is_made_fits(low: int, high: int, seed: int, share: float) -> None:
    low, high = min(low, high), max(low, high)
    signature = Signature("forward", SIGNATURE.inputs, {"n": Dim(min=low, max=high), "side": Dim(max=16)})
    between = {"n": low + round(share * (high - low)), "side": 3}
    for choice in (signature.largest(), signature.smallest(), between):
        assert check_sample(make_inputs(signature, choice, seed), signature) is None


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
)
def test_inputs_of_every_dtype_are_made(dtype: str) -> None:
    method = Method.model_validate({"inputs": [{"name": "x", "dtype": dtype, "shape": [64]}]})
    (made,) = make_inputs(Signature.of("forward", method), {})
    assert str(made.dtype) == f"torch.{dtype}"
    assert (made != 0).any() == (dtype == "bool" or made.is_floating_point())


def test_random_samples_are_the_same_each_time() -> None:
    first, second = list(random_samples(SIGNATURE)), list(random_samples(SIGNATURE))
    assert [sample[0].shape[0] for sample in first] == [8, 2, 8]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0][0], first[2][0])


# read_samples ---------------------------------------------------------------------------------------------------------


def _good() -> tuple[torch.Tensor, torch.Tensor]:
    return image(2, 3, 4, 4), mask(2)


def _raises_midway() -> Any:
    yield _good()
    raise OSError("no space")


class _Unwilling:
    def __iter__(self) -> Any:
        raise RuntimeError("not now")


READ_FAILURES = {
    "raises": (lambda: 1 / 0, "'data:f' failed: ZeroDivisionError: division by zero", None),
    "takes arguments": (
        lambda count: [],
        "'data:f' failed: TypeError: <lambda>() missing 1 required positional argument: 'count'",
        None,
    ),
    "raises midway": (_raises_midway, "'data:f' failed at sample 1: OSError: no space", None),
    "raises when asked to begin": (_Unwilling, "'data:f' failed: RuntimeError: not now", None),
    "not iterable": (
        lambda: 3,
        "'data:f' returned an int, not an iterable of tuples of tensors",
        "return or yield tuples of tensors",
    ),
    "nothing": (
        lambda: None,
        "'data:f' returned a NoneType, not an iterable of tuples of tensors",
        "return or yield tuples of tensors",
    ),
    "empty": (list, "'data:f' returned no samples", "check that the function finds its data"),
    "a tensor": (
        lambda: image(2, 3, 4, 4),
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 0: it is a tensor of "
            "shape [3, 4, 4], not a tuple of tensors such as (image, mask)"
        ),
        f"the config declares {DECLARED}",
    ),
    "a wrong one": (
        lambda: [_good(), (image(9, 3, 4, 4), mask(9))],
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 1: input 'image' has the "
            "shape [9, 3, 4, 4], but is declared as [n, 3, side, side]: axis 0 is 9, which is outside 'n' = 2..8"
        ),
        f"the config declares {DECLARED}; if the samples are right, extend the range of 'n' to include 9",
    ),
    "a wrong fixed size": (
        lambda: [(image(2, 1, 4, 4), mask(2))],
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 0: input 'image' has the "
            "shape [2, 1, 4, 4], but is declared as [n, 3, side, side]: axis 1 is 1 instead of 3"
        ),
        (
            f"the config declares {DECLARED}; if the samples are right, "
            'set `shape` of \'image\' to ["n", 1, "side", "side"]'
        ),
    ),
    "channels last": (
        lambda: [(image(2, 4, 4, 3), mask(2))],
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 0: input 'image' has the "
            "shape [2, 4, 4, 3], but is declared as [n, 3, side, side]: axis 1 is 4 instead of 3"
        ),
        f"the config declares {DECLARED}; move the channels of 'image' in the samples: tensor.permute(0, 3, 1, 2)",
    ),
    "a label": (
        lambda: [(image(2, 3, 4, 4), mask(2), 7)],
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 0: it contains 3 values, but the "
            "method takes 2"
        ),
        f"the config declares {DECLARED}; yield only the inputs of the method, without labels: (image, mask)",
    ),
    "no batch axis": (
        lambda: [(image(3, 4, 4), mask(2))],
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 0: input 'image' has the "
            "shape [3, 4, 4], but is declared as [n, 3, side, side]"
        ),
        f"the config declares {DECLARED}; if the samples are right, declare a shape of 3 axes for 'image'",
    ),
    "another dtype": (
        lambda: [(image(2, 3, 4, 4).double(), mask(2))],
        (
            "'data:f' returns inputs that method 'forward' does not accept: sample 0: input 'image' is "
            "float64, but is declared as float32"
        ),
        (
            f"the config declares {DECLARED}; convert 'image' in the samples with `.to(torch.float32)`, or set its "
            '`dtype` to "float64" if the model takes that'
        ),
    ),
}


@pytest.mark.parametrize("kind", [LoadError, QuantizeError])
@pytest.mark.parametrize(("function", "message", "hint"), READ_FAILURES.values(), ids=READ_FAILURES)
def test_samples_that_cannot_be_used(function: object, message: str, hint: str | None, kind: type[LoadError]) -> None:
    """Judging point 7: samples of the wrong shape."""
    with UserCode() as user:
        check_failure(
            lambda: list(read_samples(user, function, "data:f", SIGNATURE, WHERE, kind)),
            Failure(kind, WHERE, message, hint),
        )


@pytest.mark.parametrize(
    ("count", "hint"),
    [
        (32, "yield 16 samples of 2 each, such as `x.split(2)`, or set `shape` of 'x' to [32, 4]"),
        (3, "if the samples are right, set `shape` of 'x' to [3, 4]"),
        (1, "if the samples are right, set `shape` of 'x' to [1, 4]"),
    ],
)
def test_many_samples_in_one_tensor(count: int, hint: str) -> None:
    """The only help was to declare a batch of 32, for a program that computes one sample at a time."""
    signature = Signature("forward", (Input(name="x", dtype="float32", shape=(2, 4)),), {})
    with UserCode() as user, pytest.raises(LoadError) as caught:
        list(read_samples(user, lambda: [(torch.ones(count, 4),)], "data:f", signature, WHERE))
    assert caught.value.hint == f"the config declares x: float32 [2, 4]; {hint}"


def test_lists_become_tuples_and_are_read_one_at_a_time() -> None:
    def endless() -> Any:
        while True:
            yield list(_good())

    with UserCode() as user:
        samples = read_samples(user, endless, "data:f", SIGNATURE, WHERE)
        assert isinstance(next(samples), tuple)
        assert isinstance(next(samples), tuple)


def test_an_error_of_etdev_in_samples_is_kept() -> None:
    def samples() -> Any:
        raise LoadError("mine", where="here", hint="there")

    with UserCode() as user:
        check_failure(
            lambda: list(read_samples(user, samples, "data:f", SIGNATURE, WHERE)),
            Failure(LoadError, "here", "mine", "there"),
        )
