"""What a link is asked to do, and what it says that it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from etdev.decisions import ALL_ELISIONS, Elision, ElisionKind, InPlace
from etdev.planner import Planner
from etdev.program import Program, inplace


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
