"""A note on outputs that are nearly the same for all samples."""

from __future__ import annotations

import pytest

from etdev.pipeline.builder.summary import describe_constant_outputs
from etdev.pipeline.results.result import CheckResult, OutputError


def check(*, ratio: float | None, varying: float | None) -> CheckResult:
    output = OutputError(
        method="forward",
        output=1,
        dtype="float32",
        max_abs_error=0.5,
        allowed=1,
        snr_db=50,
        float_snr_db=ratio,
        varying_snr_db=varying,
    )
    return CheckResult(name="runtime", status="passed", summary="", outputs=(output,))


def test_a_ratio_that_is_due_to_a_constant_part_is_noted_once() -> None:
    """A model that ignored its input had 32.6 dB, so a limit of 30 dB passed it."""
    (note,) = describe_constant_outputs([check(ratio=33.5, varying=0.04), check(ratio=32.6, varying=0.01)])
    assert note.startswith(
        "output 1 of 'forward' is nearly the same for all samples. Its SNR against the float model is 32.6 dB, "
        "but 0.0 dB without the part that does not change"
    )


@pytest.mark.parametrize(
    ("ratio", "varying"),
    [(40, 28), (12, 5), (40, None), (None, None)],
    ids=["enough", "low anyway", "unknown", "equal"],
)
def test_other_outputs_are_not_noted(ratio: float | None, varying: float | None) -> None:
    assert not list(describe_constant_outputs([check(ratio=ratio, varying=varying)]))
