"""Collected findings of a check that compares the program's outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

from etdev.pipeline.results.result import OutputError
from etdev.verification.agreement import Agreement


@dataclass(frozen=True)
class Problem:
    """One failure of a check."""

    text: str
    key: tuple[str, ...]
    """Config key of the likely cause."""
    hint: str


@dataclass
class ComparedElements:
    """Elements of one output that agree with the reference, over all calls of a check."""

    dtype: str
    found: Agreement = field(default_factory=Agreement)
    """Comparison of the program with the reference."""
    quantized: Agreement = field(default_factory=Agreement)
    """Comparison of the reference with the float model."""


@dataclass
class Findings:
    """Findings of a check over all methods and calls."""

    broken: list[Problem] = field(default_factory=list)
    missed: list[Problem] = field(default_factory=list)
    """Limits of the config that the program missed."""
    outputs: list[OutputError] = field(default_factory=list)
    elements: dict[tuple[str, int], ComparedElements] = field(default_factory=dict)
    """Maps a method and an output position to the counts of elements that agree, if these are what is judged."""
    samples: int = 0
    sessions: int = 0
    session_calls: int = 0
    """Total number of calls in the sessions."""
    in_sessions: set[str] = field(default_factory=set)
    """Names of the methods that sessions called."""
    stateful: set[str] = field(default_factory=set)
    """Names of the methods that write to a buffer in eager PyTorch."""
    in_a_row: int = 0
    """Number of calls made one after another on one state; calls in sessions are not counted."""
    row_ended: str | None = None
    """Reason why the calls in a row ended early; None if all calls in a row ran."""
    extremes: set[str] = field(default_factory=set)
    """Ends of dynamic ranges at which methods made extra calls: ``smallest``, ``largest``."""
    cut: bool = False
    """True if the limits in :class:`Effort` left out some samples or calls."""
    untried: list[Problem] = field(default_factory=list)
    """Smallest or largest sizes that were not compared, because eager PyTorch fails at them."""

    def add_output(self, output: OutputError) -> None:
        """Add the figures of one output. If the output already has figures, keep the worse value of each figure."""
        for index, known in enumerate(self.outputs):
            if (known.method, known.output) == (output.method, output.output):
                self.outputs[index] = _worst(known, output)
                return
        self.outputs.append(output)

    def add_agreement(self, output: OutputError, found: Agreement, quantized: Agreement) -> None:
        """Add the counts of an output whose elements that agree are judged.

        ``found`` compares the program with the reference, and ``quantized`` the reference with the float model.
        """
        known = self.elements.setdefault((output.method, output.output), ComparedElements(output.dtype))
        known.found.add(found.differing, found.elements, found.first)
        known.quantized.add(quantized.differing, quantized.elements, quantized.first)

    def separate(self) -> Findings:
        """Return findings for calls that only add problems and counts of equal elements, and no other figures."""
        return Findings(broken=self.broken, elements=self.elements)


def _worst(one: OutputError, other: OutputError) -> OutputError:
    nearest = max(one, other, key=lambda output: output.max_abs_error - output.allowed)
    return nearest.model_copy(
        update={
            "max_abs_error": max(one.max_abs_error, other.max_abs_error),
            "snr_db": _least(one.snr_db, other.snr_db),
            "float_snr_db": _least(one.float_snr_db, other.float_snr_db),
            "varying_snr_db": _least(one.varying_snr_db, other.varying_snr_db),
            "elements": _total(one.elements, other.elements),
            "differing": _total(one.differing, other.differing),
            "steps": max((item.steps for item in (one, other) if item.steps is not None), default=None),
        }
    )


def _total(*counts: int | None) -> int | None:
    """Return the sum of the known counts; None if none is known."""
    return sum(count for count in counts if count is not None) if any(count is not None for count in counts) else None


def _least(*ratios: float | None) -> float | None:
    """Return the smallest ratio. Ignore None, which means no ratio; if all ratios are None, return None."""
    return min((ratio for ratio in ratios if ratio is not None), default=None)
