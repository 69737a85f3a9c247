"""Nodes of the task graph: tasks, groups of tasks, and memory operations."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from etdev.runtime.orchestrator.handles import Use


class State(Enum):
    """State of a node."""

    WAITING = "waiting"
    """The node waits for other nodes to end. A waiting node that has an error will not run."""
    READY = "ready"
    """The node waits for its workers to become idle."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """The node failed or was cancelled; ``error`` contains the reason."""


@dataclass(slots=True, eq=False)
class Node:
    """A unit of work that starts on its workers when the nodes that it waits for have ended."""

    number: int
    """Position in the order of submission."""
    label: str
    """Name for messages."""
    wanted: tuple[int | None, ...] = (None,)
    """Worker of each member; None for any worker. A task is a group with one member."""
    uses: tuple[Use, ...] = ()
    memory: bool = False
    """True for a memory operation, which can run while its worker runs a task."""
    job: Any = None
    """Data of the engine about this node. The scheduler does not use it."""
    state: State = State.WAITING
    waiting: int = 0
    """Number of nodes that must end before this node starts."""
    dependents: list[tuple[Node, bool]] = field(default_factory=list)
    """Pairs: a node that waits for this node, and True if that node reads bytes that this node writes."""
    error: BaseException | None = None
    """First error of the node; None if there is none."""
    workers: tuple[int, ...] = ()
    """Worker of each member; empty until all are chosen, because all members start together."""
    ticket: int = 0
    """Sort key of the node in the queues of workers. The lowest number is first."""
    running: set[int] = field(default_factory=set)
    """Workers that are running the node."""

    def __post_init__(self) -> None:
        known = tuple(worker for worker in self.wanted if worker is not None)
        if len(known) == len(self.wanted):
            self.workers = known

    @property
    def ended(self) -> bool:
        """True if the node is done or failed."""
        return self.state in (State.DONE, State.FAILED)

    def __repr__(self) -> str:
        return f"<{self.label}: {self.state.value}>"
