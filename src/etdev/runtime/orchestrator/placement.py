"""Placement of ready nodes on workers: first nodes that need a certain worker, then nodes that run anywhere.

A node that needs a worker waits in that worker's queue. A group enters the queues of all its members at once. It begins
when it is at the head of each queue and all members are idle. Nothing overtakes it, so single nodes cannot starve it
and two groups cannot deadlock. A member that may run anywhere gets its worker when the group is ready: the one with the
least to do.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress

from etdev.runtime.orchestrator.nodes import Node, State


class Placement:
    """Ready nodes, and idle workers."""

    def __init__(self, workers: Iterable[int]) -> None:
        self._idle = dict.fromkeys(workers)  # A set that keeps its order.
        self._own: dict[int, deque[Node]] = {worker: deque() for worker in self._idle}
        self._free: deque[Node] = deque()
        self._changed: dict[int, None] = {}
        """Workers with a changed queue, and workers that have become idle."""
        self._gone: set[int] = set()
        self._tickets = itertools.count()
        """Tickets, which order the nodes in all queues."""

    def add(self, node: Node) -> None:
        """Add a ready node. There are workers for all of its members."""
        if node.wanted == (None,):
            self._free.append(node)
            return
        node.ticket = next(self._tickets)
        node.workers = self._choose(node.wanted)
        for worker in node.workers:
            self._own[worker].append(node)
            self._changed[worker] = None

    def replace(self, node: Node) -> None:
        """Choose a worker in place of a lost one. The node keeps its place in the order."""
        before = node.workers
        node.workers = self._choose([None if worker in self._gone else worker for worker in before])
        for worker in set(node.workers).difference(before):
            queue = self._own[worker]
            position = next((at for at, other in enumerate(queue) if other.ticket > node.ticket), len(queue))
            queue.insert(position, node)
        self.wake(node.workers)

    def forget(self, node: Node) -> None:
        """Remove a node, as if it had never been added."""
        for queue in (*self._own.values(), self._free):
            with suppress(ValueError):
                queue.remove(node)

    def rest(self, worker: int) -> None:
        """Mark a worker idle."""
        self._gone.discard(worker)
        self._idle[worker] = None
        self._changed[worker] = None

    def retire(self, worker: int) -> None:
        """Mark a worker lost until it rests again, and clear its queue."""
        self._gone.add(worker)
        self._idle.pop(worker, None)
        self._changed.pop(worker, None)
        self._own[worker].clear()

    def wake(self, workers: Iterable[int]) -> None:
        """Check the queues of these workers again: a node in them is not ready any more, so one behind it may begin."""
        self._changed.update(dict.fromkeys(workers))

    def take(self) -> list[Node]:
        """Return the nodes that begin now, on their ``workers``."""
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
        """Return the wanted workers. Each ``None`` is replaced by an idle worker or the least loaded one."""
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
