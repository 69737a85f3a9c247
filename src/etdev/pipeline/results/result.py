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
"""Reasons of checks that did not run because there was nothing to check."""

WORST_FIRST = (ExitCode.BUILD_FAILED, ExitCode.CONFIG, ExitCode.ENVIRONMENT, ExitCode.GATE_FAILED)
"""Exit codes by precedence, for the exit code of several targets together.

The first is for a broken artifact or a failed stage, the second for an invalid config, the third for a requirement that
this machine does not meet, the last for a missed gate.
"""


class Part(BaseModel):
    """A part of a result. It is immutable, and its JSON has all fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputError(Part):
    """The error of one output of a method against its reference, over all samples and sessions."""

    method: str
    output: int
    """Position of the output, from 0."""
    dtype: str
    max_abs_error: float
    allowed: float
    """Largest absolute error that etdev allows for the dtype, in the sample where the error is closest to its limit."""
    snr_db: float | None
    """Signal-to-noise ratio against the reference, in dB; None if all samples were equal to the reference."""
    float_snr_db: float | None = None
    """SNR of a quantized target against the float model, in dB; None if equal, or if the target is not quantized."""


class LatencyResult(Part):
    """Seconds per call, over all measured calls.

    Each percentile is the measured time of one call (nearest-rank method).
    """

    calls: int
    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float


class Failure(Part):
    """One failure of a check that can report several failures."""

    message: str
    """Description of the failure, in one sentence."""
    where: str
    """Location in the config of the limit."""
    hint: str
    """Advice on the failure."""


class CheckResult(Part):
    """The result of one check of a verification."""

    name: str
    status: Status
    summary: str
    """Findings of the check, or the reason why it did not run, in one line."""
    gate: bool = False
    """True if a limit of the config was missed, so that the artifact stays; False if the artifact is broken."""
    problems: tuple[str, ...] = ()
    """The failures, one sentence each."""
    where: str | None = None
    """Location of the failure: of the limit in the config, or of the line in the model's code."""
    hint: str | None = None
    """Advice on a failure; if the check ``replay`` did not run, advice on how to run it."""
    failures: tuple[Failure, ...] = ()
    """The failures in ``problems`` with location and advice for each one, if known."""
    outputs: tuple[OutputError, ...] = ()
    value: float | None = None
    """Value of the metric, for the check ``accuracy``."""
    unjudged: str | None = None
    """Location of the limit that was not checked, if the check did not run."""
    latency: LatencyResult | None = None
    """Measured times, for the check ``latency``."""
    lacking: bool = False
    """True if this machine could not run the check although it should have run; the check then counts as required."""
    devices: tuple[str, ...] | None = None
    """Devices other than the host that the program names, for the check ``bytes``; None if the program was not read."""
    allocations: tuple[AllocatedBuffer, ...] = ()
    """Planned buffers on devices, with the memory tests of these buffers, for the check ``device``."""
    memory_outside: tuple[MemoryOutside, ...] = ()
    """Memory of each method outside of its planned buffers, for the check ``native``."""
    device_memory: tuple[DeviceMemory, ...] = ()
    """Memory of the devices before, during and after the check, for the check ``device``."""


