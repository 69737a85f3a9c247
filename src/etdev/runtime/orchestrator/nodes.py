"""Nodes of the graph: tasks, groups of tasks, and operations on memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from etdev.runtime.orchestrator.handles import Use


class State(Enum):
    """Where a node is in its life."""

    WAITING = "waiting"
    """For others, or to be passed over if it is doomed."""
    READY = "ready"
    """For its workers to have time."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Or cancelled; ``error`` says which."""


@dataclass(slots=True, eq=False)
class Node:
    """Something that runs on workers once others are over."""

    number: int
    """In the order of submission."""
    label: str
    """What errors call it."""
    wanted: tuple[int | None, ...] = (None,)
    """The worker of each member, or None for any. A task is a group of one."""
    uses: tuple[Use, ...] = ()
    memory: bool = False
    """An operation on memory: it runs beside the task that its worker is at."""
    job: Any = None
    """What to run: nothing to the scheduler. Dropped when the node has ended."""
    state: State = State.WAITING
    waiting: int = 0
    """Nodes that have to end before."""
    dependents: list[tuple[Node, bool]] = field(default_factory=list)
    """Who waits for it, and whether for what it writes."""
    error: BaseException | None = None
    """Why it failed, or is not going to be run: the first reason."""
    workers: tuple[int, ...] = ()
    """The worker of each member, all at the same time. Empty until each is known."""
    ticket: int = 0
    """Its place in the order in which nodes entered the queues of workers."""
    running: set[int] = field(default_factory=set)
    """Workers that are at it."""

    def __post_init__(self) -> None:
        known = tuple(worker for worker in self.wanted if worker is not None)
        if len(known) == len(self.wanted):
            self.workers = known

    @property
    def ended(self) -> bool:
        """Is it over, well or badly?"""
        return self.state in (State.DONE, State.FAILED)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.state.value}>"
