"""The input and the result of planning across memory banks.

A bank is a memory with a capacity, such as the tightly coupled memory or the SRAM of a microcontroller. Each buffer is
in one bank. A byte that an instruction reads or writes costs more in a slow bank than in a fast one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from etdev.planner.problem import Buffer, Plan, PlanError, ProblemError, label

COST_RATIO = 4
"""Cost of a byte in a bank, divided by the cost of a byte in the previous bank, if the costs are unknown."""


@dataclass(frozen=True, slots=True)
class Bank:
    """A memory of limited size."""

    name: str
    size: int
    """Capacity in bytes."""
    alignment: int = 1
    """Least alignment in bytes of each buffer in the bank, a power of two."""
    cost: Fraction = Fraction(1)
    """Cost of one byte that is read or written."""


@dataclass(frozen=True, slots=True)
class BankedProblem:
    """Buffers, and the banks among which they are divided.

    Raises :class:`ProblemError` for the first invalid bank or buffer. A buffer's ``pin`` must be None, because a
    required offset has no meaning without a bank.
    """

    banks: tuple[Bank, ...]
    """Banks in order of preference."""
    buffers: tuple[Buffer, ...]
    traffic: tuple[int, ...]
    """For each buffer, the number of bytes that one call reads and writes."""
    choices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Maps the index of a buffer to the banks that may hold it. Buffers that are not in the map may be in any bank."""

    def __post_init__(self) -> None:
        if not self.banks:
            raise ProblemError("expected at least one bank")
        for bank in self.banks:
            if bank.size < 0 or bank.cost < 0 or bank.alignment < 1 or bank.alignment & (bank.alignment - 1):
                raise ProblemError(
                    f"bank {bank.name!r} has size {bank.size}, alignment {bank.alignment} and cost {bank.cost}; "
                    "expected a size and a cost of at least 0, and a power of two as alignment"
                )
        if len(self.traffic) != len(self.buffers) or any(number < 0 for number in self.traffic):
            raise ProblemError("expected one number of at least 0 as traffic for each buffer")
        for index, buffer in enumerate(self.buffers):
            flaw = buffer.flaw or ("has an offset pin; expected none" if buffer.pin is not None else None)
            if flaw:
                raise ProblemError(f"{label(index, buffer)} {flaw}")
        for index, banks in self.choices.items():
            if not 0 <= index < len(self.buffers) or not banks or not set(banks) <= set(range(len(self.banks))):
                raise ProblemError(
                    f"choices: found banks {banks} for buffer {index}; expected indices of banks and of a buffer"
                )

    def allowed(self, index: int) -> Sequence[int]:
        """Return the banks that may hold a buffer, in order of preference."""
        return self.choices.get(index) or range(len(self.banks))

    def is_pinned(self, index: int) -> bool:
        """Return True if a buffer is restricted to a single bank."""
        return len(self.choices.get(index, ())) == 1

    def in_bank(self, index: int, bank: int) -> Buffer:
        """Return a buffer with the alignment that it has in a bank."""
        buffer = self.buffers[index]
        alignment = max(buffer.alignment, self.banks[bank].alignment)
        return Buffer(buffer.size, buffer.start, buffer.end, alignment, name=buffer.name)

    def cost(self, index: int, bank: int) -> Fraction:
        """Return the cost of a buffer's traffic in a bank."""
        return self.traffic[index] * self.banks[bank].cost

    def total_cost(self, division: Sequence[int]) -> Fraction:
        """Return the cost of all traffic. ``division`` has the bank of each buffer."""
        return sum((self.cost(index, bank) for index, bank in enumerate(division)), Fraction(0))


@dataclass(frozen=True, slots=True)
class BankedPlan:
    """Bank and offset of each buffer."""

    banks: tuple[int, ...]
    """Index of each buffer's bank."""
    offsets: tuple[int, ...]
    """Offset of each buffer in its bank, in bytes."""
    plans: tuple[Plan, ...]
    """One plan for each bank. It has the offsets of the bank's buffers, in the order of ``problem.buffers``."""
    traffic: tuple[int, ...]
    """Number of bytes that one call reads and writes in each bank."""
    cost: Fraction
    """Cost of all traffic."""
    lower_bound: Fraction
    """Lower bound on the cost of any plan that fits the banks."""


class BankOverflowError(PlanError):
    """Error for a planner's plan that is valid except that it exceeds a bank."""

    def __init__(self, bank: Bank, planner: str, size: int) -> None:
        super().__init__(f"planner {planner}: bank {bank.name!r} has {bank.size:,} bytes, but the plan needs {size:,}")


class BanksFullError(PlanError):
    """Error for buffers that do not fit into their banks."""

    def __init__(self, message: str, *, bank: int, missing: int, instant: int, buffers: tuple[int, ...]) -> None:
        super().__init__(message)
        self.bank = bank
        """Index of the bank that is too small."""
        self.missing = missing
        """Number of bytes that the bank lacks."""
        self.instant = instant
        """Instant at which the most bytes of the bank are in use."""
        self.buffers = buffers
        """Buffers of the bank that are in use at that instant, the largest first."""
