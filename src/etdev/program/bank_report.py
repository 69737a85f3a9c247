"""Use of memory banks by a program, as the link reports it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from etdev.program.info import BufferInfo


@dataclass(frozen=True, slots=True)
class BankUse:
    """Contents of one bank, over all methods."""

    name: str
    index: int
    """Memory id of the bank in the file."""
    capacity: int
    """Size of the bank in bytes."""
    used: int
    """Bytes of the bank that the program uses."""
    cost: float
    """Cost of one byte that is read or written, relative to the other banks."""
    traffic: int
    """Bytes that are read and written in the bank, if each method is called once."""
    greedy_traffic: int | None
    """The same with ExecuTorch's planner for banks; None if the tensors do not fit with that planner."""
    alignment: int = 1
    """Least alignment of the addresses in the bank, in bytes."""


def counted_calls(methods: Iterable[Sequence[BufferInfo]]) -> str:
    """Return a text with the calls that the traffic of banks counts, from the planned buffers of each method."""
    return "if each method is called once" if sum(map(bool, methods)) > 1 else "in a call"


@dataclass(frozen=True, slots=True)
class BankReport:
    """Result of planning across banks."""

    banks: tuple[BankUse, ...]
    cost: float
    """Cost of all traffic, if each method is called once."""
    greedy_cost: float | None
    """The same with ExecuTorch's planner for banks; None if the tensors do not fit with that planner."""
    lower_bound: float
    """Cost below which these tensors do not fit into the banks."""

    def named(self, buffers: Iterable[BufferInfo]) -> tuple[BufferInfo, ...]:
        """Return the buffers with the names and capacities of their banks."""
        banks = {bank.index: bank for bank in self.banks}
        return tuple(
            replace(buffer, bank=banks[buffer.index].name, capacity=banks[buffer.index].capacity)
            if buffer.index in banks
            else buffer
            for buffer in buffers
        )
