"""All checks of one artifact, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from etdev.config.models import CheckName
from etdev.pipeline.project import Project
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.progress import Count, uncounted
from etdev.pipeline.project.runtime_contents import requirements, target_runtime
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.result import CHECKS, CheckResult, MethodResult
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.inputs import random_samples, read_samples
from etdev.pipeline.stages.link import LinkedProgram
from etdev.program import Program
from etdev.program.analysis.inplace import DEFAULT, Donor
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.stock import StockRuntime
from etdev.verification.checks.budget import check_budget
from etdev.verification.checks.bytes import check_bytes
from etdev.verification.checks.growth import check_growth
from etdev.verification.checks.kernels import check_kernels
from etdev.verification.checks.placement import check_placement
from etdev.verification.checks.plan import check_existing, check_linked
from etdev.verification.execution import run_program
from etdev.verification.limits import Measured
from etdev.verification.remedy import explain_kernels
from etdev.verification.subject import Subject


@dataclass(frozen=True)
class Candidate:
    """A file to verify, and the models that it was built from."""

    path: Path
    size: int
    """Bytes."""
    float_model: ExportedModel
    reference: ExportedModel
    """The quantized model before lowering, or ``float_model`` itself."""
    linked: LinkedProgram | None = None
    """The link's result; None if it is not available any more."""
    inplace: Mapping[str, tuple[Donor, ...]] = field(default_factory=lambda: DEFAULT)
    """Kernels that may write their output over an operand."""
    methods: tuple[MethodResult, ...] = ()
    """How lowering split each method; empty if unknown."""
    data: tuple[Path, ...] = ()
    """Data files of the program."""
    lookups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Per method, the names of the data that its delegates look up, as emission noted them."""

    def measured(self, program: Program | None) -> Measured:
        """Return the figures' sources for limits; ``program`` is the file's content, or None if it cannot be read."""
        return Measured(self.path, self.size, program, self.methods)


def verify_program(
    project: Project,
    user: UserCode,
    target: str,
    candidate: Candidate,
    runtime: StockRuntime,
    device_map: DeviceMap = NO_MAP,
    *,
    jobs: int = 1,
    count: Count = uncounted,
) -> tuple[CheckResult, ...]:
    """Answer every check for one file.

    ``device_map`` maps the program's devices to those of this machine. The metric's samples run on ``jobs`` workers,
    and ``count`` is called for each. Raises :class:`~etdev.errors.VerifyError` if the user's samples, metric or eager
    model fail.
    """
    check, found = check_bytes(candidate.path, candidate.data, candidate.lookups)
    if found is None or check.status == "failed":
        answers = {name: not_run(name, "the check `bytes` failed") for name in CHECKS}
        answers["bytes"] = check.model_copy(
            update={"where": project.where("targets", target), "hint": f"build it again: `etdev build {target}`"}
        )
        answers["budget"] = check_budget(project, target, candidate.measured(None))
        return tuple(answers[name] for name in CHECKS)
    answers = {"bytes": check, **_read(project, target, candidate, found)}
    required = requirements(found)
    contents = target_runtime(project, target, runtime.operators, runtime.backends)
    answers["kernels"] = explain_kernels(
        check_kernels(contents, required), contents, required, project, target, candidate.reference, runtime
    )
    subject = replace(_subject(project, user, target, candidate), jobs=jobs, count=count)
    answers |= run_program(subject, found, required, runtime, device_map, candidate.linked, candidate.inplace)
    return tuple(answers[name] for name in CHECKS)


def _read(project: Project, target: str, candidate: Candidate, found: Program) -> dict[CheckName, CheckResult]:
    """Answer the checks *plan*, *placement*, *budget* and *growth*, which only read the file."""
    settings = project.config.targets[target]
    linked = candidate.linked
    if linked is None:
        objects = object_place(project, target)
        plan = check_existing(found, objects, share_state=project.config.model.share_state)
    else:
        plan = check_linked(found, linked)
    placement = check_placement(found, alignment=settings.memory.alignment, capacity=settings.budget.memory)
    return {
        "plan": _located(plan, project, target),
        "placement": _with_remedy(placement, project, target),
        "budget": check_budget(project, target, candidate.measured(found)),
        "growth": check_growth(project, target, candidate.measured(found)),
    }


def check_functions(project: Project, user: UserCode, target: str) -> None:
    """Find the samples, sessions and metric that verification will call, so that a missing one fails early.

    Raises :class:`~etdev.errors.MismatchError` at the key that names a missing function.
    """
    wanted: dict[tuple[str, ...], str] = {
        ("methods", name, "samples"): method.samples
        for name, method in project.config.methods.items()
        if method.samples is not None
    }
    settings = project.config.targets[target].verify
    if settings.accuracy is not None:
        wanted["targets", target, "verify", "accuracy", "fn"] = settings.accuracy.fn
    if settings.sessions is not None:
        wanted["targets", target, "verify", "sessions"] = settings.sessions
    for key, entry in wanted.items():
        user.get(entry, project.base(*key), project.where(*key))


def not_run(check: CheckName, reason: str) -> CheckResult:
    """Return the result of a check that could not run."""
    return CheckResult(name=check, status="not run", summary=reason)


def _located(check: CheckResult, project: Project, target: str) -> CheckResult:
    """Return the check *plan*, with a location and help if it failed."""
    if check.status != "failed":
        return check
    hint = "another planner or alignment is linked in an instant (targets.X.memory); report this with the model"
    return check.model_copy(update={"where": project.where("targets", target, "memory"), "hint": hint})


def _with_remedy(check: CheckResult, project: Project, target: str) -> CheckResult:
    """Return the check *placement*, with a location and help if it failed.

    A missed gate gets neither: the check *budget* reports them for the limit.
    """
    if check.status != "failed" or check.gate:
        return check
    where = project.where("targets", target, "partitioners")
    hint = f"build it again (`etdev build {target}`); if that does not help, report this with the model"
    return check.model_copy(update={"where": where, "hint": hint})


def _subject(project: Project, user: UserCode, target: str, candidate: Candidate) -> Subject:
    samples, weak = _samples(project, user, candidate.reference)
    return Subject(
        project, user, target, candidate.float_model, candidate.reference, samples, weak, candidate.path, candidate.data
    )


def _samples(
    project: Project, user: UserCode, model: ExportedModel
) -> tuple[dict[str, Iterable[Tensors]], frozenset[str]]:
    """Return the samples per method, and the methods whose samples are random."""
    samples: dict[str, Iterable[Tensors]] = {}
    weak: set[str] = set()
    for name, signature in model.signatures.items():
        declared = project.config.methods.get(name)
        if declared is None or declared.samples is None:
            samples[name] = _Samples(partial(random_samples, signature))
            weak |= {name} if signature.inputs else set()
            continue
        key = ("methods", name, "samples")
        where = project.where(*key)
        function = user.get(declared.samples, project.base(*key), where)
        samples[name] = _Samples(partial(read_samples, user, function, declared.samples, signature, where))
    return samples, frozenset(weak)


class _Samples:
    """Samples that each iteration makes again; none is kept."""

    def __init__(self, make: Callable[[], Iterator[Tensors]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Tensors]:
        return self._make()
