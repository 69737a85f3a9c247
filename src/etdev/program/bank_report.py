"""Use of memory banks by a program, as the link reports it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from etdev.program.info import BufferInfo


@dataclass(frozen=True, slots=True)
class BankUse:
    """Use of one bank by all methods of a program."""

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
    """The ``traffic`` with ExecuTorch's planner for banks; None if the tensors do not fit with that planner."""
    alignment: int = 1
    """Minimum alignment of addresses in the bank, in bytes."""


def counted_calls(methods: Iterable[Sequence[BufferInfo]]) -> str:
    """Return words, such as ``in a call``, that state which calls a figure of traffic counts.

    ``methods`` has the planned buffers of each method.
    """
    return "if each method is called once" if sum(map(bool, methods)) > 1 else "in a call"


@dataclass(frozen=True, slots=True)
class BankReport:
    """Use of all banks by a program, and the cost of the traffic."""

    banks: tuple[BankUse, ...]
    cost: float
    """Cost of all traffic, if each method is called once."""
    greedy_cost: float | None
    """The ``cost`` with ExecuTorch's planner for banks; None if the tensors do not fit with that planner."""
    lower_bound: float
    """Lower bound on ``cost`` for all plans that put these tensors into these banks."""

    def named(self, buffers: Iterable[BufferInfo]) -> tuple[BufferInfo, ...]:
        """Return the buffers, each with the name and the capacity of its bank added."""
        banks = {bank.index: bank for bank in self.banks}
        return tuple(
            replace(buffer, bank=banks[buffer.index].name, capacity=banks[buffer.index].capacity)
            if buffer.index in banks
            else buffer
            for buffer in buffers
        )
