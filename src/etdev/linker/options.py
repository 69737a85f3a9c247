"""Settings and results of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.decisions import ALL_ELISIONS, Elision, ElisionKind, InPlace
from etdev.planner import Planner
from etdev.program import Program
from etdev.program.analysis import inplace
from etdev.program.info import BufferInfo


@dataclass(frozen=True, slots=True)
class CallerOwned:
    """Inputs and outputs of a method whose memory the caller provides, by position. The linker does not plan them."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    device_inputs: frozenset[int] = frozenset()
    """Inputs that the caller provides on the device of the first delegate that reads them."""
    device_outputs: frozenset[int] = frozenset()
    """Outputs that the caller takes from the device of the delegate that computes them."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Settings of a link. They affect addresses and instructions, but never the results of a program."""

    planner: str | Planner = "best"
    planner_name: str | None = None
    """Name in the report for a planner that is a function."""
    alignment: int = 16
    """Alignment of each storage in bytes; a power of two."""
    share_state: bool = False
    """Whether several methods share state of the same name."""
    elide: frozenset[ElisionKind] = ALL_ELISIONS
    """Kinds of copies to remove where possible."""
    inplace: Mapping[str, Sequence[inplace.Donor]] = field(default_factory=lambda: inplace.DEFAULT)
    """Operator → operands over which its kernel may write an output."""
    caller: Mapping[str, CallerOwned] = field(default_factory=dict)
    """Method → inputs and outputs whose memory the caller provides."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Method that keeps its original plan → the reason."""
    merged_views: bool = True
    """Whether to remove views of values that may be one of several tensors. All of these are then in use for longer."""
    growth: bool = True
    """Whether to fold a constant even if the file then holds both the original and the folded one."""


@dataclass(frozen=True, slots=True)
class MethodReport:
    """Result of a link for one method."""

    name: str
    buffers: tuple[BufferInfo, ...]
    elisions: tuple[Elision, ...]
    inplace: tuple[InPlace, ...]
    renumbered: Mapping[int, int]
    """Position of an instruction before the link → its new position. Removed instructions are not in it."""
    kept: str | None = None
    """Reason why the method kept its original plan; None if it has a new plan."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A linked program and the reports on its methods."""

    program: Program
    methods: tuple[MethodReport, ...]
    planner: str
    shared_state: tuple[str, ...] = ()
    """Names of the state that several methods share. A loader must use the same buffers for all methods."""
