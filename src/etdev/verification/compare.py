"""Comparison of a program's outputs with a reference, and the allowed differences."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etdev.verification.agreement import Agreement

if TYPE_CHECKING:
    import torch

RELATIVE_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}
"""Maps a dtype to its default tolerance, a fraction of the largest magnitude in a sample's reference output.

If that magnitude is below :data:`SMALLEST_PEAK`, the tolerance is a fraction of :data:`SMALLEST_PEAK`. The tolerances
allow for kernels that round intermediate results, or that sum in another order than eager PyTorch. The tolerance of
float64 equals that of float32, because delegates and some kernels compute float64 in single precision. Outputs of other
dtypes must be equal.
"""

SMALLEST_PEAK = 1e-2
"""Minimum magnitude for :func:`tolerance`, used if the largest magnitude of an output is smaller."""

QUANTIZED_MARGIN_DB = 6.0
QUANTIZED_SNR_RANGE = (3.0, 30.0)
"""Lowest and highest SNR, in dB, that etdev requires of a quantized target by default.

The SNR compares the program with the quantized model. :func:`required_snr_db` takes the SNR of the quantized model
against the float model, subtracts :data:`QUANTIZED_MARGIN_DB`, and clamps the result to this range.

The requirement depends on the model, because a delegate and the quantized model may round to different steps. The model
amplifies such differences as much as its quantization noise. A wrong program has an SNR of about 0 dB.
"""

_ROUNDED = 1e-12
"""Share of an energy below which a difference of energies is rounding only."""
_PIECE = 1 << 20
"""Number of elements that are compared at once."""

MOST_STEPS = 8
"""Upper bound of :func:`allowed_steps`. Eight steps are 1/32 of the range of int8, an SNR of about 30 dB."""


@dataclass
class Sums:
    """Sums of each element of an output and of its error over all calls."""

    calls: int = 0
    signal: torch.Tensor | None = None
    noise: torch.Tensor | None = None

    def with_call(self, found: torch.Tensor, expected: torch.Tensor) -> Sums | None:
        """Return the sums with those of one more call.

        Return None if the call has another shape, very many elements, or elements that are not finite.
        """
        signal = expected.double()
        noise = found.double() - signal
        if signal.numel() > _PIECE or not bool(noise.isfinite().all()):
            return None
        if self.signal is None or self.noise is None:
            return Sums(1, signal, noise)
        if self.signal.shape != signal.shape:
            return None
        return Sums(self.calls + 1, self.signal + signal, self.noise + noise)

    def constant_parts(self) -> tuple[float, float]:
        """Return the energies of the part that is the same in all calls: of the reference and of the error."""
        if self.signal is None or self.noise is None:
            return 0.0, 0.0
        return float(self.signal.square().sum()) / self.calls, float(self.noise.square().sum()) / self.calls


@dataclass
class Difference:
    """Comparison of one output with its reference, accumulated over many calls.

    Elements of integers and truth values are only counted: the distance between two indices has no meaning.
    """

    dtype: str
    compute_dtype: str = "float32"
    """Least precise dtype in which the program may compute a float32 operation."""
    max_abs_error: float = 0.0
    allowed: float = math.inf
    excess: float = -math.inf
    """Largest value of ``error - allowed error`` in all calls; at most 0 if all calls are within tolerance."""
    signal: float = 0.0
    noise: float = 0.0
    worst: str = ""
    """Description of the call with the largest :attr:`excess`."""
    lowest: tuple[float, str] | None = None
    """SNR, in dB, and description of the call with the lowest SNR; None if all calls are equal to the reference."""
    agreement: Agreement = field(default_factory=Agreement)
    """Counts of elements that differ: by more than the tolerance, or at all for integers and truth values."""
    problems: list[str] = field(default_factory=list)
    sums: Sums | None = None
    """Sums over all calls, if they are wanted."""

    @property
    def snr_db(self) -> float | None:
        """Signal-to-noise ratio over all calls, in dB; None if the outputs equal the reference.

        If all elements of the reference are zero, assume that one element is :data:`SMALLEST_PEAK`.
        """
        return _ratio_db(self.signal, self.noise)

    @property
    def varying_snr_db(self) -> float | None:
        """SNR, in dB, without the part of each element that is the same in all calls; None if it is not known."""
        if self.sums is None or self.sums.calls < 2 or self.problems:
            return None
        constant_signal, constant_noise = self.sums.constant_parts()
        signal, noise = self.signal - constant_signal, self.noise - constant_noise
        # The differences of nearly equal numbers are rounding errors.
        if signal <= _ROUNDED * self.signal or noise <= _ROUNDED * self.noise:
            return None
        return _ratio_db(signal, noise)

    @property
    def whole(self) -> bool:
        """True for an output of integers or truth values.

        Quantized outputs are compared as floats (:class:`~etdev.execution.float_ends.FloatEnds`), so they are not.
        """
        return is_whole(self.dtype)

    def add(self, found: Any, expected: Any, at: str) -> None:
        """Compare the output of one call with the expected output, and add the difference to the totals.

        ``at`` describes the call, such as ``sample 3``. A difference in kind, shape, dtype, NaNs or infinities is
        recorded as a problem.
        """
        problem = mismatch(found, expected)
        if problem is None and not _is_tensor(expected):
            problem = None if found == expected else f"is {found!r} instead of {expected!r}"
        if problem is not None:
            self.problems.append(f"{at}: {problem}")
            return
        if _is_tensor(expected) and self.whole:
            self.agreement.add(int((found != expected).sum()), found.numel(), at)
        elif _is_tensor(expected):
            self._add_tensors(found, expected, at)

    def _add_tensors(self, found: torch.Tensor, expected: torch.Tensor, at: str) -> None:
        has_finite = False
        largest = peak = signal = noise = 0.0
        for pieces in zip(_in_pieces(found), _in_pieces(expected), strict=True):
            compared = _where_finite(*pieces)
            if compared is None:
                self.problems.append(f"{at}: NaN or infinite values are not at the same positions as in the reference")
                return
            value, wanted = compared
            if len(wanted):
                error = value - wanted
                largest, peak = max(largest, float(error.abs().max())), max(peak, float(wanted.abs().max()))
                signal, noise = signal + float(wanted.dot(wanted)), noise + float(error.dot(error))
                has_finite = True
        if not has_finite:
            return
        largest, signal, noise = _bounded(largest), _bounded(signal), _bounded(noise)
        if self.sums is not None:
            self.sums = self.sums.with_call(found, expected)
        allowed = tolerance(self.dtype, self.compute_dtype, peak)
        beyond = 0 if largest <= allowed else _count_beyond(found, expected, allowed)
        self.agreement.add(beyond, found.numel(), at)
        self.max_abs_error = max(self.max_abs_error, largest)
        if largest - allowed > self.excess:
            self.excess, self.allowed, self.worst = largest - allowed, allowed, at
        ratio = _ratio_db(signal, noise)
        if ratio is not None and (self.lowest is None or ratio < self.lowest[0]):
            self.lowest = ratio, at
        self.signal, self.noise = _bounded(self.signal + signal), _bounded(self.noise + noise)


def _count_beyond(found: torch.Tensor, expected: torch.Tensor, allowed: float) -> int:
    """Return the number of elements with a larger error than allowed."""
    pieces = zip(_in_pieces(found), _in_pieces(expected), strict=True)
    return sum(int(((value - wanted).abs() > allowed).sum()) for value, wanted in pieces)


def _in_pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the elements of a tensor as float64, in vectors of limited length: the whole may take much memory."""
    import torch

    elements = tensor.reshape(-1)
    for start in range(0, len(elements), _PIECE):
        yield elements[start : start + _PIECE].to(torch.float64)


