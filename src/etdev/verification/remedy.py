"""Source lines of operators that a runtime lacks, and help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from etdev.pipeline.project import Project
from etdev.pipeline.project.runtime_contents import Requirements, RuntimeContents, library_operators
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.lower_errors import decomposed, line_of
from etdev.runtime.stock import StockRuntime
from etdev.verification.checks.kernels import missing_operators

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_LIBRARIES = ("portable", "optimized", "quantized")


def explain_kernels(
    check: CheckResult,
    contents: RuntimeContents,
    required: Requirements,
    project: Project,
    target: str,
    model: ExportedModel,
    runtime: StockRuntime,
) -> CheckResult:
    """Add a location and help to a failed check *kernels*.

    The location is the lines of the model that need what is missing, or the key of the config.
    """
    if check.status != "failed":
        return check
    missing = missing_operators(contents, required)
    settings = project.config.targets[target].runtime
    if not missing:
        return check.model_copy(
            update={
                "where": project.where("targets", target, "runtime", "backends"),
                "hint": "add the backend to runtime.backends if the target's runtime has it, "
                "or leave out the partitioner that delegates to it",
            }
        )
    places = [
        f"{line} ({name})"
        for method, names in missing.items()
        if method in model.methods
        for name in names
        if (line := _model_line(project, model.methods[method].program, name))
    ]
    key = "operators" if settings.operators is not None else "kernels"
    libraries = _libraries({name for names in missing.values() for name in names}, runtime.operators)
    if key == "kernels" and settings.kernels is not None and libraries:
        hint = f"add {' or '.join(map(repr, libraries))} to runtime.kernels, or express the op by others in the model"
    else:
        hint = "express the op by others in the model, or name a runtime that has it in runtime.operators"
    where = "; ".join(dict.fromkeys(places)) or project.where("targets", target, "runtime", key)
    return check.model_copy(update={"where": where, "hint": hint})


def _libraries(operators: set[str], wheel: frozenset[str]) -> list[str]:
    """Return the kernel libraries that each have all of these operators."""
    return [library for library in _LIBRARIES if operators <= library_operators(library, wheel)]


def _model_line(project: Project, program: ExportedProgram, operator: str) -> str:
    """Return the user's line that needs an operator: ``model.py:12, in forward``; empty if unknown."""
    line = _first_line(project, [program], operator)
    if not line:
        with suppress(Exception):  # This only adds detail to a failure, so it must not raise.
            line = _first_line(project, decomposed([program]), operator)
    return line.strip(" ()")


def _first_line(project: Project, programs: Iterable[ExportedProgram], operator: str) -> str:
    """Return the first line that needs an operator.

    The out variant ``aten::view_copy.out`` is a node ``aten.view_copy.default`` or ``aten.view.default``.
    """
    programs = tuple(programs)
    namespace, _, rest = operator.partition("::")
    name = rest.partition(".")[0]
    spellings: Sequence[str] = (name, name.removesuffix("_copy"))
    lines = (line_of(project, programs, f"{namespace}.{spelling}.") for spelling in spellings)
    return next(filter(None, lines), "")
