"""Texts about delegates in the result of a build."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.cli.rendering.text import code_place, count, printable
from etdev.pipeline.results.result import MethodResult, TargetResult, UndelegatedOps
from etdev.units import format_size

_SCRATCH = frozenset({"scratch", "fast_scratch"})
"""Kinds of memory that a delegate's compiler reports, and that are in no bank."""
_LISTED_OPS = 8
_LISTED_REASONS = 3
_LISTED_UNDELEGATED = 4


def delegate_memory_texts(target: TargetResult) -> Iterator[str]:
    """Yield a text with the memory sizes of each delegate. Skip delegates whose compiler does not report sizes."""
    for method in target.methods:
        for item in method.delegate_memory:
            name = f"delegate {item.delegate}" + (f" of {method.name}" if len(target.methods) > 1 else "")
            sizes = item.named_sizes().items()
            yield f"{name}: {', '.join(f'{kind} {size:,} bytes' for kind, size in sizes)}"


def outside_of_banks(target: TargetResult) -> Iterator[str]:
    """Yield a text with the memory of delegates that a target with banks needs in addition to the banks."""
    largest: dict[tuple[str, str], int] = {}
    for item in (item for method in target.methods for item in method.delegate_memory):
        for kind in _SCRATCH & item.sizes.keys():
            largest[item.id, kind] = max(largest.get((item.id, kind), 0), item.sizes[kind])
    used = sorted({name for method in target.methods for name in method.delegate_calls})
    sizes = [(name, kind.replace("_", " "), size) for (name, kind), size in sorted(largest.items()) if size]
    texts = [f"{kind} {format_size(size)} of {name}" for name, kind, size in sizes]
    known = {name for name, _ in largest}
    texts += [f"run-time memory of {name}" for name in used if name not in known]
    if texts:
        yield f"not in the banks: {', '.join(texts)}"


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


def describe_delegation(method: MethodResult, *, verbose: bool = False) -> str:
    """Return a text with the number of ops in delegates, and with the ops that run on the runtime's own kernels.

    Without delegates, the text names only the most frequent of these ops, unless ``verbose`` is True.
    """
    rest = sum(item.count for item in method.undelegated)
    if not method.delegate_calls:
        return f"{rest}, all on the runtime's own kernels: {_ops(method, every=verbose)}"
    calls = ", ".join(f"{count(number, 'call')} of {name}" for name, number in method.delegate_calls.items())
    text = f"{method.delegated_ops + rest}: {method.delegated_ops} in {calls}"
    if not rest:
        return text
    cost = ", splitting the delegate" if sum(method.delegate_calls.values()) > 1 else ""
    return f"{text}, {rest} on the runtime's own kernels{cost}: {_ops(method, every=True)}"


def _ops(method: MethodResult, *, every: bool) -> str:
    """Return a list of the ops outside delegates as text, most frequent first.

    Unless ``every`` is True, the list may end with the number of further ops.
    """
    most = sorted(method.undelegated, key=lambda item: (-item.count, item.op))
    listed = len(most) if every else _LISTED_UNDELEGATED
    shown = ", ".join(_counted(item) for item in most[:listed])
    hidden = len(most) - listed
    return f"{shown} and {hidden} more" if hidden > 0 else shown or "none"


def _counted(item: UndelegatedOps) -> str:
    name = item.op.removesuffix(".default")
    return f"{name} x{item.count}" if item.count > 1 else name
