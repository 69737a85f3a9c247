"""Findings of the checks *runtime* and *replay*, over all methods."""

from __future__ import annotations

from dataclasses import dataclass, field

from etdev.pipeline.results.result import OutputError


@dataclass(frozen=True)
class Problem:
    """One failure."""

    text: str
    key: tuple[str, ...]
    """Key of the config at which to look for the cause."""
    hint: str


@dataclass
class Findings:
    """Findings of a check over all methods."""

    broken: list[Problem] = field(default_factory=list)
    missed: list[Problem] = field(default_factory=list)
    """Failures that are missed limits of the config."""
    outputs: list[OutputError] = field(default_factory=list)
    samples: int = 0
    sessions: int = 0
    session_calls: int = 0
    """Number of calls, over all sessions."""
    in_sessions: set[str] = field(default_factory=set)
    """Methods that a session called."""
    stateful: set[str] = field(default_factory=set)
    """Methods that write to a buffer in eager PyTorch."""
    in_a_row: int = 0
    """Number of calls that were made one after the other on one state, in addition to sessions."""
    row_ended: str | None = None
    """Reason why these calls in a row ended early; None if they did not."""
    extremes: set[str] = field(default_factory=set)
    """Which :data:`~etdev.verification.extremes.EXTREMES` (ends of dynamic ranges) ran in addition to the samples."""
    cut: bool = False
    """True if some samples or calls were left out because of :class:`Effort`."""
    untried: list[str] = field(default_factory=list)
    """Extremes at which the model itself fails on random inputs."""

    def add_output(self, output: OutputError) -> None:
        """Add the figures of one output. If it already has figures, keep the worse of each."""
        for index, known in enumerate(self.outputs):
            if (known.method, known.output) == (output.method, output.output):
                self.outputs[index] = _worst(known, output)
                return
        self.outputs.append(output)


def _worst(one: OutputError, other: OutputError) -> OutputError:
    nearest = max(one, other, key=lambda output: output.max_abs_error - output.allowed)
    return nearest.model_copy(
        update={
            "max_abs_error": max(one.max_abs_error, other.max_abs_error),
            "snr_db": _least(one.snr_db, other.snr_db),
            "float_snr_db": _least(one.float_snr_db, other.float_snr_db),
        }
    )


def _least(*ratios: float | None) -> float | None:
    """Return the smallest ratio; None stands for a ratio without noise."""
    return min((ratio for ratio in ratios if ratio is not None), default=None)
