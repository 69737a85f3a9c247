"""A program between two passes, and the result of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from etdev.decisions import Elision, InPlace
from etdev.devices import Device
from etdev.linker.merged import Storages
from etdev.linker.state import State
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.blob import Blob
from etdev.program.constants import Run

Decision: TypeAlias = Elision | InPlace


class Analysis:
    """The analysis of a method's memory, computed when it is first needed."""

    def __init__(self, plan: m.ExecutionPlan, inputs: Mapping[int, int], persistent: frozenset[int]) -> None:
        self._facts = plan, inputs, persistent

    @cached_property
    def memory(self) -> MethodMemory:
        """Return the storages of the method and their lifetimes."""
        return method_memory(*self._facts)


@dataclass(frozen=True, slots=True)
class Method:
    """A method, with facts about it that passes need."""

    plan: m.ExecutionPlan
    analysis: Analysis
    inputs: Mapping[int, int]
    """Maps the position of each delegate call to the number of its arguments that are inputs."""
    persistent: frozenset[int]
    copies: frozenset[int] = frozenset()
    """Positions of the copies between host and devices that the original program had."""
    added: tuple[Blob | Run, ...] = ()
    """Data of the constants added by passes. These constants are numbered after the program's own constants."""
    grown: bool = False
    """True if the file contains both an added constant and its original."""
    neighbors: Mapping[int, int] = field(default_factory=dict)
    """Maps each added tensor to the original value that contains or equals the tensor.

    The two values are numbered next to each other in the file.
    """
    device_ends: tuple[Mapping[int, Device], Mapping[int, Device]] = field(default_factory=lambda: ({}, {}))
    """Two maps for the original program: from input positions to devices, and from output positions to devices."""
    caller_device_values: frozenset[int] = frozenset()
    """Values of the inputs and outputs that the caller keeps on devices."""
    pinned: Mapping[int, str] = field(default_factory=dict)
    """Maps tensors to names of banks, for the tensors that must be in a certain bank."""
    linked: MethodMemory | None = None
    """Storages after a link of the method in its present order; None unless the pass ``order`` may move instructions.

    Values have the same numbers as in ``plan``.
    """
    reordered: bool = False
    """True if the pass ``order`` moved instructions."""
    storages: Storages | None = None
    """Recorded merges of storages. Earlier passes add merges, and the pass ``apply merges`` applies them."""

    @property
    def memory(self) -> MethodMemory:
        """Return the storages in the planned memory of the method, and their lifetimes."""
        return self.analysis.memory

    def kernels(self) -> Iterator[tuple[int, m.KernelCall, str]]:
        """Yield the position of each kernel call, the call, and the name of its operator."""
        for position, call in enumerate(self.memory.reaching.flow.instructions):
            if isinstance(call, m.KernelCall):
                yield position, call, operator_name(self.plan.operators[call.op_index])

    def storage_record(self) -> Storages:
        """Return the record of merged storages. Start an empty record if there is none."""
        return self.storages or Storages(self.plan, self.memory, self.pinned)


@dataclass(frozen=True, slots=True)
class Work:
    """A program between two passes."""

    program: Program
    """Program before the link."""
    methods: tuple[Method, ...]
    """Methods that get a new plan."""
    state: tuple[State, ...]
    """State of these methods."""
    foreign: bool
    """True if the program may come from any toolchain; False for an object program."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of a pass for one method."""

    method: Method
    """Method as the pass returns it. :func:`~etdev.linker.passes.run_passes` updates its positions and analysis."""
    moved: Mapping[int, int] | None = None
    """Maps the old position of each remaining instruction to its new position. None if no position changes."""
    decisions: Sequence[Decision] = ()
    """Decisions about copies and outputs, with positions before the pass."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of a pass, or of several passes in order."""

    work: Work
    decisions: tuple[Sequence[Decision], ...]
    """Decisions about each method, in the form of :attr:`Changed.decisions`."""
    moved: tuple[Mapping[int, int] | None, ...]
    """For each method, a map as in :attr:`Changed.moved`, or None."""

    @classmethod
    def of(cls, work: Work, methods: Sequence[Changed]) -> PassResult:
        """Return the result of a pass for all methods of ``work``. ``methods`` has the result for each method."""
        work = replace(work, methods=tuple(item.method for item in methods))
        return cls(work, tuple(item.decisions for item in methods), tuple(item.moved for item in methods))
