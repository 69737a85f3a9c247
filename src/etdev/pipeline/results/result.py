"""Results of builds and verifications: one versioned model for ``report.json`` and :class:`BuildResult`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from etdev.decisions import Elision, InPlace, TilingDecision
from etdev.errors import ExitCode
from etdev.pipeline.results.decision_counts import CopiesOfKind, InPlaceOutputs
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result_parts import AllocatedBuffer, DeviceMemory, MemoryOutside
from etdev.program.info import BufferInfo, Transfers

Status = Literal["passed", "failed", "not run"]

NO_LIMIT = "the config sets no limit"
NO_METRIC = "the config names no metric"
NO_DEVICES = "the program has no memory on devices"
NOT_VERIFIED = "verification was turned off"
NOTHING_TO_ASK = (NO_LIMIT, NO_METRIC, NO_DEVICES)
"""Reasons why a check did not run that mean that there was nothing to check."""

WORST_FIRST = (ExitCode.BUILD_FAILED, ExitCode.CONFIG, ExitCode.ENVIRONMENT, ExitCode.GATE_FAILED)
"""Exit codes by precedence, for the exit code of several targets together.

First a broken artifact or a failed stage, then an invalid config, then something that this machine lacks, then a missed
gate.
"""


class Part(BaseModel):
    """A part of a result: immutable, and complete in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputError(Part):
    """The error of one output of a method against its reference, over all samples and sessions."""

    method: str
    output: int
    """Position of the output, from 0."""
    dtype: str
    max_abs_error: float
    allowed: float
    """Largest absolute error that etdev allows for the dtype, at the sample where the error comes closest to it."""
    snr_db: float | None
    """Signal-to-noise ratio against the reference, in dB; None if every sample was equal."""
    float_snr_db: float | None = None
    """SNR of a quantized target against the float model, in dB; None if equal, or if not quantized."""


class LatencyResult(Part):
    """Seconds per call, over all measured calls.

    A percentile is the measured time of one call (the nearest rank).
    """

    calls: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class Failure(Part):
    """One failure of a check that compares several values with limits."""

    message: str
    """Description of the failure, in one sentence."""
    where: str
    """Location of the limit in the config."""
    hint: str
    """Advice on the failure."""


class CheckResult(Part):
    """One check of the verification, and its result."""

    name: str
    status: Status
    summary: str
    """What the check found, or the reason why it did not run, in one line."""
    gate: bool = False
    """True if a failure is a missed limit of the config, so that the artifact stays; False if the artifact is broken.
    """
    problems: tuple[str, ...] = ()
    """The failures, one sentence each."""
    where: str | None = None
    """Location of the failure: that of the limit in the config, or of the line in the model's code."""
    hint: str | None = None
    """Advice on a failure; for a ``replay`` that did not run, how to run it."""
    failures: tuple[Failure, ...] = ()
    """The failures in ``problems`` with location and advice each, if these are known for each."""
    outputs: tuple[OutputError, ...] = ()
    value: float | None = None
    """Value of the metric, for the check ``accuracy``."""
    unjudged: str | None = None
    """Location of the limit that was not judged, for a check that did not run."""
    latency: LatencyResult | None = None
    """Measured times, for the check ``latency``."""
    lacking: bool = False
    """True if the check counts as required: it should have run, but this machine could not run it."""
    devices: tuple[str, ...] | None = None
    """Devices that the program names besides the host, for the check ``bytes``; None if the program was not read."""
    allocations: tuple[AllocatedBuffer, ...] = ()
    """Planned buffers on devices and the memory tests in them, for the check ``device``."""
    memory_outside: tuple[MemoryOutside, ...] = ()
    """Memory of each method outside of its planned buffers, for the check ``native``."""
    device_memory: tuple[DeviceMemory, ...] = ()
    """Memory of the devices before, during and after the check, for the check ``device``."""


class UndelegatedOps(Part):
    """Ops of one kind that run on kernels and not in a delegate."""

    op: str
    count: int


