"""What a build or a verification found: ``report.json`` and :class:`BuildResult` are this one, versioned model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from etdev.config.models import CheckName
from etdev.decisions import Elision, InPlace, TilingDecision
from etdev.errors import ExitCode
from etdev.pipeline.decisions import CopiesOfKind, InPlaceOutputs
from etdev.pipeline.figures import Figures
from etdev.pipeline.parts import AllocatedBuffer, Copies, DeviceMemory

CHECKS: tuple[CheckName, ...] = (
    "bytes",
    "plan",
    "placement",
    "kernels",
    "budget",
    "growth",
    "runtime",
    "replay",
    "device",
    "accuracy",
    "latency",
)
"""In the order in which they are reported."""

Status = Literal["passed", "failed", "not run"]

NO_LIMIT = "the config sets no limit"
NO_METRIC = "the config names no metric"
NO_DEVICES = "the program has no memory on devices"
NOT_VERIFIED = "verification was turned off"
NOTHING_TO_ASK = (NO_LIMIT, NO_METRIC, NO_DEVICES)
"""Why a check did not run that there was nothing to ask of."""

WORST_FIRST = (ExitCode.BUILD_FAILED, ExitCode.CONFIG, ExitCode.ENVIRONMENT, ExitCode.GATE_FAILED)
"""What several targets answer together: a broken artifact or a stage that failed, then a wrong config, then what this
machine lacks, then a missed gate."""


class Part(BaseModel):
    """A part of a result: immutable, and complete in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputError(Part):
    """How far one output of a method is from its reference, over all samples and sessions."""

    method: str
    output: int
    """Position, 0-based."""
    dtype: str
    max_abs_error: float
    allowed: float
    """Largest absolute error that etdev's default for the dtype allows, at the sample where it was nearest to it."""
    snr_db: float | None
    """Signal-to-noise ratio against the reference; None if every sample was equal."""
    float_snr_db: float | None = None
    """For a quantized target: the ratio against the float model; None if equal, or if not quantized."""


class LatencyResult(Part):
    """Seconds of a call, of all that were measured. A percentile is the time of a call: the nearest rank."""

    calls: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class Failure(Part):
    """One thing that failed, where one check asks for several."""

    message: str
    """One sentence."""
    where: str
    """Place of the limit in the config."""
    hint: str
    """What to do about it."""


class CheckResult(Part):
    """One question of the verification, and its answer."""

    name: CheckName
    status: Status
    summary: str
    """One line: what was seen, or why it did not run."""
    gate: bool = False
    """Whether a failure is a missed limit of the config (the artifact stays) instead of a broken artifact."""
    problems: tuple[str, ...] = ()
    """One sentence per thing that failed."""
    where: str | None = None
    """Place of what failed: of the limit in the config, or of the line in the model."""
    hint: str | None = None
    """What to do about a failure; ``replay`` that did not run: what would have it run."""
    failures: tuple[Failure, ...] = ()
    """``problems`` with the place and the remedy of each, if they are known one by one."""
    outputs: tuple[OutputError, ...] = ()
    value: float | None = None
    """``accuracy``: the metric."""
    unjudged: str | None = None
    """Not run: place of the limit of the config that was not judged for that."""
    latency: LatencyResult | None = None
    """``latency``: what was measured."""
    lacking: bool = False
    """Whether it was to run by itself and this machine did not let it, so that it counts as required."""
    devices: tuple[str, ...] | None = None
    """``bytes``: those that the program names, beside the host; None if it was not read."""
    allocations: tuple[AllocatedBuffer, ...] = ()
    """``device``: the planned buffers on devices, and what was done in them."""
    device_memory: tuple[DeviceMemory, ...] = ()
    """``device``: memory of the devices before, during and after."""


class UndelegatedOps(Part):
    """Ops of one kind that run on kernels instead of a delegate."""

    op: str
    count: int


class BufferResult(Part):
    """One planned buffer of a method."""

    index: int
    """Its ``memory_id``."""
    device: str
    size: int
    """Bytes that the runtime allocates."""
    lower_bound: int
    """Bytes below which no plan for the same tensors gets."""
    greedy: int
    """Bytes that ExecuTorch's greedy order takes for the same tensors."""
    state: bool
    """Whether it holds only what is kept between calls."""


class MethodResult(Part):
    """One method of the program."""

    name: str
    inputs: tuple[str, ...]
    """``image: float32 [batch, 1, 8, 8]``."""
    stateful: bool
    delegate_calls: dict[str, int]
    """Number of calls by delegate id."""
    delegated_ops: int
    undelegated: tuple[UndelegatedOps, ...]
    operators: tuple[str, ...]
    """Kernels that the file asks the runtime for."""
    libraries: tuple[str, ...] = ()
    """ExecuTorch's kernel libraries that have them all; custom kernels are in none."""
    forms: dict[str, int] = {}
    """Number of ops that lowering replaced by ones with faster kernels, by the form that it gave them."""
    tiling: TilingDecision | None = None
    """The decision to do ops in pieces to save memory, with its figures; None where there was nothing to decide."""
    buffers: tuple[BufferResult, ...] = ()
    instructions: int = 0
    transfers: Copies = Copies(0, 0)
    """Between the host and devices, in one call."""
    copies: tuple[CopiesOfKind, ...] = ()
    """What became of the copies that the linker looked at, by kind."""
    inplace: InPlaceOutputs = InPlaceOutputs()
    """What became of the outputs that may be written over an operand."""
    copy_decisions: tuple[Elision, ...] = ()
    """One for each of ``copies``, by position in the object program."""
    inplace_decisions: tuple[InPlace, ...] = ()
    """One for each of ``inplace``, by position in the object program."""
    renumbered: dict[int, int] = {}
    """Positions of the instructions that the link left: in the object program → in the file."""


