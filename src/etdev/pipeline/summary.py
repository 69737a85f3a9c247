"""From artifacts to the parts of a :class:`~etdev.pipeline.result.BuildResult`."""

from __future__ import annotations

from pathlib import Path

from etdev.pipeline.artifacts import EmittedProgram, ExportedModel, LoweredModel
from etdev.pipeline.project import Project
from etdev.pipeline.result import BuildResult, MethodResult, TargetResult, UndelegatedOps
from etdev.pipeline.versions import versions


def start_result(project: Project, targets: tuple[TargetResult, ...]) -> BuildResult:
    """The result of a run over these targets."""
    return BuildResult(
        project=project.name,
        config=str(project.loaded.path),
        profile=project.loaded.profile,
        versions=versions(),
        targets=targets,
    )


def describe_methods(
    lowered: LoweredModel, emitted: EmittedProgram, exported: ExportedModel
) -> tuple[MethodResult, ...]:
    """What each method takes, and how it was split between delegates and kernels."""
    return tuple(
        MethodResult(
            name=part.method,
            inputs=tuple(
                f"{item.name}: {item.dtype} [{', '.join(map(str, item.shape))}]"
                for item in exported.signatures[part.method].inputs
            ),
            stateful=part.method in lowered.stateful,
            delegate_calls=dict(part.calls),
            delegated_ops=part.delegated_ops,
            undelegated=tuple(UndelegatedOps(op=item.op, count=item.count) for item in part.undelegated),
            operators=emitted.operators[part.method],
        )
        for part in lowered.delegations
    )


def display_path(project: Project, path: Path) -> str:
    """Relative to the config's folder where the file lies below it."""
    root = project.loaded.root
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
