"""What a link is asked to do, and what it says that it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from etdev.planner import Planner
from etdev.program import Program, inplace

ElisionKind: TypeAlias = Literal["views", "slices", "cat", "write_back", "constants"]
"""What a copy is for: another shape, a part of a tensor, one tensor of several, the new content of a buffer, another
order of a constant's elements or a part of it."""
ALL_ELISIONS: frozenset[ElisionKind] = frozenset({"views", "slices", "cat", "write_back", "constants"})


@dataclass(frozen=True, slots=True)
class CallerOwned:
    """Inputs and outputs of a method, by position, whose memory the caller brings: they are not planned."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    device_inputs: frozenset[int] = frozenset()
    """Those that it brings on the device where they are read first."""
    device_outputs: frozenset[int] = frozenset()
    """Those that it takes from the device where they are computed."""


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """Settings of a link. They change addresses and instructions, never what a program computes."""

    planner: str | Planner = "best"
    planner_name: str | None = None
    """For a planner that is a function: what the report calls it."""
    alignment: int = 16
    """Of each buffer, in bytes: a power of two."""
    share_state: bool = False
    """Whether methods share the state that has the same name."""
    elide: frozenset[ElisionKind] = ALL_ELISIONS
    """Which kinds of copies are removed where they can be."""
    inplace: Mapping[str, Sequence[inplace.Donor]] = field(default_factory=lambda: inplace.DEFAULT)
    """Kernels that may write their output over an operand, and which."""
    caller: Mapping[str, CallerOwned] = field(default_factory=dict)
    """By method."""
    keep: Mapping[str, str] = field(default_factory=dict)
    """Methods that keep the plan that they came with → why."""


Action: TypeAlias = Literal["alias", "constant", "view", "same value", "placed", "kept"]
"""What becomes of a copy: its output lies where its input does, is a constant, is pointed to its input at run time, or
is replaced by its input; its inputs are made where its output is; or the copy stays."""


@dataclass(frozen=True, slots=True)
class Elision:
    """A copy that a link considered removing."""

    instruction: int
    """Its position in the program before the link."""
    operator: str
    action: Action
    nbytes: int
    """Bytes that are copied no more, of the largest size; of a copy that was kept, those that it copies."""
    reason: str = ""
    """Why it was kept, or a part of it."""
    kind: ElisionKind = "views"


@dataclass(frozen=True, slots=True)
class InPlace:
    """An output that a link considered writing over an operand."""

    instruction: int
    """Its position in the program before the link."""
    operator: str
    output: int
    """Which of the operator's outputs, from 0."""
    argument: int | None
    """Position of the operand whose bytes it takes over; None if it has bytes of its own."""
    nbytes: int
    """Of the output, of the largest size."""
    reason: str = ""
    """Why it has bytes of its own."""


@dataclass(frozen=True, slots=True)
class BufferReport:
    """One planned buffer of a method."""

    index: int
    """Its ``memory_id``."""
    device: str
    size: int
    """Bytes that the runtime has to allocate."""
    lower_bound: int
    """Bytes below which no plan of the same buffers gets."""
    tensors: int
    state: bool
    """Whether it holds what is kept between calls, and nothing else."""


@dataclass(frozen=True, slots=True)
class MethodReport:
    """What a link did to a method."""

    name: str
    buffers: tuple[BufferReport, ...]
    elisions: tuple[Elision, ...]
    inplace: tuple[InPlace, ...]
    renumbered: Mapping[int, int]
    """Positions of the instructions that are left: before the link → after it."""
    kept: str | None = None
    """Why the method has the plan that it came with, if it has."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A program with physical addresses."""

    program: Program
    methods: tuple[MethodReport, ...]
    planner: str
    shared_state: tuple[str, ...] = ()
    """Names of the state that several methods share; they need a loader that gives all methods the same buffers."""
