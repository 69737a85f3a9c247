"""Subjects of the checks: a file, and the target that the file was built for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from etdev import backends
from etdev.config.models import Verify
from etdev.execution.runtimes import Runtime, stock_obstacle
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import Count, uncounted
from etdev.pipeline.project.runtime_contents import Requirements, requirements
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.result import CheckResult, MethodResult
from etdev.pipeline.results.result_parts import MemoryOutside
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.inputs import make_inputs, random_samples, samples_at
from etdev.pipeline.stages.link import LinkedProgram
from etdev.program import Program
from etdev.program.analysis.inplace import DEFAULT, Donor
from etdev.runtime.device_map import DeviceMap
from etdev.runtime.stock import StockRuntime
from etdev.verification.compare import RELATIVE_TOLERANCE
from etdev.verification.limits import Measured
from etdev.verification.output_findings import Problem
from etdev.verification.outside import measure_outside
from etdev.verification.read_back import Contents, read_contents


@dataclass(frozen=True)
class Effort:
    """Limits on the number of calls that a check makes, and on the limits that it checks."""

    samples: int | None = None
    """Maximum number of samples for each method; None means all."""
    session_calls: int | None = None
    """Maximum number of calls in all sessions; None means all."""
    extremes: bool = True
    """True if methods also run at the ends of dynamic ranges."""
    limits: bool = True
    """True if the check also compares with the config's own limits, in addition to etdev's defaults."""


@dataclass(frozen=True)
class Alteration:
    """A difference between a file and the file that the build wrote."""

    text: str
    report: str
    """Path of the build's report, for error messages."""


@dataclass(frozen=True)
class BuiltTarget:
    """A target of a config: its file, and the models that the file was built from."""

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
    """Operators whose kernels may write an output over an operand, each with the permitted pairs."""
    methods: tuple[MethodResult, ...] = ()
    """Results of lowering for each method, such as its delegates and ops; empty if unknown."""
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    lookups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the data that each method's delegates look up, by method, as recorded at emission."""
    alteration: Alteration | None = None
    """Difference from the file that was built; None if there is none or if it is unknown."""
    since_built: str | None = None
    """Text on changes of the model since the file was built, with advice; None if there are none."""
    jobs: int = 1
    """Number of workers that run the metric's samples."""
    count: Count = uncounted
    """Function that is called with the progress of the metric's calls."""
    effort: Effort = Effort()

    def load(self, runtime: Runtime, *, shared: bool = False) -> tuple[str, ...]:
        """Load the program into a runtime; parameters and result are those of :meth:`Runtime.load`."""
        return runtime.load(self.path, shared=shared, data=self.data)

    def measured(self, program: Program | None) -> Measured:
        """Return the file with the data from which its figures are computed.

        ``program`` is the file's content; None if it cannot be read.
        """
        return Measured(self.path, self.size, program, self.methods)

    @property
    def settings(self) -> Verify:
        """The config's table ``[targets.X.verify]``."""
        return self.project.config.targets[self.target].verify

    @property
    def compute_dtype(self) -> str:
        """Dtype of the lowest precision in which one of the target's backends computes float32."""
        steps = self.project.config.targets[self.target].partitioners
        dtypes = [backends.get(step.backend).compute_dtype for step in steps]
        return max(dtypes, key=lambda dtype: RELATIVE_TOLERANCE[dtype], default="float32")

    @property
    def quantized(self) -> bool:
        """True if the reference is a quantized model, not the float model."""
        return self.reference is not self.float_model

    def samples(self, method: str) -> Iterator[Tensors]:
        """Return a new iterator over the samples of a method: the config's, or random ones."""
        signature, entry = self.reference.signatures[method], self._declared(method)
        if entry is None:
            return random_samples(signature)
        return samples_at(self.project, self.user, entry, signature, ("methods", method, "samples"))

    def representative_calls(self) -> Iterator[tuple[str, Tensors]]:
        """Yield a call of each method with its first sample, and one at its largest sizes if it has dynamic shapes."""
        for method, signature in self.reference.signatures.items():
            sample = next(iter(self.samples(method)), None)
            if sample is not None:
                yield method, sample
            if signature.dims or sample is None:
                yield method, make_inputs(signature, signature.largest())

    @property
    def weak(self) -> frozenset[str]:
        """Names of the methods that run on random samples, because the config does not set samples."""
        signatures = self.reference.signatures
        return frozenset(name for name in signatures if signatures[name].inputs and self._declared(name) is None)

    def _declared(self, method: str) -> str | None:
        declared = self.project.config.methods.get(method)
        return None if declared is None else declared.samples

    def place(self, *key: str) -> str:
        """Return the location in the config of a key of the target's table."""
        return self.project.where("targets", self.target, *key)

    def remedy(self, where: str, hint: str) -> dict[str, Any]:
        """Return ``where`` and ``hint`` of the result for a program that does not compute the same as the model.

        If the model has changed since the build, that is the likely cause, and the hint states this change.
        """
        if self.since_built is None:
            return {"where": where, "hint": hint}
        return {"where": self.place(), "hint": self.since_built}

    def broken(self, text: str) -> Problem:
        """Return the problem for a program that does not compute the same as the model.

        The hint names likely causes other than the inputs.
        """
        if self.project.config.targets[self.target].partitioners:
            hint = "build a target without this partitioner to see if the backend is the cause"
            return Problem(text, ("targets", self.target, "partitioners"), hint)
        hint = (
            "look for code that export makes constant: branches on values, numbers read from tensors, state "
            "outside buffers"
        )
        return Problem(text, ("targets", self.target), hint)


@dataclass(frozen=True)
class Subject:
    """A file to verify; each check lists in ``needs`` the parts that it uses, since other parts may be missing."""

    path: Path
    """The program's file."""
    data: tuple[Path, ...]
    """Data files of the program."""
    contents: Contents
    """Contents of the files, read back."""
    stock: StockRuntime
    """The runtime of the ExecuTorch wheel; starts at its first use."""
    device_map: DeviceMap
    """Local devices for the program's devices."""
    origin: BuiltTarget | None = None
    """The target that the file was built for; None for a file without a config."""
    results: dict[str, CheckResult] = field(default_factory=dict)
    """Results of the checks that have run, by name."""

    @classmethod
    def read(cls, path: Path, data: tuple[Path, ...], stock: StockRuntime, device_map: DeviceMap) -> Subject:
        """Return the subject for a file without a config."""
        return cls(path, data, read_contents(path, data), stock, device_map)

    @classmethod
    def read_built(cls, built: BuiltTarget, stock: StockRuntime, device_map: DeviceMap) -> Subject:
        """Return the subject for the file of a target."""
        contents = read_contents(built.path, built.data, built.lookups)
        return cls(built.path, built.data, contents, stock, device_map, built)

    @property
    def found(self) -> Program | None:
        """The program; None if the file cannot be read, or if the file belongs to a target and lacks data."""
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
        """Memory of each method outside of its planned buffers. A text says why it cannot be measured.

        Only for checks with ``Need.CONFIG`` and ``Need.PROGRAM``.
        """
        return measure_outside(self.path, self.data, self.program, self.built.representative_calls())

    @property
    def stock_obstacle(self) -> str | None:
        """Reason why the stock runtime cannot run the program; None if it can."""
        return stock_obstacle(self.program, self.required, self.stock)

    def broken(self, *checks: str) -> bool:
        """Return True if one of these checks found the program broken; a missed limit does not count."""
        found = (self.results[name] for name in checks if name in self.results)
        return any(result.status == "failed" and not result.gate for result in found)
