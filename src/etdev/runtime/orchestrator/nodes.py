"""Nodes of the graph: tasks, groups of tasks, and memory operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from etdev.runtime.orchestrator.handles import Use


class State(Enum):
    """State of a node."""

    WAITING = "waiting"
    """Waits for other nodes. A node that already has an error waits too, and is then skipped."""
    READY = "ready"
    """Waits for its workers to be idle."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Failed or cancelled; ``error`` says which."""


@dataclass(slots=True, eq=False)
class Node:
    """Work that runs on workers once the nodes before it have ended."""

    number: int
    """Position in the order of submission."""
    label: str
    """Name in errors."""
    wanted: tuple[int | None, ...] = (None,)
    """Worker of each member, or None for any. A task is a group of one."""
    uses: tuple[Use, ...] = ()
    memory: bool = False
    """True for a memory operation, which runs while its worker runs a task."""
    job: Any = None
    """Content, which the scheduler does not read. Dropped when the node is settled."""
    state: State = State.WAITING
    waiting: int = 0
    """Number of nodes that must end first."""
    dependents: list[tuple[Node, bool]] = field(default_factory=list)
    """Nodes that wait for this one; True for those that need what it writes."""
    error: BaseException | None = None
    """First reason for its failure, or for not running it."""
    workers: tuple[int, ...] = ()
    """Worker of each member. All members run at the same time. Empty until the workers are chosen."""
    ticket: int = 0
    """Position in the order in which nodes entered the queues of workers."""
    running: set[int] = field(default_factory=set)
    """Workers that run it now."""

    def __post_init__(self) -> None:
        known = tuple(worker for worker in self.wanted if worker is not None)
        if len(known) == len(self.wanted):
            self.workers = known

    @property
    def ended(self) -> bool:
        """True if it is done or failed."""
        return self.state in (State.DONE, State.FAILED)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.state.value}>"
