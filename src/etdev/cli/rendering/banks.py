"""Text on memory banks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from etdev.cli.rendering.text import line
from etdev.program.bank_report import BankReport, counted_calls
from etdev.program.info import BufferInfo
from etdev.units import format_size


def bank_lines(report: BankReport, methods: Iterable[Sequence[BufferInfo]]) -> Iterator[str]:
    """Yield two lines: the bytes in use in each bank, and the bytes that calls read and write in each bank.

    ``methods`` has the planned buffers of each method.
    """
    used = (f"{bank.name} {format_size(bank.used)} of {format_size(bank.capacity)}" for bank in report.banks)
    yield line("banks", ", ".join(used))
    moved = ", ".join(f"{format_size(bank.traffic)} in {bank.name}" for bank in report.banks)
    others = [bank for bank in report.banks if bank.greedy_traffic is not None]
    greedy = ", ".join(f"{format_size(bank.greedy_traffic or 0)} in {bank.name}" for bank in others)
    yield line("", f"moved {counted_calls(methods)}: {moved}; ExecuTorch's planner: {greedy or 'does not fit'}")
