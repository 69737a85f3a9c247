"""Check *kernels*: compares the operators and backends that a program needs with those in the target's runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.backends.kernels import listed_operators
from etdev.backends.reference import DELEGATE_ID
from etdev.errors import MissingRequirementError
from etdev.pipeline.project import Project
from etdev.pipeline.project.runtime_contents import (
    _BACKENDS,
    _PRIMITIVE,
    WHEEL,
    Requirements,
    RuntimeContents,
    library_operators,
    target_runtime,
)
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.lower_errors import decomposed, line_of
from etdev.verification.answers import Finding, not_run
from etdev.verification.check import Check, Need
from etdev.verification.subject import BuiltTarget, Subject

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_LIBRARIES = ("portable", "optimized", "quantized", "cortex-m")


class KernelsCheck(Check):
    """Does the target's runtime have every operator and backend that the program needs?"""

    name = "kernels"
    needs = (Need.PROGRAM,)

    def run(self, subject: Subject) -> CheckResult:
        """Compare the file with the runtime that the config describes or, by default, with the wheel's runtime."""
        if subject.origin is None:
            return self._of_file(subject)
        built, stock, required = subject.origin, subject.stock, subject.required
        contents = target_runtime(built.project, built.target, stock.operators, stock.backends)
        found = check_kernels(contents, required)
        if found.status != "failed":
            return found.result(self.name)
        where, hint = _remedy(built, missing_operators(contents, required), stock.operators)
        return found.result(self.name, where=where, hint=hint)

    def _of_file(self, subject: Subject) -> CheckResult:
        """Compare the file with the wheel's runtime, because the file has no config.

        If the wheel is not installed, the check does not run.
        """
        package = find_packages("executorch", remedy=BUILD_EXTRA)
        if not package.available:
            hint = f"run `{package.remedy}` to install a runtime for the comparison"
            return not_run(self.name, package.reason, hint=hint)
        try:
            contents = RuntimeContents(subject.stock.operators, subject.stock.backends, closed=False)
        except MissingRequirementError as error:
            return not_run(self.name, error.message, hint=error.hint)
        found = check_kernels(contents, subject.required)
        if found.status == "not run":
            named = {name for names in subject.required.delegates.values() for name in names}
            unknown = ", ".join(sorted(named - contents.backends))
            return not_run(self.name, f"the wheel's runtime does not have {unknown}" if unknown else found.summary)
        hint = "if the file is for another runtime, describe that runtime in a config: `targets.NAME.runtime`"
        return found.result(self.name, hint=hint)


def check_kernels(contents: RuntimeContents, required: Requirements) -> Finding:
    """Compare the operators and backends that each method needs with those of the runtime; return the finding."""
    problems = []
    unknown = set()
    missing = missing_operators(contents, required)
    if missing and contents.operators_label == WHEEL and _all_of_cortex_m(missing):
        return Finding(
            "not run",
            f"{WHEEL} lacks ExecuTorch's library cortex-m, which the program needs; list the libraries of the target's "
            "runtime in `runtime.kernels`",
        )
    for method, names in missing.items():
        problems.append(f"method {method!r} needs operators that {contents.operators_label} lacks: {', '.join(names)}")
    for method, ids in required.delegates.items():
        absent = sorted(set(ids) - contents.backends)
        lacking = [name for name in absent if name != DELEGATE_ID]
        if lacking and contents.closed:
            problems.append(
                f"method {method!r} needs backends that {contents.backends_label} lacks: {', '.join(lacking)}"
            )
        unknown.update(absent)
    if unknown and not problems:
        others = ", ".join(sorted(unknown - {DELEGATE_ID}))
        reason = f"neither {contents.backends_label} nor {_BACKENDS} has {others}"
        return Finding(
            "not run",
            reason if others else f"the backend {DELEGATE_ID} is etdev's own, and no ExecuTorch runtime has it",
        )
    return Finding.of(problems, _summary(contents, required))


