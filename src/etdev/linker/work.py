"""The program between passes, and the results of a pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from etdev.decisions import Elision, InPlace
from etdev.devices import Device
from etdev.linker.joined import Storages
from etdev.linker.state import State
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.storage import MethodMemory, method_memory
from etdev.program.blob import Blob
from etdev.program.constants import Run

Decision: TypeAlias = Elision | InPlace


class Analysis:
    """Analysis of a method's memory, made when it is first needed."""

    def __init__(self, plan: m.ExecutionPlan, inputs: Mapping[int, int], persistent: frozenset[int]) -> None:
        self._facts = plan, inputs, persistent

    @cached_property
    def memory(self) -> MethodMemory:
        """Storages of the method and their lifetimes."""
        return method_memory(*self._facts)


@dataclass(frozen=True, slots=True)
class Method:
    """A method, and the facts about it."""

    plan: m.ExecutionPlan
    analysis: Analysis
    inputs: Mapping[int, int]
    """Position of each delegate call → number of its arguments that are inputs."""
    persistent: frozenset[int]
    copies: frozenset[int] = frozenset()
    """Positions of the copies that were between host and device before the link."""
    added: tuple[Blob | Run, ...] = ()
    """Data of constants that passes created. Their indices follow those of the program's constants."""
    grown: bool = False
    """Whether any of them needs space in the file in addition to the constant that it was made from."""
    neighbors: Mapping[int, int] = field(default_factory=dict)
    """Tensor that a pass added → original value that it replicates or is a part of, and is numbered next to."""
    ends: tuple[Mapping[int, Device], Mapping[int, Device]] = field(default_factory=lambda: ({}, {}))
    """Inputs and outputs that are on devices before the link, by position."""
    apart: frozenset[int] = frozenset()
    """Inputs and outputs that the caller has on devices, by value."""
    storages: Storages | None = None
    """Record that the passes which merge storages share and change. ``apply merges`` carries it out."""

    @property
    def memory(self) -> MethodMemory:
        """All planned memory of the method."""
        return self.analysis.memory

    def kernels(self) -> Iterator[tuple[int, m.KernelCall, str]]:
        """Yield the position of each kernel call, the call, and the name of its operator."""
        for position, call in enumerate(self.memory.reaching.flow.instructions):
            if isinstance(call, m.KernelCall):
                yield position, call, operator_name(self.plan.operators[call.op_index])

    def merging(self) -> Storages:
        """Return the record of the passes that merge storages; start it if there is none."""
        return self.storages or Storages(self.plan, self.memory)


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
    """Whether the program may come from any toolchain, and is not an object program."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Result of a pass for one method."""

    method: Method
    """Method with its new plan and facts. The runner updates its positions and its ``analysis``."""
    moved: Mapping[int, int] | None = None
    """Positions of the instructions that are left: before the pass → after it. None if no instruction has moved."""
    decisions: Sequence[Decision] = ()
    """Decisions about copies and outputs, by position before the pass."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Result of a pass, or of several passes in order."""

    work: Work
    decisions: tuple[Sequence[Decision], ...]
    """Decisions about each method, as in :class:`Changed`."""
    moved: tuple[Mapping[int, int] | None, ...]
    """Position map of each method, as in :class:`Changed`."""

    @classmethod
    def of(cls, work: Work, methods: Sequence[Changed]) -> PassResult:
        """Return the result of a pass that turns the methods of ``work`` into ``methods``."""
        work = replace(work, methods=tuple(item.method for item in methods))
        return cls(work, tuple(item.decisions for item in methods), tuple(item.moved for item in methods))
