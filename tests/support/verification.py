"""Verifying one program under many configs: it is built once, and judged with other samples, gates and runtimes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from etdev.kernel_trials.custom_ops import resolve_ops
from etdev.pipeline.api import open_project
from etdev.pipeline.project.options import check_device_map
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.progress import Count, Silent, StageClock, uncounted
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.project.runtime_contents import Requirements, requirements
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.emit import emit_object
from etdev.pipeline.stages.link.linking import link_program
from etdev.pipeline.stages.lower import lower_model
from etdev.pipeline.stages.models import Models
from etdev.pipeline.stages.staging import StagedFile
from etdev.pipeline.stages.write import write_program
from etdev.program import Program
from etdev.verification.order import verify
from etdev.verification.subject import BuiltTarget, Subject
from support.projects import write_project
from support.stock import shared_runtime


@dataclass(frozen=True)
class Prepared:
    """A built program with the models that it came from."""

    config: Path
    target: str
    candidate: BuiltTarget

    def judge(
        self,
        *overrides: str,
        runtime: Any = None,
        device_map: str | None = None,
        jobs: int = 1,
        count: Count = uncounted,
        **changes: Any,
    ) -> dict[str, CheckResult]:
        """Every check's answer with these ``--set`` texts, this ``--device-map`` and so many ``--jobs``.

        ``changes`` replace fields of the built target, or what its file is said to ask the runtime for (``operators``,
        ``delegates``).
        """
        project = open_project(self.config, overrides=overrides, environ={})
        required = {key: changes.pop(key) for key in ("operators", "delegates") if key in changes}

        def claimed(found: Program) -> Requirements:
            return replace(requirements(found), **required)

        with quiet_libraries(), UserCode() as user, patch("etdev.verification.subject.requirements", claimed):
            devices = check_device_map(device_map)
            stock = runtime or shared_runtime()
            # Copies of the models do not know the outputs of calls in other tests.
            model, reference = self.candidate.float_model, self.candidate.reference
            fresh = replace(model)
            models = {"float_model": fresh, "reference": fresh if reference is model else replace(reference)}
            changes = {**models, **changes}
            built = replace(self.candidate, project=project, user=user, jobs=jobs, count=count, **changes)
            checks = verify(Subject.read_built(built, stock, devices))
        return {check.name: check for check in checks}


def prepare(folder: Path, target: str, config: str, **files: str) -> Prepared:
    """Build one target of a small project, without verifying it."""
    path = write_project(folder, config, **files)
    project = open_project(path, environ={})
    with quiet_libraries(), UserCode() as user:
        float_model, reference = Models(project, user).prepare(target, StageClock(target, Silent()))
        lowered = lower_model(project, reference, target)
        objects = emit_object(project, lowered, reference, target, object_place(project, target))
        linked = link_program(project, target, user, objects, reference.signatures, resolve_ops(project, target, user))
        with StagedFile(project.artifact(target)) as staged:
            written = write_program(linked.linked.program, staged)
            place = staged.accept()
        size, models = written.size, (float_model, reference)
        candidate = BuiltTarget(project, user, target, place, size, *models, linked, notes=linked.notes)
    return Prepared(path, target, candidate)
