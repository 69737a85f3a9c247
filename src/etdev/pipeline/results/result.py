"""Results of builds and verifications: one versioned model for ``report.json`` and :class:`BuildResult`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from etdev.decisions import Elision, InPlace, Reordering, TilingDecision
from etdev.errors import ExitCode
from etdev.pipeline.results.decision_counts import CopiesOfKind, InPlaceOutputs
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result_parts import AllocatedBuffer, DelegateMemory, DeviceMemory, MemoryOutside
from etdev.program.bank_report import BankReport
from etdev.program.info import BufferInfo, Transfers

Status = Literal["passed", "failed", "not run"]

WORST_FIRST = (ExitCode.BUILD_FAILED, ExitCode.CONFIG, ExitCode.ENVIRONMENT, ExitCode.GATE_FAILED)
"""Exit codes, worst first; the exit code of a run is the worst code of its targets.

In order, the codes mean:

* a broken artifact or a failed stage
* an invalid config
* a requirement that this machine does not meet
* a missed gate
"""


class Part(BaseModel):
    """A part of a result. A part is immutable, and its JSON includes all fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputError(Part):
    """Deviation of one output of a method from the reference, over all samples and sessions."""

    method: str
    output: int
    """Position of the output, from 0."""
    dtype: str
    max_abs_error: float
    """Largest absolute error; 0 for integers and truth values, which are counted in :attr:`differing`."""
    allowed: float
    """Allowed absolute error in the worst sample: the sample in which the error minus the allowed error is largest."""
    snr_db: float | None
    """Signal-to-noise ratio against the reference, in dB.

    None if all samples were equal to the reference, and for integers and truth values.
    """
    float_snr_db: float | None = None
    """SNR of a quantized target against the float model, in dB.

    None if the target is not quantized, or if the outputs equal those of the float model. Also None for integers and
    truth values.
    """
    varying_snr_db: float | None = None
    """Like :attr:`float_snr_db`, but without the part of each element that is the same in all samples.

    None also for a single sample, for samples of several shapes, and for outputs with more than 2^20 elements.
    """
    elements: int | None = None
    """Number of compared elements of an output of integers or truth values, or of floats with ``min_close``.

    None for other outputs.
    """
    differing: int | None = None
    """Number of these elements that differ from the reference, floats by more than the tolerance."""
    step: float | None = None
    """Scale of the output's integers if kernels compute the output in fixed point; None otherwise."""
    steps: int | None = None
    """Largest difference from the quantized model's output, in multiples of :attr:`step`."""
    allowed_steps: int | None = None
    """Limit for :attr:`steps`."""


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
    """One failure or warning of a check that can report several of them."""

    message: str
    """Description, in one sentence."""
    where: str
    """Location of the cause in the config."""
    hint: str
    """Advice on how to fix the cause."""


class CheckResult(Part):
    """The result of one check of a verification."""

    name: str
    status: Status
    summary: str
    """Findings of the check, or the reason why it did not run, in one line."""
    gate: bool = False
    """True if the failure is a missed limit of the config, False if the artifact is broken.

    A missed limit does not reject the artifact.
    """
    problems: tuple[str, ...] = ()
    """The failures, one sentence each."""
    where: str | None = None
    """Location of the failure: a limit in the config, or a line in the model's code."""
    hint: str | None = None
    """Advice on a failure; if the check ``replay`` did not run, advice on how to run it."""
    failures: tuple[Failure, ...] = ()
    """The same failures as in ``problems``, with location and advice; empty if location and advice are unknown."""
    warnings: tuple[Failure, ...] = ()
    """Parts of the model that the check could not try, such as sizes at which the model itself fails."""
    outputs: tuple[OutputError, ...] = ()
    value: float | None = None
    """Value of the metric, for the check ``accuracy``."""
    unjudged: str | None = None
    """Location in the config of a limit that was not compared, because its figure is unknown."""
    latency: LatencyResult | None = None
    """Measured times, for the check ``latency``."""
    lacking: bool = False
    """True if this machine lacks something that the check needs. A build then treats the check as required."""
    devices: tuple[str, ...] | None = None
    """Devices of the program other than the host, for the check ``bytes``; None if the program was not read."""
    allocations: tuple[AllocatedBuffer, ...] = ()
    """Planned buffers on devices, each with the result of its memory test, for the check ``device``."""
    memory_outside: tuple[MemoryOutside, ...] = ()
    """Memory of each method outside of its planned buffers, for the check ``native``."""
    device_memory: tuple[DeviceMemory, ...] = ()
    """Memory of the devices before, during and after the check, for the check ``device``."""


class UndelegatedOps(Part):
    """Ops of one kind that are outside all delegates, so that kernels run them."""

    op: str
    count: int
    reasons: tuple[str, ...] = ()
    """Reasons why backends left these ops out, such as ``xnnpack: Only support 1D + 2D Conv``.

    Empty if no backend states a reason.
    """
    module: str | None = None
    """Path of the module that contains one of these ops, preferably an op with a reason.

    None if the path is unknown, or if the target has no delegates. An empty path is the model itself.
    """
    source: str | None = None
    """Line of the model's code that calls the op found in :attr:`module`: ``model.py:20``; None if unknown."""


class QuantizedTensor(Part):
    """A quantized input or output of a method: ``float = (integer - zero_point) * scale``."""

    name: str
    """Name of the input, or ``output0`` for the first output."""
    dtype: str
    scale: float
    zero_point: int
    quant_min: int
    """Smallest integer that a quantized value may have."""
    quant_max: int
    """Largest integer that a quantized value may have."""

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}, scale {self.scale:.6g}, zero point {self.zero_point}"


