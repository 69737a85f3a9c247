"""What the checks *runtime* and *replay* compare, and what they found so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from etdev import backends
from etdev.config.models import Verify
from etdev.pipeline.artifacts import ExportedModel, Tensors
from etdev.pipeline.progress import Count, uncounted
from etdev.pipeline.project import Project
from etdev.pipeline.result import OutputError
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.verify.compare import RELATIVE_TOLERANCE


class Runtime(Protocol):
    """What loads a program and calls its methods: the stock runtime in its process, or the replay in this one.

    Both raise :class:`~etdev.runtime.stock.ProgramFailureError` for what the program does wrong.
    """

    def load(self, file: Path, *, shared: bool = False, data: Sequence[Path] = ()) -> tuple[str, ...]:
        """Open a program with its data files; return the names of its methods. ``shared`` puts all methods in the same
        buffers."""

    def call(self, method: str, inputs: Sequence[Any], *, fresh: bool = False) -> tuple[Any, ...]:
        """Outputs of one call; ``fresh`` starts from initial state."""


@dataclass(frozen=True)
class Effort:
    """How much of what there is to run is run."""

    samples: int | None = None
    """Most samples of a method; None is all."""
    session_calls: int | None = None
    """Most calls in sessions, in all of them together."""
    extremes: bool = True
    """Whether the ends of dynamic ranges are run too."""
    limits: bool = True
    """Whether the config's own limits are judged, beyond etdev's defaults."""


@dataclass(frozen=True)
class Subject:
    """What is compared: the program in a runtime, and the models that it came from."""

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
    """The file."""
    data: tuple[Path, ...] = ()
    """Its data files."""
    effort: Effort = Effort()
    jobs: int = 1
    """Workers for the metric's samples."""
    count: Count = uncounted
    """Is told of each call that the metric makes."""

    def load(self, runtime: Runtime, *, shared: bool = False) -> tuple[str, ...]:
        """Open the program in a runtime; as :meth:`Runtime.load`."""
        return runtime.load(self.path, shared=shared, data=self.data)

    @property
    def settings(self) -> Verify:
        """``[targets.X.verify]``."""
        return self.project.config.targets[self.target].verify

    @property
    def compute_dtype(self) -> str:
        """Coarsest dtype that one of the target's backends computes float32 in."""
        steps = self.project.config.targets[self.target].partitioners
        dtypes = [backends.get(step.backend).compute_dtype for step in steps]
        return max(dtypes, key=lambda dtype: RELATIVE_TOLERANCE[dtype], default="float32")

    @property
    def quantized(self) -> bool:
        """Whether the reference is another model than the float one."""
        return self.reference is not self.float_model

    def broken(self, text: str) -> Problem:
        """A program that computes something else than the model, for no reason that its inputs tell."""
        if self.project.config.targets[self.target].partitioners:
            hint = "a target without this partitioner shows whether the backend is the cause"
            return Problem(text, ("targets", self.target, "partitioners"), hint)
        hint = "look for what export fixes: branches on values, numbers read out of tensors, state outside buffers"
        return Problem(text, ("targets", self.target), hint)


@dataclass(frozen=True)
class Problem:
    """One thing that failed."""

    text: str
    key: tuple[str, ...]
    """The config's key that it is about."""
    hint: str


@dataclass
class Findings:
    """Collected over all methods."""

    broken: list[Problem] = field(default_factory=list)
    missed: list[Problem] = field(default_factory=list)
    """Limits of the config."""
    outputs: list[OutputError] = field(default_factory=list)
    samples: int = 0
    sessions: int = 0
    session_calls: int = 0
    """In all sessions together."""
    in_sessions: set[str] = field(default_factory=set)
    """Methods that a session called."""
    stateful: set[str] = field(default_factory=set)
    """Methods that write to a buffer in eager PyTorch."""
    in_a_row: int = 0
    """Calls on one state that no session asked for."""
    row_ended: str | None = None
    """Why there are fewer of these calls than there could be."""
    extremes: set[str] = field(default_factory=set)
    """Of :data:`~etdev.pipeline.verify.extremes.EXTREMES`, those that were run beyond the samples."""
    cut: bool = False
    """Whether there was more than :class:`Effort` allows."""
    untried: list[str] = field(default_factory=list)
    """Extremes at which the model itself does not run on made-up inputs."""

    def add_output(self, output: OutputError) -> None:
        """Enter the figures of one output; those of its samples and of its sessions become one."""
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
    """None is no noise at all."""
    return min((ratio for ratio in ratios if ratio is not None), default=None)