def _all_of_cortex_m(missing: Mapping[str, Sequence[str]]) -> bool:
    return {name for names in missing.values() for name in names} <= listed_operators("cortex-m")


def _summary(contents: RuntimeContents, required: Requirements) -> str:
    count = len({name for names in required.operators.values() for name in names})
    used = sorted({name for ids in required.delegates.values() for name in ids})
    text = f"{count} operator{'s' * (count != 1)}"
    if used and contents.operators_label == contents.backends_label:
        text += f" and {', '.join(used)}"
    text += f" in {contents.operators_label}"
    if used and contents.operators_label != contents.backends_label:
        text += f", {', '.join(used)} in {contents.backends_label}"
    return text


def missing_operators(contents: RuntimeContents, required: Requirements) -> dict[str, list[str]]:
    """Map each method to the sorted operators that the runtime lacks. Omit methods without missing operators."""
    missing = {
        method: sorted(name for name in names if not _has_operator(contents, name))
        for method, names in required.operators.items()
    }
    return {method: names for method, names in missing.items() if names}


def _has_operator(contents: RuntimeContents, name: str) -> bool:
    return contents.operators is None or name in contents.operators or _PRIMITIVE.match(name) is not None


def _remedy(built: BuiltTarget, missing: dict[str, list[str]], wheel: frozenset[str]) -> tuple[str, str]:
    """Return the location and the help for a runtime that lacks operators or backends.

    ``missing`` maps methods to missing operators; it is empty if only backends are missing. The location lists the
    lines of the model that need the operators. If these lines are unknown, the location is a key of the config.
    """
    if not missing:
        return built.place("runtime", "backends"), (
            "add the backend to runtime.backends if the target's runtime has it, or remove the partitioner that "
            "delegates to it"
        )
    methods, settings = built.reference.methods, built.project.config.targets[built.target].runtime
    places = [
        f"{line} ({name})"
        for method, names in missing.items()
        if method in methods
        for name in names
        if (line := _model_line(built.project, methods[method].program, name))
    ]
    key = "operators" if settings.operators is not None else "kernels"
    libraries = _libraries({name for names in missing.values() for name in names}, wheel)
    if key == "kernels" and settings.kernels is not None and libraries:
        hint = (
            f"add {' or '.join(map(repr, libraries))} to runtime.kernels, or replace the op with other ops in the model"
        )
    else:
        hint = (
            "replace the op with other ops in the model, or list the operators of a runtime that has it in "
            "the file of runtime.operators"
        )
    return "; ".join(dict.fromkeys(places)) or built.place("runtime", key), hint


def _libraries(operators: set[str], wheel: frozenset[str]) -> list[str]:
    """Return the names of the kernel libraries that contain all of these operators."""
    return [library for library in _LIBRARIES if operators <= library_operators(library, wheel)]


def _model_line(project: Project, program: ExportedProgram, operator: str) -> str:
    """Return the line of the user's code that needs an operator, such as ``model.py:12, in forward``, or ``""``."""
    line = _first_line(project, [program], operator)
    if not line:
        with suppress(Exception):  # This only adds details to a failure, so it must not raise an error.
            line = _first_line(project, decomposed([program]), operator)
    return line.strip(" ()")


def _first_line(project: Project, programs: Iterable[ExportedProgram], operator: str) -> str:
    """Return the first line of the user's code that needs an operator; empty if unknown.

    The operator ``aten::view_copy.out`` comes from a node ``aten.view_copy.default`` or ``aten.view.default``.
    """
    programs = tuple(programs)
    namespace, _, rest = operator.partition("::")
    name = rest.partition(".")[0]
    spellings: Sequence[str] = (name, name.removesuffix("_copy"))
    lines = (line_of(project, programs, f"{namespace}.{spelling}.") for spelling in spellings)
    return next(filter(None, lines), "")
