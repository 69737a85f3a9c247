"""Texts about delegates in the result of a build."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.cli.rendering.text import code_place, count, printable
from etdev.pipeline.results.result import MethodResult, TargetResult
from etdev.units import format_size

_LISTED_OPS = 8
_LISTED_REASONS = 3


def delegate_memory_texts(target: TargetResult) -> Iterator[str]:
    """Yield a text with the memory sizes of each delegate. Skip delegates whose compiler does not report sizes."""
    for method in target.methods:
        for item in method.delegate_memory:
            name = f"delegate {item.delegate}" + (f" of {method.name}" if len(target.methods) > 1 else "")
            sizes = item.named_sizes().items()
            yield f"{name}: {', '.join(f'{kind} {format_size(size)}' for kind, size in sizes)}"


def rejection_texts(method: MethodResult) -> Iterator[str]:
    """Yield a text for each op that backends rejected, with the reasons. The most frequent op comes first."""
    rejected = sorted((item for item in method.undelegated if item.reasons), key=lambda item: (-item.count, item.op))
    for item in rejected[:_LISTED_OPS]:
        reasons = [printable(reason) for reason in item.reasons[:_LISTED_REASONS]]
        if (hidden := len(item.reasons) - _LISTED_REASONS) > 0:
            reasons.append(f"{count(hidden, 'more reason')} in report.json")
        op = printable(item.op.removesuffix(".default"))
        yield f"{op}{code_place(item.module, item.source)}: {'; '.join(reasons)}"
    if (hidden := len(rejected) - _LISTED_OPS) > 0:
        yield f"reasons for {count(hidden, 'more op')} are in report.json"
