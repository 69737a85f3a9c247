"""Check *kernels*: compare the operators and backends that the file names with those of the target's runtime."""

from __future__ import annotations

from etdev.backends.reference import DELEGATE_ID
from etdev.pipeline.project.runtime_contents import _BACKENDS, _PRIMITIVE, Requirements, RuntimeContents
from etdev.pipeline.results.result import CheckResult


def check_kernels(contents: RuntimeContents, required: Requirements) -> CheckResult:
    """Compare what the file needs, per method, with what the runtime has."""
    problems = []
    unknown = set()
    for method, names in missing_operators(contents, required).items():
        problems.append(f"method {method!r} needs operators that {contents.operators_label} lacks: {', '.join(names)}")
    for method, ids in required.delegates.items():
        absent = sorted(set(ids) - contents.backends)
        lacking = [name for name in absent if name != DELEGATE_ID]
        if lacking and contents.closed:
            problems.append(
                f"method {method!r} needs backends that {contents.backends_label} lacks: {', '.join(lacking)}"
            )
        unknown.update(absent)
    if problems:
        return CheckResult(name="kernels", status="failed", summary=problems[0], problems=tuple(problems))
    if unknown:
        others = ", ".join(sorted(unknown - {DELEGATE_ID}))
        reason = f"neither {contents.backends_label} nor {_BACKENDS} knows {others}"
        if not others:
            reason = f"the backend {DELEGATE_ID} is etdev's own and in no runtime"
        return CheckResult(name="kernels", status="not run", summary=reason)
    count = len({name for names in required.operators.values() for name in names})
    used = sorted({name for ids in required.delegates.values() for name in ids})
    text = f"{count} operator{'s' * (count != 1)}"
    if used and contents.operators_label == contents.backends_label:
        text += f" and {', '.join(used)}"
    text += f" in {contents.operators_label}"
    if used and contents.operators_label != contents.backends_label:
        text += f", {', '.join(used)} in {contents.backends_label}"
    return CheckResult(name="kernels", status="passed", summary=text)


def missing_operators(contents: RuntimeContents, required: Requirements) -> dict[str, list[str]]:
    """Return the operators that the runtime lacks, sorted, per method that needs any."""
    missing = {
        method: sorted(name for name in names if not _has_operator(contents, name))
        for method, names in required.operators.items()
    }
    return {method: names for method, names in missing.items() if names}


def _has_operator(contents: RuntimeContents, name: str) -> bool:
    return contents.operators is None or name in contents.operators or _PRIMITIVE.match(name) is not None
