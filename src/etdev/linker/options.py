"""Settings and results of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.decisions import ALL_ELISIONS, Elision, ElisionKind, InPlace
from etdev.planner import Planner
from etdev.program import Program
from etdev.program.analysis import inplace


@dataclass(frozen=True, slots=True)
class CallerOwned:
    """Inputs and outputs of a method, by position, whose memory the caller provides. They are not planned."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    device_inputs: frozenset[int] = frozenset()
    """Inputs that the caller provides on the device that reads them first."""
    device_outputs: frozenset[int] = frozenset()
    """Outputs that the caller takes from the device that computes them."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Settings of a link. They change addresses and instructions, never what a program computes."""

    planner: str | Planner = "best"
    planner_name: str | None = None
    """Name in the report of a planner that is a function."""
    alignment: int = 16
    """Alignment of each storage in bytes; a power of two."""
    share_state: bool = False
    """Whether methods share state of the same name."""
    elide: frozenset[ElisionKind] = ALL_ELISIONS
    """Kinds of copies to remove where possible."""
    inplace: Mapping[str, Sequence[inplace.Donor]] = field(default_factory=lambda: inplace.DEFAULT)
    """Kernels that may write an output over an operand → these operands."""
    caller: Mapping[str, CallerOwned] = field(default_factory=dict)
    """Inputs and outputs whose memory the caller provides, by method."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Methods that keep their original plan → the reason."""
    merged_views: bool = True
    """Whether to remove views of a value that is one of several tensors. All of these are then in use for longer."""
    growth: bool = True
    """Whether to fold constants that need space in the file in addition to their original."""


@dataclass(frozen=True, slots=True)
class BufferReport:
    """One planned buffer of a method."""

    index: int
    """``memory_id`` of the buffer."""
    device: str
    size: int
    """Bytes that the runtime has to allocate."""
    lower_bound: int
    """Lower bound in bytes for any plan of the same storages."""
    tensors: int
    state: bool
    """Whether it only holds state that is kept between calls."""


@dataclass(frozen=True, slots=True)
class MethodReport:
    """Result of a link for one method."""

    name: str
    buffers: tuple[BufferReport, ...]
    elisions: tuple[Elision, ...]
    inplace: tuple[InPlace, ...]
    renumbered: Mapping[int, int]
    """Positions of the instructions that are left: before the link → after it."""
    kept: str | None = None
    """Reason for keeping the original plan; None if the method has a new plan."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A program with physical addresses."""

    program: Program
    methods: tuple[MethodReport, ...]
    planner: str
    shared_state: tuple[str, ...] = ()
    """Names of the state that several methods share. A loader must give all methods the same buffers."""
