"""Decisions of the linker about copies and about outputs in place, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from etdev.cli.rendering.text import count, lines, printable
from etdev.decisions import Elision, InPlace, Reordering
from etdev.pipeline.results.decision_counts import CopiesOfKind, count_copies, count_inplace

_LISTED_REASONS = 4


def kind_name(kind: str) -> str:
    """Return the display name of a kind of copies, such as ``write-back``."""
    return kind.replace("_", "-")


def describe_order(order: Reordering) -> str:
    """Return the new order of a method as text: ``3 instructions moved; 12,000 bytes in the original order``."""
    before = "does not fit into the banks" if order.memory is None else f"needs {count(order.memory, 'byte')}"
    return f"{count(order.moved, 'instruction')} moved; the original order {before}"


def decision_lines(
    elisions: Sequence[Elision], inplace: Sequence[InPlace], *, verbose: bool, method: str | None = None
) -> Iterator[str]:
    """Yield lines about removed copies (by kind) and about outputs in place.

    The lines include the reasons why other copies stay, and why other outputs are not in place. With ``verbose``, list
    each decision instead of the reasons. If ``method`` is set, each summary begins with the method's name.
    """
    prefix = "" if method is None else f"{printable(method)}: "
    for copies in count_copies(elisions):
        of_kind = [item for item in elisions if item.kind == copies.kind]
        details = map(_elision, of_kind) if verbose else _copy_reasons(copies)
        yield from lines(kind_name(copies.kind), [f"{prefix}{_removed(copies)}", *details])
    if inplace:
        outputs = count_inplace(inplace)
        total = f"{prefix}{outputs.taken:,} of {count(outputs.considered, 'output')} over an operand"
        total += f", {outputs.taken_bytes:,} bytes" if outputs.taken else ""
        details = map(_output, inplace) if verbose else _reasons(outputs.reasons, "not")
        yield from lines("in place", [total, *details])


def _removed(copies: CopiesOfKind) -> str:
    noun = "copy" if copies.considered == 1 else "copies"
    saved = f", {copies.removed_bytes:,} bytes fewer to copy in a call" if copies.removed else ""
    return f"{copies.removed:,} of {copies.considered:,} {noun} removed{saved}"


def _copy_reasons(copies: CopiesOfKind) -> Iterator[str]:
    yield from _reasons(copies.partly, "kept in part")
    yield from _reasons(copies.reasons, "kept")


def _reasons(reasons: Mapping[str, int], what: str) -> Iterator[str]:
    """Yield a line for each of the most frequent reasons, and one line for all other reasons together."""
    listed = len(reasons) if len(reasons) == _LISTED_REASONS + 1 else _LISTED_REASONS
    for reason, number in islice(reasons.items(), listed):
        yield f"{number:,} {what}: {printable(reason)}"
    if others := list(islice(reasons.values(), listed, None)):
        yield f"{sum(others):,} {what}: {count(len(others), 'other reason')}, see -v"


def _elision(item: Elision) -> str:
    what = "removed in part" if item.reason and item.action != "kept" else item.action
    reason = f": {item.reason}" if item.reason else ""
    return printable(f"instruction {item.instruction} ({item.operator}, {item.nbytes:,} bytes): {what}{reason}")


def _output(item: InPlace) -> str:
    which = f"output {item.output} " if item.output else ""
    what = f"{which}over argument {item.argument}" if item.argument is not None else f"{which}not: {item.reason}"
    return printable(f"instruction {item.instruction} ({item.operator}, {item.nbytes:,} bytes): {what}")
