"""Findings of the checks *runtime* and *replay*, over all methods."""

from __future__ import annotations

from dataclasses import dataclass, field

from etdev.pipeline.results.result import OutputError


@dataclass(frozen=True)
class Problem:
    """One failure of a check."""

    text: str
    key: tuple[str, ...]
    """Key of the config that is the likely cause."""
    hint: str


@dataclass
class Findings:
    """Findings of a check over all methods, collected while the program runs."""

    broken: list[Problem] = field(default_factory=list)
    missed: list[Problem] = field(default_factory=list)
    """Failures that are missed limits of the config."""
    outputs: list[OutputError] = field(default_factory=list)
    samples: int = 0
    sessions: int = 0
    session_calls: int = 0
    """Number of calls in all sessions."""
    in_sessions: set[str] = field(default_factory=set)
    """Names of the methods that a session called."""
    stateful: set[str] = field(default_factory=set)
    """Names of the methods that write to a buffer in eager PyTorch."""
    in_a_row: int = 0
    """Number of calls that were made one after another on one state, in addition to sessions."""
    row_ended: str | None = None
    """Reason why the calls in :attr:`in_a_row` ended early; None if all calls ran."""
    extremes: set[str] = field(default_factory=set)
    """Ends of dynamic ranges (:data:`~etdev.verification.extremes.EXTREMES`) that ran in addition to the samples."""
    cut: bool = False
    """True if :class:`Effort` caused samples or calls to be omitted."""
    untried: list[str] = field(default_factory=list)
    """Extremes at which the model itself fails on random inputs."""

    def add_output(self, output: OutputError) -> None:
        """Add the figures of one output; if the output already has figures, keep the worse value of each."""
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
    """Return the smallest ratio; None if all ratios are None, which stands for equal outputs."""
    return min((ratio for ratio in ratios if ratio is not None), default=None)
