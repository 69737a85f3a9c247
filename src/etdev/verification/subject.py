"""Input of the checks: a file and, if known, the target that the file was built for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from etdev import backends
from etdev.config.models import Verify
from etdev.execution.float_ends import Ends, quantized_inputs
from etdev.execution.runtimes import Runtime, stock_obstacle
from etdev.inspection.naming import dtype_name
from etdev.pipeline.project import Project
from etdev.pipeline.project.commands import build_command
from etdev.pipeline.project.places import native_library_places
from etdev.pipeline.project.progress import Count, uncounted
from etdev.pipeline.project.runtime_contents import Requirements, requirements
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.result import CheckResult, MethodResult
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.inputs import make_inputs, random_samples, samples_at
from etdev.pipeline.stages.link.linking import LinkedProgram
from etdev.program import Program
from etdev.program.analysis.fixed_point import output_steps
from etdev.program.analysis.index_ops import index_ops
from etdev.program.analysis.inplace import DEFAULT, Donor
from etdev.program.analysis.quantized_ends import quantized_ends
from etdev.program.data_files.joined import names_in
from etdev.program.sidecar import MethodNotes
from etdev.program.sidecar.records import DelegateRecord
from etdev.runtime.device_map import DeviceMap
from etdev.runtime.stock import StockRuntime
from etdev.verification.compare import RELATIVE_TOLERANCE, Difference
from etdev.verification.limits import Measured
from etdev.verification.output_findings import Problem
from etdev.verification.outside import measure_outside
from etdev.verification.read_back import Contents, read_contents
from etdev.verification.remembered import RememberedCalls

_CREATION = "XNN Runtime creation failed"
_RESIZED = "resize a static tensor"
_RESIZED_BY_XNNPACK = (
    "XNNPACK's delegates in ExecuTorch may confuse the layouts of quantized and float ops: set the partitioner's "
    'option `precisions` to ["static_quant"], or its option `per_op_mode` to true'
)
"""Help for an error of ExecuTorch 1.5.1 in some delegates of XNNPACK.

The error occurs if a delegate contains an int8 convolution before a float op, such as softplus.
"""


@dataclass(frozen=True)
class Effort:
    """Extent of a check: the number of its calls, and the limits that it checks."""

    samples: int | None = None
    """Maximum number of samples for each method; None means all."""
    session_calls: int | None = None
    """Maximum number of calls in all sessions; None means all."""
    extremes: bool = True
    """True if methods also run at the ends of dynamic ranges."""
    limits: bool = True
    """True if the check applies the config's own limits; False if it applies only etdev's default limits."""


@dataclass(frozen=True)
class Alteration:
    """A difference between the current file and the file that the build wrote."""

    text: str
    report: str
    """Path of the build's report, for error messages."""