class MethodResult(Part):
    """Facts on one method of the program."""

    name: str
    inputs: tuple[str, ...]
    """Inputs such as ``image: float32 [batch, 1, 8, 8]``."""
    stateful: bool
    delegate_calls: dict[str, int]
    """Number of calls by delegate id."""
    delegated_ops: int
    undelegated: tuple[UndelegatedOps, ...]
    operators: tuple[str, ...]
    """Names of the operators that the runtime must have for the file."""
    libraries: tuple[str, ...] = ()
    """ExecuTorch's kernel libraries that have these operators; custom operators are in none."""
    forms: dict[str, int] = {}
    """Number of ops that lowering replaced by ops with faster kernels, by form."""
    tiling: TilingDecision | None = None
    """The decision whether to tile the method, with its figures; None if there was nothing to decide."""
    buffers: tuple[BufferInfo, ...] = ()
    instructions: int = 0
    transfers: Transfers = Transfers(0, 0)
    """Bytes that one call copies between the host and devices."""
    copies: tuple[CopiesOfKind, ...] = ()
    """Numbers of removed and kept copies, by kind."""
    inplace: InPlaceOutputs = InPlaceOutputs()
    """Numbers of outputs that are written over an operand, and of outputs that are not."""
    copy_decisions: tuple[Elision, ...] = ()
    """The linker's decision on each copy, by position in the object program."""
    inplace_decisions: tuple[InPlace, ...] = ()
    """The linker's decision on each output that may be written over an operand, by position in the object program."""
    renumbered: dict[int, int] = {}
    """Position in the file of each instruction that the link kept, by position in the object program."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(text.partition(":")[0] for text in self.inputs)


class FileBeside(Part):
    """A file that belongs to a program, in its folder."""

    name: str
    size: int
    """Size of the file in bytes."""
    sha256: str


class DataFile(FileBeside):
    """A file of data that a program needs at run time."""

    of_delegates: bool = False
    """True if a backend requested this file, false for ``external_weights``."""


class TargetResult(Part):
    """The artifact of one target, and the results of its verification."""

    name: str
    status: Literal["built", "gate failed", "rejected"]
    artifact: str
    """Path of the file, relative to the config's folder if the file is below it."""
    size: int
    """Size of the artifact in bytes."""
    sha256: str
    data: tuple[DataFile, ...] = ()
    """Data files, without which the program does not run."""
    operators: FileBeside | None = None
    """The file that lists the operators of the program, for a selective build of the runtime."""
    quantize: str | None
    """Quantization scheme that was applied; None if the target is not quantized."""
    methods: tuple[MethodResult, ...] = ()
    memory: dict[str, int] = {}
    """Planned bytes per device: the sum over planned buffers, each at its largest size in any method."""
    sidecar_sha256: str | None = None
    """SHA-256 of the sidecar of the linked object program; positions in ``methods`` fit only that object program."""
    nested_memory: dict[str, int] = {}
    """Bytes per device that reference delegates allocate for their programs, in addition to ``memory``."""
    planner: str | None = None
    shared_state: tuple[str, ...] = ()
    """Names of states that several methods share; they need a loader that gives all methods the same buffers."""
    checks: tuple[CheckResult, ...] = ()
    required: tuple[str, ...] = ()
    """Names of the checks that must run."""
    seconds: dict[str, float] = {}
    """Seconds of each stage, in the order in which the stages ran."""
    figures: Figures | None = None
    """The figures that budgets limit and baselines compare; ``build`` sets them."""
    notes: tuple[str, ...] = ()

    @property
    def unmet(self) -> tuple[CheckResult, ...]:
        """Required checks that did not run."""
        return unmet(self.checks, self.required)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code that this target alone would give."""
        if self.status == "rejected":
            return ExitCode.BUILD_FAILED
        if self.unmet:
            return ExitCode.ENVIRONMENT
        return ExitCode.GATE_FAILED if self.status == "gate failed" else ExitCode.DONE


class Obstacle(Part):
    """One reason why a target was not built."""

    rule: str
    """Kind of error; the stage's name if a stage failed."""
    message: str
    """Description of the reason, in one sentence."""
    where: str | None = None
    """Location of the reason."""
    hint: str | None = None
    """Advice on the reason."""


class FailedTarget(Part):
    """A target that was not built, since a stage failed or this machine lacks something."""

    name: str
    code: ExitCode
    """Exit code that this target alone would give."""
    errors: tuple[Obstacle, ...]


class BuildResult(Part):
    """Results of all targets of one run."""

    format: Literal[1] = 1
    project: str
    config: str
    """Path of the config file."""
    profile: str | None = None
    versions: dict[str, str]
    """Versions of etdev, Python and the packages that took part."""
    targets: tuple[TargetResult, ...]
    failed: tuple[FailedTarget, ...] = ()
    """Targets that were not built because of an error."""
    not_built: tuple[str, ...] = ()
    """Targets that were not begun, because another target failed before."""
    notes: tuple[str, ...] = ()
    """Notes on all targets together: how to simulate missing devices, and unused devices of the device map."""

    @property
    def exit_code(self) -> ExitCode:
        """Worst exit code of all targets, by :data:`WORST_FIRST`."""
        codes = {*(target.exit_code for target in self.targets), *(target.code for target in self.failed)}
        return next((code for code in WORST_FIRST if code in codes), max(codes, default=ExitCode.DONE))

    @property
    def ok(self) -> bool:
        """True if no target failed, was rejected, missed a gate or lacks a required check."""
        return self.exit_code == ExitCode.DONE

    def __getitem__(self, target: str) -> TargetResult:
        """Return the result of a target by name; raise :class:`KeyError` for one that was not built."""
        for result in self.targets:
            if result.name == target:
                return result
        raise KeyError(target)

    def path(self, target: str) -> Path:
        """Return the path of a target's file: the artifact, or the rejected one."""
        return Path(self.config).parent / self[target].artifact


def unmet(checks: tuple[CheckResult, ...], required: tuple[str, ...]) -> tuple[CheckResult, ...]:
    """Return the required checks that did not run."""
    return tuple(check for check in checks if check.status == "not run" and (check.name in required or check.lacking))


def outcome(checks: tuple[CheckResult, ...]) -> Literal["built", "gate failed", "rejected"]:
    """Return the status of an artifact from its checks."""
    failed = [check for check in checks if check.status == "failed"]
    if any(not check.gate for check in failed):
        return "rejected"
    return "gate failed" if failed else "built"
