"""Scheduler: uses the hazards of nodes and the idle workers to decide when each node starts and ends.

The scheduler does not run code of tasks, and has no threads or clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from etdev.runtime.orchestrator.errors import CancelledTaskError, PoisonedError
from etdev.runtime.orchestrator.handles import Key
from etdev.runtime.orchestrator.hazards import Hazards
from etdev.runtime.orchestrator.nodes import Node, State
from etdev.runtime.orchestrator.placement import Placement


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of nodes since the last call of :meth:`Scheduler.changes`."""

    begun: tuple[Node, ...]
    """Nodes that start now. Each node starts on all of its workers."""
    doomed: tuple[Node, ...]
    """Nodes that got an error after the last call of :meth:`Scheduler.changes`.

    A node in this list may not have ended yet: it may wait for earlier nodes, or some of its members may still run.
    """
    ended: tuple[Node, ...]
    """Nodes that are done or failed, in the order in which they ended."""


class Scheduler:
    """Scheduler of nodes on workers numbered from 0; after each event, the caller must apply :meth:`changes`.

    A node starts when all nodes that it waits for have ended. A node that reads the output of a failed node fails
    without running. Even a failed node ends only after the nodes that it waits for.
    """

    def __init__(self, workers: int) -> None:
        self._hazards: Hazards[Node] = Hazards()
        self._placement = Placement(range(workers))
        self._lost: dict[int, BaseException] = {}
        self._count = workers
        self._live: dict[Node, None] = {}
        """Nodes that have not ended."""
        self._begun: list[Node] = []
        self._doomed: list[Node] = []
        self._ended: list[Node] = []

    def oldest(self) -> Node | None:
        """Return the unfinished node that was submitted first; None if there is none."""
        return next(iter(self._live), None)

    def live(self) -> tuple[Node, ...]:
        """Return the nodes that have not ended, in the order of submission."""
        return tuple(self._live)

    def submit(self, node: Node) -> None:
        """Add a node; if an error is raised, the node is not added."""
        try:
            self._enter(node)
        except BaseException:
            self._withdraw(node)
            raise

    def finished(self, node: Node, worker: int, error: BaseException | None = None) -> None:
        """Record that a worker has finished its part of a node."""
        if worker not in node.running:
            return  # The worker was lost earlier.
        if not node.memory:
            self._placement.rest(worker)
        self._leave(node, worker, error)

    def cancel(self, node: Node) -> bool:
        """Cancel a node; return False if it has started or ended."""
        if node.ended or node.state is State.RUNNING:
            return False
        self._doom(node, CancelledTaskError(f"{node.label} was cancelled"))
        if node.state is State.READY:
            self._placement.wake(node.workers)
            self._end(node)
        return True

    def lost(self, worker: int, error: BaseException) -> None:
        """Record the loss of a worker. Nodes fail if they run on this worker or need it."""
        self._lost[worker] = error
        self._placement.retire(worker)
        for node in tuple(self._live):
            if worker in node.running:
                self._leave(node, worker, error)
            elif node.state in (State.WAITING, State.READY) and self._obstacle(node) is not None:
                self._doom(node, error)
                if node.state is State.READY:
                    self._placement.wake(one for one in node.workers if one not in self._lost)
                    self._end(node)
            elif node.state is State.READY and worker in node.workers:
                self._placement.replace(node)

    def started_again(self, worker: int) -> None:
        """Record the restart of a lost worker."""
        del self._lost[worker]
        self._placement.rest(worker)

    def drop(self, keys: Iterable[Key]) -> None:
        """Remove freed or lost buffers from the hazards."""
        for key in keys:
            self._hazards.drop(key)

    def changes(self) -> Changes | None:
        """Start the nodes that can start now. Return all changes since the last call; None if there are none."""
        for node in self._placement.take():
            self._begin(node)
        if not (self._begun or self._doomed or self._ended):
            return None
        found = Changes(tuple(self._begun), tuple(self._doomed), tuple(self._ended))
        self._begun, self._doomed, self._ended = [], [], []
        return found

    def _enter(self, node: Node) -> None:
        self._live[node] = None
        for before, needed in self._hazards.enter(node, node.uses).items():
            if before.state is State.FAILED and needed:
                self._doom(node, PoisonedError(node.label, _first(before)))
            elif not before.ended:
                before.dependents.append((node, needed))
                node.waiting += 1
        obstacle = self._obstacle(node)
        if obstacle is not None:
            self._doom(node, obstacle)
        self._advance(node)

    def _withdraw(self, node: Node) -> None:
        """Remove a node after an error in :meth:`submit`. The node must be the newest one."""
        self._live.pop(node, None)
        for before in self._live:
            before.dependents = [found for found in before.dependents if found[0] is not node]
        self._hazards.undo(node)
        self._placement.forget(node)
        for events in (self._begun, self._doomed, self._ended):
            events[:] = [found for found in events if found is not node]
        node.state = State.FAILED

    def _obstacle(self, node: Node) -> BaseException | None:
        """Return the error of a lost worker that the node needs; None if the node can run."""
        for worker in node.wanted:
            if worker in self._lost:
                return self._lost[worker]
        if len(node.wanted) > self._count - len(self._lost):
            return next(iter(self._lost.values()))
        return None

    def _leave(self, node: Node, worker: int, error: BaseException | None) -> None:
        """Record that a worker has stopped running a node; ``error`` is None if the worker succeeded."""
        node.running.discard(worker)
        if error is not None:
            self._doom(node, error)
        if not node.running:
            self._end(node)

    def _doom(self, node: Node, error: BaseException) -> None:
        if node.error is None:
            node.error = error
            self._doomed.append(node)

    def _advance(self, node: Node) -> None:
        """Make a node ready if it waits for no other node. If the node has an error, end the node instead."""
        if node.waiting or node.state is not State.WAITING:
            return
        if node.error is not None:
            self._end(node)
        elif node.memory:
            self._begin(node)
        else:
            node.state = State.READY
            self._placement.add(node)

    def _begin(self, node: Node) -> None:
        node.state = State.RUNNING
        node.running = set(node.workers)
        self._begun.append(node)

    def _end(self, node: Node) -> None:
        todo: list[Node] = [node]
        while todo:
            over = todo.pop()
            over.state = State.DONE if over.error is None else State.FAILED
            self._live.pop(over, None)
            self._ended.append(over)
            for behind, needed in over.dependents:
                behind.waiting -= 1
                if over.state is State.FAILED and needed:
                    self._doom(behind, PoisonedError(behind.label, _first(over)))
                if not behind.waiting and behind.error is not None and behind.state is State.WAITING:
                    todo.append(behind)
                else:
                    self._advance(behind)
            over.dependents = []


def _first(node: Node) -> BaseException:
    """Return the original error behind a node's failure. An earlier node may have raised this error."""
    error = node.error
    assert error is not None
    return error.cause if isinstance(error, PoisonedError) else error