@dataclass(frozen=True)
class BuiltTarget:
    """A target of a config, with its built file and the models that the file was built from."""

    project: Project
    user: UserCode
    target: str
    path: Path
    """The program's file."""
    size: int
    """Size of the program's file in bytes."""
    float_model: ExportedModel
    reference: ExportedModel
    """The quantized model before lowering, or ``float_model`` itself if the target is not quantized."""
    linked: LinkedProgram | None = None
    """The link's result; None if the result is no longer available."""
    inplace: Mapping[str, tuple[Donor, ...]] = field(default_factory=lambda: DEFAULT)
    """Maps an operator to the operands that its outputs may overwrite."""
    methods: tuple[MethodResult, ...] = ()
    """Results of lowering for each method, such as its delegates and ops; empty if unknown."""
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    weights: Path | None = None
    """The data file of the config's ``external_weights``, which is one of ``data``; None without this key."""
    lookups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps a method to the names of the data that its delegates look up, as recorded at emission."""
    records: Mapping[str, DelegateRecord] = field(default_factory=dict)
    """Maps the SHA-256 of a delegate's blob to the record of the delegate; empty without an object program."""
    notes: Mapping[str, MethodNotes] = field(default_factory=dict)
    """Maps a method to its notes in the sidecar, with instruction positions in the program's file; empty if unknown."""
    alteration: Alteration | None = None
    """Difference between this file and the file that the build wrote; None if no difference is known."""
    since_built: str | None = None
    """Description, with advice, of changes to the model since the build; None if the model has not changed."""
    jobs: int = 1
    """Number of workers for the metric's samples."""
    ends: Ends = field(default_factory=dict)
    """Quantized inputs and outputs of the file, for the methods whose ``io`` in the config requires them."""
    steps: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Maps a method and an output position to the scale of the output's integers.

    Contains only outputs that kernels compute in fixed point.
    """
    dtypes: frozenset[str] = frozenset()
    """Dtypes of the program's tensors, without those of constants."""
    index_ops: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps each method that computes an index to the names of these ops, such as ``argmax``."""
    count: Count = uncounted
    """Function that reports the progress of the metric's calls."""
    effort: Effort = Effort()

    def load(self, runtime: Runtime, *, shared: bool = False) -> tuple[str, ...]:
        """Load the program into a runtime; parameters and result are those of :meth:`Runtime.load`."""
        return runtime.load(self.path, shared=shared, data=self.data)

    def measured(self, program: Program | None) -> Measured:
        """Return the file, with the data from which its figures are computed.

        ``program`` is the file's content; None if it cannot be read.
        """
        banks = self.project.config.targets[self.target].memory.bank_names
        pooled = names_in(self.weights if program is not None else None)
        return Measured(self.path, self.size, program, self.methods, self.records, banks, self.notes, pooled)

    @property
    def settings(self) -> Verify:
        """The config's table ``[targets.X.verify]``."""
        return self.project.config.targets[self.target].verify

    @property
    def compute_dtype(self) -> str:
        """Least precise float dtype in which the program or any of the target's backends computes."""
        steps = self.project.config.targets[self.target].partitioners
        dtypes = {backends.get(step.backend).compute_dtype for step in steps} | self.dtypes
        return max(dtypes & RELATIVE_TOLERANCE.keys(), key=lambda dtype: RELATIVE_TOLERANCE[dtype], default="float32")

    @property
    def quantized(self) -> bool:
        """True if ``reference`` is a quantized model, False if it is the float model."""
        return self.reference is not self.float_model

    @property
    def build_command(self) -> str:
        """The command that builds the target again, for advice."""
        return build_command(self.project, self.target)

    def samples(self, method: str) -> Iterator[Tensors]:
        """Return a new iterator over the samples of a method. The samples are random if the config does not set any."""
        signature, entry = self.reference.signatures[method], self._declared(method)
        if entry is None:
            return random_samples(signature)
        return samples_at(self.project, self.user, entry, signature, ("methods", method, "samples"))

    def counts_elements(self, difference: Difference) -> bool:
        """Return True if the share of elements that agree is what counts for an output.

        This is so for integers and truth values and, with ``min_close``, for floats.
        """
        return difference.whole or self.settings.min_close is not None

    def least_share(self, *, whole: bool) -> tuple[str, float | None]:
        """Return the key of the config for this share of an output, and its value. ``whole`` is that of the output."""
        if whole:
            return "min_agreement", self.settings.min_agreement
        return "min_close", self.settings.min_close

    def representative_calls(self) -> Iterator[tuple[str, Tensors]]:
        """Yield calls of each method as ``(name, inputs)``. The inputs have the types that the program takes.

        For each method, yield a call with its first sample. If the method has dynamic shapes or no sample, also yield a
        call with random inputs of the largest sizes.
        """
        for method, signature in self.reference.signatures.items():
            sample = next(iter(self.samples(method)), None)
            if sample is not None:
                yield method, quantized_inputs(self.ends, method, sample)
            if signature.dims or sample is None:
                yield method, quantized_inputs(self.ends, method, make_inputs(signature, signature.largest()))

    @property
    def weak(self) -> frozenset[str]:
        """Names of the methods that run on random samples because the config does not set any samples."""
        signatures = self.reference.signatures
        return frozenset(name for name in signatures if signatures[name].inputs and self._declared(name) is None)

    def _declared(self, method: str) -> str | None:
        declared = self.project.config.methods.get(method)
        return None if declared is None else declared.samples

    def place(self, *key: str) -> str:
        """Return the config location of ``key``, a key in the target's table."""
        return self.project.where("targets", self.target, *key)

    def remedy(self, where: str, hint: str) -> dict[str, Any]:
        """Return the fields ``where`` and ``hint`` of a failed comparison of the program with the model.

        If the model has changed since the build, that change is the likely cause. The fields then describe that change
        instead.
        """
        if self.since_built is None:
            return {"where": where, "hint": hint}
        return {"where": self.place(), "hint": self.since_built}

    def broken(self, text: str) -> Problem:
        """Return ``text`` as a problem of a program that does not compute the same as the model.

        The problem's hint suggests likely causes in the target or the model.
        """
        steps = self.project.config.targets[self.target].partitioners
        if steps:
            hint = "build a target without this partitioner to see if the backend is the cause"
            if self.quantized and _CREATION in text:
                hint += ", or keep modules with extreme weights in float (`keep_float`)"
            if _RESIZED in text and any(step.backend == "xnnpack" for step in steps):
                hint = _RESIZED_BY_XNNPACK
            return Problem(text, ("targets", self.target, "partitioners"), hint)
        hint = (
            "look for code that export makes constant: branches on values, numbers read from tensors, state "
            "outside buffers"
        )
        return Problem(text, ("targets", self.target), hint)


