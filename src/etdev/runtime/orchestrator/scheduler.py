"""Scheduler of nodes, which wait for other nodes and for workers, begin, and end.

It neither runs code nor reads a clock.
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
    """Changes that follow from an event."""

    begun: tuple[Node, ...]
    """Nodes to run now, on each of their workers."""
    doomed: tuple[Node, ...]
    """Nodes that got an error since the last call.

    Such a node may not have ended: it keeps its place in the order, or some of its members still run.
    """
    ended: tuple[Node, ...]
    """Nodes that are done or failed, in this order."""


class Scheduler:
    """Scheduler of nodes on workers numbered from 0. Call :meth:`changes` after each event.

    A node begins when all nodes that it waits for have ended. It fails without running if one of these failed before
    writing what the node reads. It still keeps its place in the order until the earlier nodes have ended.
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
        """Return the first submitted node that has not ended."""
        return next(iter(self._live), None)

    def live(self) -> tuple[Node, ...]:
        """Return the nodes that have not ended, in order."""
        return tuple(self._live)

    def submit(self, node: Node) -> None:
        """Add a node. If this fails for any reason, nothing has been added."""
        try:
            self._enter(node)
        except BaseException:
            self._withdraw(node)
            raise

    def finished(self, node: Node, worker: int, error: BaseException | None = None) -> None:
        """Record that a worker has finished a node, or its part of one."""
        if worker not in node.running:
            return  # It was lost meanwhile.
        if not node.memory:
            self._placement.rest(worker)
        self._leave(node, worker, error)

    def cancel(self, node: Node) -> bool:
        """Cancel a node. Return False if it has begun or ended."""
        if node.ended or node.state is State.RUNNING:
            return False
        self._doom(node, CancelledTaskError(f"{node.label} was cancelled"))
        if node.state is State.READY:
            self._placement.wake(node.workers)
            self._end(node)
        return True

    def lost(self, worker: int, error: BaseException) -> None:
        """Record the loss of a worker. Nodes that run there or need it fail."""
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
        """Record the restart of a lost worker, whose memory is empty now."""
        del self._lost[worker]
        self._placement.rest(worker)

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget buffers whose handles are not valid any more."""
        for key in keys:
            self._hazards.drop(key)

    def changes(self) -> Changes | None:
        """Return the changes since the last call, or None."""
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
        """Remove a node that was added only in part. No later node exists."""
        self._live.pop(node, None)
        for before in self._live:
            before.dependents = [found for found in before.dependents if found[0] is not node]
        self._hazards.undo(node)
        self._placement.forget(node)
        for events in (self._begun, self._doomed, self._ended):
            events[:] = [found for found in events if found is not node]
        node.state = State.FAILED

    def _obstacle(self, node: Node) -> BaseException | None:
        """Return the loss that keeps a node from running: of a worker that it needs, or of too many workers."""
        for worker in node.wanted:
            if worker in self._lost:
                return self._lost[worker]
        if len(node.wanted) > self._count - len(self._lost):
            return next(iter(self._lost.values()))
        return None

    def _leave(self, node: Node, worker: int, error: BaseException | None) -> None:
        """Record that a worker is done with a node that it was running."""
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
        """Make a node ready if it waits for nothing. End it if it has an error."""
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
    """Return the original error, before it was passed on to dependent nodes."""
    error = node.error
    assert error is not None
    return error.cause if isinstance(error, PoisonedError) else error