class UndelegatedOps(Part):
    """Ops of one kind that kernels run instead of a delegate."""

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
    """ExecuTorch's kernel libraries that have these operators; custom operators are not in any of them."""
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
    """New position of each instruction that the link kept, by position in the object program."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(text.partition(":")[0] for text in self.inputs)


class FileBeside(Part):
    """A file next to a program that belongs to the program."""

    name: str
    size: int
    """Size of the file in bytes."""
    sha256: str


class DataFile(FileBeside):
    """A file with data that a program needs at run time."""

    of_delegates: bool = False
    """True if a backend requested this file, false for ``external_weights``."""


class TargetResult(Part):
    """The artifact of one target, and the results of its verification."""

    name: str
    status: Literal["built", "gate failed", "rejected"]
    artifact: str
    """Path of the program, relative to the config's folder if the file is below that folder."""
    size: int
    """Size of the artifact in bytes."""
    sha256: str
    data: tuple[DataFile, ...] = ()
    """Data files; the program does not run without them."""
    operators: FileBeside | None = None
    """The file that lists the operators of the program, for a selective build of the runtime."""
    quantize: str | None
    """Quantization scheme that was applied; None if the target is not quantized."""
    methods: tuple[MethodResult, ...] = ()
    memory: dict[str, int] = {}
    """Planned bytes by device: the sum over planned buffers, each at its largest size in any method."""
    sidecar_sha256: str | None = None
    """SHA-256 of the sidecar of the linked object program; positions in ``methods`` are valid only for that program."""
    nested_memory: dict[str, int] = {}
    """Bytes by device that reference delegates allocate for their programs, in addition to ``memory``."""
    planner: str | None = None
    shared_state: tuple[str, ...] = ()
    """Names of states that several methods share; the program's loader must give all methods the same buffers."""
    checks: tuple[CheckResult, ...] = ()
    required: tuple[str, ...] = ()
    """Names of the checks that must run."""
    seconds: dict[str, float] = {}
    """Seconds by stage, in the order in which the stages ran."""
    figures: Figures | None = None
    """The figures that budgets limit and baselines compare; ``build`` sets them."""
    notes: tuple[str, ...] = ()

    @property
    def unmet(self) -> tuple[CheckResult, ...]:
        """Required checks that did not run."""
        return unmet(self.checks, self.required)

    @property
    def exit_code(self) -> ExitCode:
        """Exit code if this were the only target."""
        if self.status == "rejected":
            return ExitCode.BUILD_FAILED
        if self.unmet:
            return ExitCode.ENVIRONMENT
        return ExitCode.GATE_FAILED if self.status == "gate failed" else ExitCode.DONE


class Obstacle(Part):
    """A reason why a target was not built."""

    rule: str
    """Kind of error; the stage's name if a stage failed."""
    message: str
    """Description of the reason, in one sentence."""
    where: str | None = None
    """Location of the reason."""
    hint: str | None = None
    """Advice on the reason."""


class FailedTarget(Part):
    """A target that was not built, because a stage failed or this machine lacks a requirement."""

    name: str
    code: ExitCode
    """Exit code if this were the only target."""
    errors: tuple[Obstacle, ...]


class BuildResult(Part):
    """Results of all targets of one run."""

    format: Literal[1] = 1
    project: str
    config: str
    """Path of the config file."""
    profile: str | None = None
    versions: dict[str, str]
    """Versions of etdev, Python and the packages that the run used."""
    targets: tuple[TargetResult, ...]
    failed: tuple[FailedTarget, ...] = ()
    """Targets that were not built because of an error."""
    not_built: tuple[str, ...] = ()
    """Targets that were not started, because another target failed."""
    notes: tuple[str, ...] = ()
    """Notes on all targets: how to simulate missing devices, and entries of the device map that no target uses."""

    @property
    def exit_code(self) -> ExitCode:
        """Worst exit code of all targets, by :data:`WORST_FIRST`."""
        codes = {*(target.exit_code for target in self.targets), *(target.code for target in self.failed)}
        return next((code for code in WORST_FIRST if code in codes), max(codes, default=ExitCode.DONE))

    @property
    def ok(self) -> bool:
        """True if every target was built, none was rejected or missed a gate, and all required checks ran."""
        return self.exit_code == ExitCode.DONE

    def __getitem__(self, target: str) -> TargetResult:
        """Return the result of a target by name; raises :class:`KeyError` if the target was not built."""
        for result in self.targets:
            if result.name == target:
                return result
        raise KeyError(target)

    def path(self, target: str) -> Path:
        """Return the path of a target's program: the accepted or the rejected file."""
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