class FileBeside(Part):
    """A file that belongs to a program, in its folder."""

    name: str
    size: int
    """Bytes."""
    sha256: str


class DataFile(FileBeside):
    """A file of data that a program needs at run time."""

    of_delegates: bool = False
    """Does a backend ask for this file? Otherwise it is ``external_weights``."""


class TargetResult(Part):
    """One target's artifact and what verification said about it."""

    name: str
    status: Literal["built", "gate failed", "rejected"]
    artifact: str
    """Path of the file, relative to the config's folder where it lies below it."""
    size: int
    """Bytes."""
    sha256: str
    data: tuple[DataFile, ...] = ()
    """Its data files, without which the program does not run."""
    operators: FileBeside | None = None
    """The operators that it needs, for a selective build of the runtime."""
    quantize: str | None
    """Scheme that was applied."""
    methods: tuple[MethodResult, ...] = ()
    memory: dict[str, int] = {}
    """Planned bytes per device: the sum over buffers of the largest size that any method gives them."""
    sidecar_sha256: str | None = None
    """Of the object program's notes that were linked; only those go with the positions in ``methods``."""
    nested_memory: dict[str, int] = {}
    """Bytes per device that reference delegates allocate for the programs in them; not part of ``memory``."""
    planner: str | None = None
    shared_state: tuple[str, ...] = ()
    """State that several methods share. It needs a loader that gives all methods of a program the same buffers."""
    checks: tuple[CheckResult, ...] = ()
    required: tuple[CheckName, ...] = ()
    """Checks that had to run."""
    seconds: dict[str, float] = {}
    """Per stage, in the order they ran."""
    figures: Figures | None = None
    """What budgets and baselines compare; ``build`` has them."""
    notes: tuple[str, ...] = ()

    @property
    def unmet(self) -> tuple[CheckResult, ...]:
        """Required checks that did not run."""
        return unmet(self.checks, self.required)

    @property
    def exit_code(self) -> ExitCode:
        """What this target alone would make the process answer."""
        if self.status == "rejected":
            return ExitCode.BUILD_FAILED
        if self.unmet:
            return ExitCode.ENVIRONMENT
        return ExitCode.GATE_FAILED if self.status == "gate failed" else ExitCode.DONE


class Obstacle(Part):
    """One thing that kept a target from being built."""

    rule: str
    """The kind of error: of a stage that failed, its name."""
    message: str
    """One sentence."""
    where: str | None = None
    """Its place."""
    hint: str | None = None
    """What to do about it."""


class FailedTarget(Part):
    """A target that was not built, since a stage failed or this machine lacks something."""

    name: str
    code: ExitCode
    """What this target alone would make the process answer."""
    errors: tuple[Obstacle, ...]


class BuildResult(Part):
    """All targets of one run."""

    format: Literal[1] = 1
    project: str
    config: str
    """The config file."""
    profile: str | None = None
    versions: dict[str, str]
    """Of etdev, Python and the packages that took part."""
    targets: tuple[TargetResult, ...]
    failed: tuple[FailedTarget, ...] = ()
    """Those of which a stage failed."""
    not_built: tuple[str, ...] = ()
    """Those that were not begun, since another one failed."""
    notes: tuple[str, ...] = ()
    """On all targets together: what simulates devices that are not here, and what a device map has in vain."""

    @property
    def exit_code(self) -> ExitCode:
        """The worst of all targets, by :data:`WORST_FIRST`."""
        codes = {*(target.exit_code for target in self.targets), *(target.code for target in self.failed)}
        return next((code for code in WORST_FIRST if code in codes), max(codes, default=ExitCode.DONE))

    @property
    def ok(self) -> bool:
        """Whether no target failed, was rejected, missed a gate or lacks a required check."""
        return self.exit_code == ExitCode.DONE

    def __getitem__(self, target: str) -> TargetResult:
        """The result of a target, by name; :class:`KeyError` for one that was not built."""
        for result in self.targets:
            if result.name == target:
                return result
        raise KeyError(target)

    def path(self, target: str) -> Path:
        """Path of a target's file: the artifact, or the rejected one."""
        return Path(self.config).parent / self[target].artifact


def unmet(checks: tuple[CheckResult, ...], required: tuple[CheckName, ...]) -> tuple[CheckResult, ...]:
    """Checks that had to run and did not."""
    return tuple(check for check in checks if check.status == "not run" and (check.name in required or check.lacking))


def outcome(checks: tuple[CheckResult, ...]) -> Literal["built", "gate failed", "rejected"]:
    """What the checks make of an artifact."""
    failed = [check for check in checks if check.status == "failed"]
    if any(not check.gate for check in failed):
        return "rejected"
    return "gate failed" if failed else "built"
