"""All rungs of one artifact, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from etdev.config.models import Rung
from etdev.pipeline.artifacts import ExportedModel, Tensors
from etdev.pipeline.inputs import random_samples, read_samples
from etdev.pipeline.link import LinkedProgram
from etdev.pipeline.objects import object_place
from etdev.pipeline.project import Project
from etdev.pipeline.result import RUNGS, RungResult
from etdev.pipeline.usercode import UserCode
from etdev.pipeline.verify.accuracy import check_accuracy
from etdev.pipeline.verify.budget import check_budget
from etdev.pipeline.verify.file import Requirements, check_bytes, requirements
from etdev.pipeline.verify.kernels import check_kernels, target_runtime
from etdev.pipeline.verify.plan import check_existing, check_linked
from etdev.pipeline.verify.remedy import explain_kernels
from etdev.pipeline.verify.runtime import check_runtime
from etdev.pipeline.verify.subject import Subject
from etdev.program.footprint import planned_memory
from etdev.runtime.stock import ProgramFailureError, StockRuntime

NOT_IN_THIS_VERSION = "not in this version"


@dataclass(frozen=True)
class Candidate:
    """The file to verify and what it came from."""

    path: Path
    size: int
    """Bytes."""
    float_model: ExportedModel
    reference: ExportedModel
    """The quantized model before lowering, or ``float_model`` itself."""
    linked: LinkedProgram | None = None
    """What was written; None if that is not known any more."""


def verify_program(
    project: Project, user: UserCode, target: str, candidate: Candidate, runtime: StockRuntime
) -> tuple[RungResult, ...]:
    """Answer every rung for one file.

    Raises :class:`~etdev.errors.VerifyError` if the user's samples, metric or eager model fail.
    """
    answers = {rung: not_run(rung, NOT_IN_THIS_VERSION) for rung in RUNGS}
    answers["bytes"], found = check_bytes(candidate.path)
    memory = None if found is None else planned_memory(found)
    answers["budget"] = check_budget(project, target, candidate.size, memory)
    if found is None:
        answers["bytes"] = answers["bytes"].model_copy(
            update={"where": project.where("targets", target), "hint": f"build it again: `etdev build -t {target}`"}
        )
        answers["plan"] = not_run("plan", "the rung `bytes` failed")
        answers["kernels"] = not_run("kernels", "the rung `bytes` failed")
        obstacle = None
    else:
        linked = candidate.linked
        if linked is None:
            objects = object_place(project, target)
            plan = check_existing(found, objects, share_state=project.config.model.share_state)
        else:
            plan = check_linked(found, linked)
        answers["plan"] = _located(plan, project, target)
        required = requirements(found)
        contents = target_runtime(project, target, runtime.operators, runtime.backends)
        answers["kernels"] = explain_kernels(
            check_kernels(contents, required), contents, required, project, target, candidate.reference, runtime
        )
        obstacle = _cannot_run(required, runtime)
    if obstacle is None:
        obstacle = _load(project, target, candidate, runtime, answers)
    if obstacle is not None:
        answers["runtime"] = (
            answers["runtime"] if answers["runtime"].status == "failed" else not_run("runtime", obstacle)
        )
        answers["accuracy"] = not_run("accuracy", obstacle)
    else:
        _run(project, user, target, candidate, runtime, answers)
    return tuple(answers[rung] for rung in RUNGS)


def check_functions(project: Project, user: UserCode, target: str) -> None:
    """Find the samples, the sessions and the metric that verification will call, before anything slow happens.

    Raises :class:`~etdev.errors.LoadError` at the key that names what does not exist.
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


def not_run(rung: Rung, reason: str) -> RungResult:
    """The answer of a rung that could not be asked."""
    return RungResult(rung=rung, status="not run", summary=reason)


def _located(rung: RungResult, project: Project, target: str) -> RungResult:
    """The rung *plan*, with the place and the remedy of a failure."""
    if rung.status != "failed":
        return rung
    hint = "another planner or alignment is linked in an instant (targets.X.memory); report this with the model"
    return rung.model_copy(update={"where": project.where("targets", target, "memory"), "hint": hint})


def _cannot_run(required: Requirements, runtime: StockRuntime) -> str | None:
    """Why the wheel's runtime cannot run the file, if it lacks something that the file names."""
    operators = {name for names in required.operators.values() for name in names} - runtime.operators
    if operators:
        return f"the wheel's runtime has no kernel for {', '.join(sorted(operators))}"
    delegates = {name for names in required.delegates.values() for name in names}
    if delegates - runtime.backends:
        return f"the wheel's runtime has no backend {', '.join(sorted(delegates - runtime.backends))}"
    if delegates - runtime.usable_backends:
        names = ", ".join(sorted(delegates - runtime.usable_backends))
        return f"the wheel's runtime finds no library for its backend {names}"
    return None


def _load(
    project: Project, target: str, candidate: Candidate, runtime: StockRuntime, answers: dict[Rung, RungResult]
) -> str | None:
    """Open the file. What stands in the way fails the rung *runtime* and is returned in short."""
    try:
        found = runtime.load(candidate.path)
    except ProgramFailureError as error:
        problem, obstacle = f"the runtime refuses the file: {error}", "the runtime refuses the file"
    else:
        declared = sorted({*candidate.reference.signatures, *project.config.constants})
        if sorted(found) == declared:
            return None
        problem = f"the file has the methods {', '.join(sorted(found))}, the config declares {', '.join(declared)}"
        obstacle = "the file has other methods than the config"
    answers["runtime"] = RungResult(
        rung="runtime",
        status="failed",
        summary=problem,
        problems=(problem,),
        where=project.where("targets", target),
        hint=f"build it again: `etdev build -t {target}`",
    )
    return obstacle


def _run(
    project: Project,
    user: UserCode,
    target: str,
    candidate: Candidate,
    runtime: StockRuntime,
    answers: dict[Rung, RungResult],
) -> None:
    samples, weak = _samples(project, user, candidate.reference)
    subject = Subject(project, user, target, candidate.float_model, candidate.reference, samples, weak, candidate.path)
    answers["runtime"] = check_runtime(subject, runtime)
    gate = project.config.targets[target].verify.accuracy
    if gate is None:
        answers["accuracy"] = not_run("accuracy", "the config names no metric")
    elif answers["runtime"].status == "failed" and not answers["runtime"].gate:
        answers["accuracy"] = not_run("accuracy", "the rung `runtime` failed")
    else:
        runtime.load(candidate.path, shared=project.config.model.share_state)
        answers["accuracy"] = check_accuracy(project, user, target, gate, candidate.reference, runtime)


def _samples(
    project: Project, user: UserCode, model: ExportedModel
) -> tuple[dict[str, Iterable[Tensors]], frozenset[str]]:
    """Samples per method, and the methods for which they are random."""
    samples: dict[str, Iterable[Tensors]] = {}
    weak = set()
    for name, signature in model.signatures.items():
        declared = project.config.methods.get(name)
        if declared is None or declared.samples is None:
            samples[name] = random_samples(signature)
            weak.add(name)
            continue
        key = ("methods", name, "samples")
        where = project.where(*key)
        function = user.get(declared.samples, project.base(*key), where)
        samples[name] = read_samples(user, function, declared.samples, signature, where)
    return samples, frozenset(weak)
