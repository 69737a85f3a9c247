"""Subject of the checks *runtime* and *replay*, and their findings so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etdev import backends
from etdev.config.models import Verify
from etdev.execution.runtimes import Runtime
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import Count, uncounted
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.result import OutputError
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.verification.compare import RELATIVE_TOLERANCE


@dataclass(frozen=True)
class Effort:
    """Limits on how much is run."""

    samples: int | None = None
    """Most samples of a method; None means all."""
    session_calls: int | None = None
    """Most calls in all sessions together; None means all."""
    extremes: bool = True
    """True if the ends of dynamic ranges run too."""
    limits: bool = True
    """True if the config's own limits are judged, in addition to etdev's defaults."""


@dataclass(frozen=True)
class Subject:
    """The program in a runtime, and the models that it was built from."""

    project: Project
    user: UserCode
    target: str
    float_model: ExportedModel
    reference: ExportedModel
    """The quantized model before lowering, or ``float_model`` itself."""
    samples: Mapping[str, Iterable[Tensors]]
    weak: frozenset[str]
    """Methods whose samples are random."""
    path: Path
    """The program's file."""
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    effort: Effort = Effort()
    jobs: int = 1
    """Number of workers for the metric's samples."""
    count: Count = uncounted
    """Callback for each call that the metric makes."""

    def load(self, runtime: Runtime, *, shared: bool = False) -> tuple[str, ...]:
        """Open the program in a runtime, as :meth:`Runtime.load` does."""
        return runtime.load(self.path, shared=shared, data=self.data)

    @property
    def settings(self) -> Verify:
        """The table ``[targets.X.verify]``."""
        return self.project.config.targets[self.target].verify

    @property
    def compute_dtype(self) -> str:
        """Coarsest dtype in which one of the target's backends computes float32."""
        steps = self.project.config.targets[self.target].partitioners
        dtypes = [backends.get(step.backend).compute_dtype for step in steps]
        return max(dtypes, key=lambda dtype: RELATIVE_TOLERANCE[dtype], default="float32")

    @property
    def quantized(self) -> bool:
        """True if the reference is not the float model."""
        return self.reference is not self.float_model

    def broken(self, text: str) -> Problem:
        """Return the problem of a program that does not compute what the model does.

        The inputs do not explain the difference.
        """
        if self.project.config.targets[self.target].partitioners:
            hint = "a target without this partitioner shows whether the backend is the cause"
            return Problem(text, ("targets", self.target, "partitioners"), hint)
        hint = "look for what export fixes: branches on values, numbers read out of tensors, state outside buffers"
        return Problem(text, ("targets", self.target), hint)


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