def _where_finite(found: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return both vectors without the elements that are NaN or infinite; None if these differ between the vectors."""
    import torch

    finite = torch.isfinite(expected)
    if not bool(finite.all()):
        same = (found == expected) | (found.isnan() & expected.isnan())
        if not bool((same | finite).all()):
            return None
        found, expected = found[finite], expected[finite]
    return (found, expected) if bool(torch.isfinite(found).all()) else None


def is_whole(dtype: str) -> bool:
    """Return True for a dtype of integers or truth values."""
    return dtype.startswith(("int", "uint", "bool"))


def _ratio_db(signal: float, noise: float) -> float | None:
    """Return a signal-to-noise ratio in dB; None without noise. A signal of 0 counts as :data:`SMALLEST_PEAK`."""
    if noise == 0.0:
        return None
    return 10 * (math.log10(signal or SMALLEST_PEAK**2) - math.log10(noise))


def tolerance(dtype: str, compute_dtype: str, peak: float) -> float:
    """Return the largest absolute error allowed by default in an output whose largest magnitude is ``peak``."""
    if dtype not in RELATIVE_TOLERANCE:
        return 0.0
    return max(RELATIVE_TOLERANCE[dtype], RELATIVE_TOLERANCE[compute_dtype]) * max(peak, SMALLEST_PEAK)


def worst_excess(found: torch.Tensor, expected: torch.Tensor, atol: float, rtol: float) -> float:
    """Return the largest ``|found - expected| - (atol + rtol * |expected|)``; above 0 means out of tolerance."""
    worst = -math.inf
    for value, wanted in zip(_in_pieces(found), _in_pieces(expected), strict=True):
        excess = (value - wanted).abs() - (atol + rtol * wanted.abs())
        worst = max(worst, float(excess.nan_to_num(nan=-math.inf).max()))
    return worst


def _bounded(value: float) -> float:
    """Return the value, clamped to the largest finite float. Ratios and reports must not contain infinity."""
    return min(value, sys.float_info.max)


def mismatch(found: Any, expected: Any) -> str | None:
    """Describe the difference in kind, shape or dtype between an output and its reference; None if there is none."""
    if _is_tensor(found) != _is_tensor(expected):
        return f"is {type(found).__name__} instead of {type(expected).__name__}"
    if not _is_tensor(expected):
        return None
    if tuple(found.shape) != tuple(expected.shape):
        return f"has the shape {list(found.shape)} instead of {list(expected.shape)}"
    if found.dtype != expected.dtype:
        return f"is {found.dtype} instead of {expected.dtype}"
    return None


def same_bits(found: Any, again: Any) -> bool:
    """Return True if two outputs are equal bit by bit."""
    import torch

    if isinstance(found, torch.Tensor) != isinstance(again, torch.Tensor):
        return False
    if not isinstance(found, torch.Tensor):
        return bool(found == again) or (found != found and again != again)
    if found.shape != again.shape or found.dtype != again.dtype:
        return False
    one, two = (item.contiguous().reshape(-1).view(torch.uint8) for item in (found, again))
    return bool(torch.equal(one, two))


def _is_tensor(value: object) -> bool:
    return hasattr(value, "data_ptr")


def required_snr_db(reference_snr_db: float | None) -> float:
    """Return the SNR, in dB, that the program must reach against the quantized reference.

    ``reference_snr_db`` is the SNR of the quantized reference against the float model; None if their outputs are equal.
    """
    lowest, highest = QUANTIZED_SNR_RANGE
    if reference_snr_db is None:
        return highest
    return min(max(reference_snr_db - QUANTIZED_MARGIN_DB, lowest), highest)


def steps_apart(error: float, step: float) -> int:
    """Return the error of an output in quantization steps. ``step`` is the scale of the output's integers."""
    return round(error / step)


def allowed_steps(quantization_error: float, step: float) -> int:
    """Return the error that kernels in fixed point may have against the quantized model, in quantization steps.

    ``step`` is the scale of the output's integers. ``quantization_error`` is the largest difference between the outputs
    of the quantized model and of the float model.

    One step is for the rounding of the last kernel. The earlier kernels also round differently than the quantized
    model. Their effect on the output may reach ``quantization_error``, the effect of rounding all values. The result is
    at most :data:`MOST_STEPS`, even for a model that quantization ruined.
    """
    return min(1 + math.ceil(quantization_error / step - 1e-6), MOST_STEPS)
