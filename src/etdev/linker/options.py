"""Settings and results of a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.decisions import ALL_ELISIONS, Elision, ElisionKind, InPlace, Reordering
from etdev.linker.banks import Banks
from etdev.planner import Planner
from etdev.program import Program
from etdev.program.analysis import inplace
from etdev.program.bank_report import BankReport
from etdev.program.info import BufferInfo


@dataclass(frozen=True, slots=True)
class CallerOwned:
    """Inputs and outputs whose memory the caller provides, by their positions in a method.

    The linker plans no memory for these inputs and outputs.
    """

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
    banks: Banks | None = None
    """Banks that divide the host's planned memory; None if each buffer has the size that it needs."""
    planner_name: str | None = None
    """Name of the planner in the report, if the planner is a function."""
    alignment: int = 16
    """Alignment of each storage in bytes; a power of two."""
    share_state: bool = False
    """True if methods share state of the same name."""
    elide: frozenset[ElisionKind] = ALL_ELISIONS
    """Kinds of copies to remove where possible."""
    inplace: Mapping[str, Sequence[inplace.Donor]] = field(default_factory=lambda: inplace.DEFAULT)
    """Maps each operator to the operands that its kernel may overwrite with an output."""
    caller: Mapping[str, CallerOwned] = field(default_factory=dict)
    """Maps the name of a method to the inputs and outputs whose memory the caller provides."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Maps names of methods to reasons, for the methods that keep their original plans."""
    reorder: bool = True
    """True to look for an order of the instructions that needs less memory."""
    merged_views: bool = True
    """True to replace a copy by a view even if the input of the copy may be one of several tensors.

    All of these tensors are then in use for longer.
    """
    sizes_only: bool = False
    """True if only sizes matter: folded constants then contain zeros."""
    growth: bool = True
    """True to fold a constant even if the file then contains both the original and the folded constant."""


@dataclass(frozen=True, slots=True)
class MethodReport:
    """Result of a link for one method."""

    name: str
    buffers: tuple[BufferInfo, ...]
    elisions: tuple[Elision, ...]
    inplace: tuple[InPlace, ...]
    renumbered: Mapping[int, int]
    """Maps the original position of each remaining instruction to its new position."""
    kept: str | None = None
    """Reason why the method kept its original plan, or None if the method has a new plan."""
    order: Reordering | None = None
    """New order of the instructions, or None if they are in their original order."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A linked program and the reports on its methods."""

    program: Program
    methods: tuple[MethodReport, ...]
    planner: str
    shared_state: tuple[str, ...] = ()
    """Names of the state that several methods share. A loader must use the same buffers for all methods."""
    banks: BankReport | None = None
    """Use of the banks; None if there are no banks."""
    compared: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Buffer sizes with another planner, for comparison. Maps each method to a map from buffers to sizes in bytes.

    Empty if there is no other planner.
    """