class MethodResult(Part):
    """Facts on one method of the program."""

    name: str
    inputs: tuple[str, ...]
    """Inputs of the model, such as ``image: float32 [batch, 1, 8, 8]``."""
    stateful: bool
    delegate_calls: dict[str, int]
    """Maps the id of a backend's delegates, such as ``XnnpackBackend``, to the number of calls of these delegates."""
    delegated_ops: int
    undelegated: tuple[UndelegatedOps, ...]
    operators: tuple[str, ...]
    """Names of the operators that the method needs from the runtime."""
    libraries: tuple[str, ...] = ()
    """ExecuTorch's kernel libraries that contain ``operators``. Custom operators are in none of these libraries."""
    forms: dict[str, int] = {}
    """Number of ops that lowering replaced by ops with faster kernels, by form."""
    quantized: tuple[QuantizedTensor, ...] = ()
    """Inputs and outputs that the program takes and returns as quantized integers instead of floats."""
    tiling: TilingDecision | None = None
    """The decision whether to tile the method, with its figures; None if there was nothing to decide."""
    slow_convolutions: tuple[int, ...] = ()
    """One estimate for each convolution that keeps a slow kernel to save memory.

    The estimate is the planned memory, in bytes, that the method would need with a faster kernel for this convolution.
    """
    buffers: tuple[BufferInfo, ...] = ()
    delegate_memory: tuple[DelegateMemory, ...] = ()
    """Memory of each delegate whose compiler reports it."""
    instructions: int = 0
    transfers: Transfers = Transfers(0, 0)
    """Bytes that one call copies between the host and devices."""
    copies: tuple[CopiesOfKind, ...] = ()
    """Numbers of removed and kept copies, by kind."""
    inplace: InPlaceOutputs = InPlaceOutputs()
    """Counts of the linker's decisions on outputs in place."""
    copy_decisions: tuple[Elision, ...] = ()
    """The linker's decision on each copy, in the order of the copies in the object program."""
    inplace_decisions: tuple[InPlace, ...] = ()
    """The linker's decisions on outputs that may be written over an operand, in the order of the object program."""
    order: Reordering | None = None
    """New order of the instructions; None if they are in the order of the object program."""
    renumbered: dict[int, int] = {}
    """Maps the position of each kept instruction in the object program to its position in the linked program."""

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(text.partition(":")[0] for text in self.inputs)


class FileBeside(Part):
    """A file that belongs to a program and is in the program's folder."""

    name: str
    size: int
    """Size of the file in bytes."""
    sha256: str


class DataFile(FileBeside):
    """A file with data that a program needs at run time."""

    of_delegates: bool = False
    """True if a backend requested this file, False if it is the file of ``external_weights``."""


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
    """SHA-256 of the object program's sidecar.

    Positions in ``methods`` are valid only for the object program with this sidecar.
    """
    nested_memory: dict[str, int] = {}
    """Bytes that reference delegates allocate for their programs, by device. ``memory`` does not include them."""
    planner: str | None = None
    shared_state: tuple[str, ...] = ()
    """Names of states that several methods share; the program's loader must give all methods the same buffers."""
    banks: BankReport | None = None
    """Contents of the memory banks; None if the target has no banks."""
    checks: tuple[CheckResult, ...] = ()
    required: tuple[str, ...] = ()
    """Names of the checks that must run."""
    seconds: dict[str, float] = {}
    """Seconds by stage, in the order in which the stages ran."""
    figures: Figures | None = None
    """The figures that budgets limit and baselines compare. Only ``build`` sets this field."""
    split_state: tuple[Failure, ...] = ()
    """Warnings on state that methods share in the model, and of which each method has its own copy in the program."""
    notes: tuple[str, ...] = ()

    @property
    def unmet(self) -> tuple[CheckResult, ...]:
        """Required checks that did not run."""
        return unmet(self.checks, self.required)

    @property
    def warnings(self) -> tuple[Failure, ...]:
        """The warnings of the build and of all checks, each once."""
        return tuple(dict.fromkeys((*self.split_state, *(one for check in self.checks for one in check.warnings))))

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a run with only this target."""
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
    """Location of the error."""
    hint: str | None = None
    """Advice on how to fix the error."""


class FailedTarget(Part):
    """A target that was not built, because a stage failed or this machine lacks a requirement."""

    name: str
    code: ExitCode
    """Exit code of a run with only this target."""
    errors: tuple[Obstacle, ...]


class BuildResult(Part):
    """Results of all targets of one run."""

    format: Literal[1] = 1
    project: str
    config: str
    """Path of the config file."""
    profile: str | None = None
    overrides: dict[str, Any] = {}
    """Config values that come from environment variables and ``--set``, by key."""
    versions: dict[str, str]
    """Versions of etdev, Python and the packages that the run used."""
    targets: tuple[TargetResult, ...]
    failed: tuple[FailedTarget, ...] = ()
    """Targets that were not built because of an error."""
    not_built: tuple[str, ...] = ()
    """Targets that were not started, because another target failed."""
    notes: tuple[str, ...] = ()
    """Notes on missing devices that can be simulated, and on unused entries of the device map."""

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
        """Return the path of a target's program, which may have the suffix ``.rejected``."""
        return Path(self.config).parent / self[target].artifact


def unmet(checks: tuple[CheckResult, ...], required: tuple[str, ...]) -> tuple[CheckResult, ...]:
    """Return the required checks that did not run."""
    return tuple(check for check in checks if check.status == "not run" and (check.name in required or check.lacking))


def outcome(checks: tuple[CheckResult, ...]) -> Literal["built", "gate failed", "rejected"]:
    """Return the status of an artifact whose checks had these results."""
    failed = [check for check in checks if check.status == "failed"]
    if any(not check.gate for check in failed):
        return "rejected"
    return "gate failed" if failed else "built"
