"""What was found of one model on one backend: a JSON file for each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

FORMAT = 2
"""Of the files. A change of what is measured, or how, counts it up, so that nothing is taken for what it is not."""

Backend = Literal["portable", "xnnpack"]
BACKENDS: tuple[Backend, ...] = ("portable", "xnnpack")


class Part(BaseModel):
    """A part of a result: immutable, and complete in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class File(Part):
    """A program file."""

    memory: int
    """Bytes of planned memory: the sum of all buffers."""
    size: int
    """Bytes of the file: weights, delegates' data and instructions."""
    instructions: int
    error: float | None = None
    """Against eager PyTorch, relative to the largest element of each output; None if it was not run."""

    def cost(self, plain: File) -> int:
        """Return the bytes of planned memory plus those by which the file outgrows the plain one."""
        return self.memory + max(0, self.size - plain.size)


class Tuned(File):
    """The file of ExecuTorch's best settings: that of the smallest cost whose outputs are right."""

    settings: str
    failed: dict[str, str] = {}
    """Settings that give no file, or one that does not run or is wrong, and why."""


class Step(File):
    """A file of etdev's."""

    name: str
    lower_bound: int
    """Bytes of planned memory below which no plan of the file's tensors gets."""
    identical: bool
    """Whether it computes what the program before the link does, bit by bit."""
    as_plain: bool
    """Whether it computes what the plain file does, bit by bit."""


class Latency(Part):
    """Seconds per call, pair by pair."""

    plain: tuple[float, ...]
    etdev: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """How many times faster etdev's file is, pair by pair."""
        return tuple(plain / etdev for plain, etdev in zip(self.plain, self.etdev, strict=True))


class Process(Part):
    """Memory of a process that loads a file and calls it once, in bytes of its largest resident set."""

    runtime: int
    """With ExecuTorch's runtime and nothing loaded."""
    plain: int
    """With the plain file, the runtime included."""
    etdev: int
    """With etdev's file, the runtime included."""


class Result(Part):
    """All of it."""

    key: str
    """Of what the result depends on: versions, the model, etdev's source."""
    model: str
    backend: Backend
    plain: File | None = None
    """As ExecuTorch makes it with its defaults."""
    overlap: str | None = None
    """How the plain file overwrites values that it still reads, if it does: its memory is no plan to compare with."""
    tuned: Tuned | None = None
    steps: tuple[Step, ...] = ()
    relinked: int | None = None
    """Bytes of planned memory of the plain file after `etdev relink`."""
    relinked_identical: bool | None = None
    latency: Latency | None = None
    """Of the plain file and the last step's."""
    process: Process | None = None
    troubles: tuple[str, ...] = ()
    """What failed, and why: what needs it was not measured."""
    seconds: float = 0.0
    """That measuring took."""

    @property
    def final(self) -> Step | None:
        """etdev's file with all its parts."""
        return self.steps[-1] if self.steps else None


def result_file(folder: Path, model: str, backend: Backend) -> Path:
    """Where the result of a model lies."""
    return folder / f"{model}.{backend}.json"


def read_result(path: Path) -> Result | None:
    """A result that was written before; None if there is none, or one of another format."""
    try:
        return Result.model_validate_json(path.read_text())
    except (OSError, ValueError):
        return None
