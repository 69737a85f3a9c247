"""Findings of the checks *runtime* and *replay*, over all methods."""

from __future__ import annotations

from dataclasses import dataclass, field

from etdev.pipeline.results.result import OutputError


@dataclass(frozen=True)
class Problem:
    """One failure."""

    text: str
    key: tuple[str, ...]
    """Key of the config that it concerns."""
    hint: str


@dataclass
class Findings:
    """Findings over all methods."""

    broken: list[Problem] = field(default_factory=list)
    missed: list[Problem] = field(default_factory=list)
    """Missed limits of the config."""
    outputs: list[OutputError] = field(default_factory=list)
    samples: int = 0
    sessions: int = 0
    session_calls: int = 0
    """Number of calls in all sessions together."""
    in_sessions: set[str] = field(default_factory=set)
    """Methods that a session called."""
    stateful: set[str] = field(default_factory=set)
    """Methods that write to a buffer in eager PyTorch."""
    in_a_row: int = 0
    """Number of calls in a row on one state, in addition to sessions."""
    row_ended: str | None = None
    """Reason why the calls in a row ended early."""
    extremes: set[str] = field(default_factory=set)
    """Members of :data:`~etdev.verification.extremes.EXTREMES` that ran in addition to the samples."""
    cut: bool = False
    """True if :class:`Effort` cut samples or calls."""
    untried: list[str] = field(default_factory=list)
    """Extremes at which the model itself fails on random inputs."""

    def add_output(self, output: OutputError) -> None:
        """Add the figures of one output; merge those of its samples and of its sessions."""
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
    """Return the smallest ratio; None means no noise."""
    return min((ratio for ratio in ratios if ratio is not None), default=None)