@dataclass(frozen=True)
class Subject:
    """A file to verify, with all data that checks use.

    Some data may be missing. Each check lists the data that it requires in ``needs``.
    """

    path: Path
    """The program's file."""
    data: tuple[Path, ...]
    """Data files of the program."""
    contents: Contents
    """Contents of the files, read back."""
    stock: StockRuntime
    """The runtime of the ExecuTorch wheel; starts at its first use."""
    device_map: DeviceMap
    """Maps the program's devices to devices of this machine."""
    origin: BuiltTarget | None = None
    """The target that the file was built for; None for a file without a config."""
    results: dict[str, CheckResult] = field(default_factory=dict)
    """Maps the name of each check that has run to its result."""

    @classmethod
    def read(cls, path: Path, data: tuple[Path, ...], stock: StockRuntime, device_map: DeviceMap) -> Subject:
        """Return the subject for a file without a config."""
        return cls(path, data, read_contents(path, data), stock, device_map)

    @classmethod
    def read_built(cls, built: BuiltTarget, stock: StockRuntime, device_map: DeviceMap) -> Subject:
        """Return the subject for the file of a target."""
        contents = read_contents(built.path, built.data, built.lookups)
        if contents.program is not None:
            steps = output_steps(contents.program) if built.quantized else {}
            built = replace(built, ends=_wanted_ends(built, contents.program), steps=steps)
            built = replace(built, dtypes=_dtypes(contents.program), index_ops=index_ops(contents.program))
        return cls(built.path, built.data, contents, stock, device_map, built)

    @property
    def found(self) -> Program | None:
        """The program; None if the file cannot be read, or if a file built for a target lacks data."""
        return None if self.contents.problems and self.origin is not None else self.contents.program

    @property
    def program(self) -> Program:
        """The program, for checks that need ``Need.PROGRAM``."""
        assert self.found is not None, "a check that uses the program must have `Need.PROGRAM` in its `needs`"
        return self.found

    @property
    def built(self) -> BuiltTarget:
        """The target with its config and models, for checks that need ``Need.CONFIG``."""
        assert self.origin is not None, "a check that uses the config must have `Need.CONFIG` in its `needs`"
        return self.origin

    @property
    def required(self) -> Requirements:
        """Operators and delegates that the program needs from a runtime."""
        return requirements(self.program)

    @cached_property
    def outside(self) -> tuple[MemoryOutside, ...] | str:
        """Memory of each method outside of its planned buffers, or the reason why the measurement failed.

        Only checks with ``Need.CONFIG`` and ``Need.PROGRAM`` may use this property.
        """
        calls, libraries = self.built.representative_calls(), native_library_places(self.built.project)
        return measure_outside(self.path, self.data, self.program, calls, libraries)

    @cached_property
    def stock_calls(self) -> RememberedCalls:
        """The stock runtime with remembered outputs, so that a call that several checks make runs only once."""
        return RememberedCalls(self.stock)

    @property
    def stock_obstacle(self) -> str | None:
        """Reason why the stock runtime cannot run the program; None if it can."""
        return stock_obstacle(self.program, self.required, self.stock)

    def broken(self, *checks: str) -> bool:
        """Return True if one of these checks found a broken program. Missed limits do not count."""
        found = (self.results[name] for name in checks if name in self.results)
        return any(result.status == "failed" and not result.gate for result in found)


def _dtypes(program: Program) -> frozenset[str]:
    found = (tensor for plan in program.execution_plan for _, tensor in plan.tensors() if not tensor.is_constant)
    return frozenset(dtype_name(tensor.scalar_type) for tensor in found)


def _wanted_ends(built: BuiltTarget, program: Program) -> Ends:
    settings = built.project.config.targets[built.target].io
    found = quantized_ends(program)
    return {name: found.get(name, ()) for name in settings if settings[name].quantized}
