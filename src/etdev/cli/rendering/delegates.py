"""Texts about delegates in the result of a build."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.pipeline.results.result import TargetResult
from etdev.units import format_size


def delegate_memory_texts(target: TargetResult) -> Iterator[str]:
    """Yield a text with the memory sizes of each delegate. Skip delegates whose compiler does not report sizes."""
    for method in target.methods:
        for item in method.delegate_memory:
            name = f"delegate {item.delegate}" + (f" of {method.name}" if len(target.methods) > 1 else "")
            sizes = item.named_sizes().items()
            yield f"{name}: {', '.join(f'{kind} {format_size(size)}' for kind, size in sizes)}"
