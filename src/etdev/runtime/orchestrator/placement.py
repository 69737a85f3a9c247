"""Which worker runs what next: first what has to run somewhere, then what may run anywhere.

What has to run on a worker waits in that worker's queue; a group waits in those of all its members, entered in all of
them at once. It begins when it is at the head of each and all members are idle, and nothing overtakes it: so singles
cannot starve it, and two groups cannot wait for each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from etdev.runtime.orchestrator.nodes import Node, State


class Placement:
    """Nodes that are ready, and workers that are idle."""

    def __init__(self, workers: Iterable[int]) -> None:
        self._idle = dict.fromkeys(workers)  # A set that keeps its order.
        self._own: dict[int, deque[Node]] = {worker: deque() for worker in self._idle}
        self._free: deque[Node] = deque()
        self._changed: dict[int, None] = {}
        """Workers with something new in their queue, or nothing to do any more."""

    def add(self, node: Node) -> None:
        """A node is ready."""
        for worker in node.workers:
            self._own[worker].append(node)
            self._changed[worker] = None
        if not node.workers:
            self._free.append(node)

    def rest(self, worker: int) -> None:
        """A worker has nothing to do any more."""
        self._idle[worker] = None
        self._changed[worker] = None

    def retire(self, worker: int) -> None:
        """A worker is gone: it runs nothing until it rests again. Its queue goes."""
        self._idle.pop(worker, None)
        self._changed.pop(worker, None)
        self._own[worker].clear()

    def wake(self, workers: Iterable[int]) -> None:
        """Look at these queues again: a node that stood in them is not ready any more."""
        self._changed.update(dict.fromkeys(workers))

    def take(self) -> list[Node]:
        """Nodes that begin now, on their ``workers``."""
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

    def _head(self, worker: int) -> Node | None:
        queue = self._own[worker]
        while queue and queue[0].state is not State.READY:
            queue.popleft()
        return queue[0] if queue else None
