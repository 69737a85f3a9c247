"""Which worker runs what next: first what has to run somewhere, then what may run anywhere.

What has to run on a worker waits in that worker's queue; a group waits in those of all its members, entered in all of
them at once. It begins when it is at the head of each and all members are idle, and nothing overtakes it: so singles
cannot starve it, and two groups cannot wait for each other. A member of a group that may run anywhere gets its worker
when the group is ready: the one with the least to do.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress

from etdev.runtime.orchestrator.nodes import Node, State


class Placement:
    """Nodes that are ready, and workers that are idle."""

    def __init__(self, workers: Iterable[int]) -> None:
        self._idle = dict.fromkeys(workers)  # A set that keeps its order.
        self._own: dict[int, deque[Node]] = {worker: deque() for worker in self._idle}
        self._free: deque[Node] = deque()
        self._changed: dict[int, None] = {}
        """Workers with something new in their queue, or nothing to do any more."""
        self._gone: set[int] = set()
        self._tickets = itertools.count()
        """All queues have their nodes in the one order of these."""

    def add(self, node: Node) -> None:
        """A node is ready, and there are workers for all of its members."""
        if node.wanted == (None,):
            self._free.append(node)
            return
        node.ticket = next(self._tickets)
        node.workers = self._choose(node.wanted)
        for worker in node.workers:
            self._own[worker].append(node)
            self._changed[worker] = None

    def replace(self, node: Node) -> None:
        """Choose a worker in the place of one that is gone. The node keeps its place in the order."""
        before = node.workers
        node.workers = self._choose([None if worker in self._gone else worker for worker in before])
        for worker in set(node.workers).difference(before):
            queue = self._own[worker]
            position = next((at for at, other in enumerate(queue) if other.ticket > node.ticket), len(queue))
            queue.insert(position, node)
        self.wake(node.workers)

    def forget(self, node: Node) -> None:
        """Take a node out, as if it had never been added."""
        for queue in (*self._own.values(), self._free):
            with suppress(ValueError):
                queue.remove(node)

    def rest(self, worker: int) -> None:
        """A worker has nothing to do any more."""
        self._gone.discard(worker)
        self._idle[worker] = None
        self._changed[worker] = None

    def retire(self, worker: int) -> None:
        """A worker is gone: it runs nothing until it rests again. Its queue goes."""
        self._gone.add(worker)
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

    def _choose(self, wanted: Collection[int | None]) -> tuple[int, ...]:
        """The workers that are wanted, and for each ``None`` another one: those that are idle or have least to do."""
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
