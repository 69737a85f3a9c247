"""Placement: chooses workers for nodes that are ready.

A node is a single task, or a group of tasks that start together, called members. Each worker has a queue of the nodes
that must run on it. A group is in the queues of all its workers. The group starts when it is first in all of these
queues and all its workers are idle. No other node overtakes the group. Therefore, single tasks cannot starve the group,
and two groups cannot deadlock. A member that may run anywhere gets the worker with the fewest nodes in its queue. A
single task that may run anywhere starts on any idle worker with an empty queue.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress

from etdev.runtime.orchestrator.nodes import Node, State


class Placement:
    """Assignment of ready nodes to idle workers."""

    def __init__(self, workers: Iterable[int]) -> None:
        self._idle = dict.fromkeys(workers)  # A dict is a set that keeps its order.
        self._own: dict[int, deque[Node]] = {worker: deque() for worker in self._idle}
        self._free: deque[Node] = deque()
        self._changed: dict[int, None] = {}
        """Workers whose queue or state has changed since the last call of :meth:`take`."""
        self._gone: set[int] = set()
        self._tickets = itertools.count()
        """Counter for tickets, which order the nodes in the queues of workers."""

    def add(self, node: Node) -> None:
        """Add a ready node. The caller ensures that there are enough workers for the node's members."""
        if node.wanted == (None,):
            self._free.append(node)
            return
        node.ticket = next(self._tickets)
        node.workers = self._choose(node.wanted)
        for worker in node.workers:
            self._own[worker].append(node)
            self._changed[worker] = None

    def replace(self, node: Node) -> None:
        """Replace a node's lost workers by live workers. Insert the node into their queues in ticket order."""
        before = node.workers
        node.workers = self._choose([None if worker in self._gone else worker for worker in before])
        for worker in set(node.workers).difference(before):
            queue = self._own[worker]
            position = next((at for at, other in enumerate(queue) if other.ticket > node.ticket), len(queue))
            queue.insert(position, node)
        self.wake(node.workers)

    def forget(self, node: Node) -> None:
        """Remove a node from all queues."""
        for queue in (*self._own.values(), self._free):
            with suppress(ValueError):
                queue.remove(node)

    def rest(self, worker: int) -> None:
        """Mark a worker as idle."""
        self._gone.discard(worker)
        self._idle[worker] = None
        self._changed[worker] = None

    def retire(self, worker: int) -> None:
        """Mark a worker as lost, and empty the worker's queue."""
        self._gone.add(worker)
        self._idle.pop(worker, None)
        self._changed.pop(worker, None)
        self._own[worker].clear()

    def wake(self, workers: Iterable[int]) -> None:
        """Mark the queues of these workers as changed, so that :meth:`take` checks the queues again."""
        self._changed.update(dict.fromkeys(workers))

    def take(self) -> list[Node]:
        """Choose workers for the nodes that can start now; remove these nodes from the queues and return them."""
        found: list[Node] = []
        changed, self._changed = self._changed, {}
        for worker in changed:
            node = self._head(worker)
            if node is not None and all(one in self._idle and self._head(one) is node for one in node.workers):
                found.append(node)
                for one in node.workers:
                    self._own[one].popleft()
                    del self._idle[one]
        while self._free:
            if self._free[0].state is not State.READY:
                self._free.popleft()
                continue
            worker = next((one for one in self._idle if self._head(one) is None), -1)
            if worker < 0:
                break
            node = self._free.popleft()
            node.workers = (worker,)
            del self._idle[worker]
            found.append(node)
        return found

    def _choose(self, wanted: Collection[int | None]) -> tuple[int, ...]:
        """Return a worker for each entry of ``wanted``. An entry that is None gets one of the least loaded workers."""
        others = [worker for worker in self._own if worker not in self._gone and worker not in wanted]
        chosen = iter(sorted(others, key=self._load))
        return tuple(next(chosen) if worker is None else worker for worker in wanted)

    def _load(self, worker: int) -> int:
        waiting = sum(node.state is State.READY for node in self._own[worker])
        return waiting + (worker not in self._idle)

    def _head(self, worker: int) -> Node | None:
        queue = self._own[worker]
        while queue and queue[0].state is not State.READY:
            queue.popleft()
        return queue[0] if queue else None
