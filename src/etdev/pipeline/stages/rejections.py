"""The reasons that partitioners state for leaving an op out of a delegate.

ExecuTorch's partitioners pass these reasons to helpers that only log them. While programs are lowered, these helpers
also note the reason on the node. The notes stay on nodes that no delegate takes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Node

_REPORTERS = (
    ("executorch.exir.backend.utils", "WhyNoPartition", "__call__"),
    ("executorch.exir.backend.utils", "WhyNoPartitionReporter", "report_reject"),
    ("executorch.backends.vulkan.partitioner.vulkan_partitioner", "VulkanSupportedOperators", "log_skip"),
)
"""Module, class and name of the methods that partitioners call with a rejected node and a reason."""
_PARTITION = ("executorch.exir.backend.partitioner", "Partitioner", "__call__")
"""Module, class and name of the method with which ExecuTorch calls any partitioner."""
_NOTES = "etdev_rejections"
"""Key of the notes in a node's ``meta``, which ExecuTorch copies together with the node."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MOST = 200
"""Maximum number of characters of a reason."""


@dataclass(frozen=True)
class _Rejection:
    node: str
    op: str
    text: str


@dataclass
class _Partitioning:
    """One call of a partitioner."""

    backend: str
    rejected: set[Node] = field(default_factory=set)


_running: ContextVar[_Partitioning | None] = ContextVar("running", default=None)


@contextmanager
def noted_rejections(backends: Mapping[int, str]) -> Iterator[None]:
    """During the block, note on each node the reasons with which partitioners reject the node.

    ``backends`` maps the ``id`` of each partitioner to the name of its backend. If a partitioner states several reasons
    for a node, only the first is noted, as in ExecuTorch's own reports.
    """
    if not backends:
        yield
        return

    def partition(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(partitioner: Any, *args: Any, **kwargs: Any) -> Any:
            backend = backends.get(id(partitioner))
            if backend is None:
                return original(partitioner, *args, **kwargs)
            token = _running.set(_Partitioning(backend))
            try:
                return original(partitioner, *args, **kwargs)
            finally:
                _running.reset(token)

        return call

    with ExitStack() as stack:
        for place in _REPORTERS:
            _replace(stack, place, _noting)
        _replace(stack, _PARTITION, partition)
        yield


def stated_reasons(node: Node) -> tuple[str, ...]:
    """Return the reasons that partitioners stated for rejecting a node, such as ``xnnpack: invalid dtype``.

    Omit reasons that were noted for a node with another name or op: ``node`` replaced that node and got its notes.
    """
    same = (node.name, op_name(node))
    return tuple(item.text for item in node.meta.get(_NOTES, ()) if (item.node, item.op) == same)


def op_name(node: Node) -> str:
    """Return the name of the op that a node calls, such as ``aten.add.Tensor``."""
    return str(getattr(node.target, "__name__", node.target))


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def report(reporter: Any, node: Node, reason: str) -> Any:
        _note(node, reason)
        return original(reporter, node, reason)

    return report


def _note(node: Node, reason: str) -> None:
    running = _running.get()  # None if the partitioner is asked which ops to decompose, before it partitions.
    if running is None or node.op != "call_function" or node in running.rejected:
        return
    running.rejected.add(node)
    rejection = _Rejection(node.name, op_name(node), f"{running.backend}: {_one_line(reason)}")
    node.meta[_NOTES] = (*node.meta.get(_NOTES, ()), rejection)


def _one_line(reason: str) -> str:
    """Return a reason on one line, of limited length, without addresses of objects in memory."""
    text = _ADDRESS.sub("", " ".join(str(reason).split())).removesuffix(".")
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _replace(
    stack: ExitStack, place: tuple[str, str, str], change: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Replace a method until ``stack`` is closed. Do nothing if its module is not imported, or lacks the method."""
    module, owner, name = place
    found = getattr(sys.modules.get(module), owner, None)
    original = vars(found).get(name) if found is not None else None
    if original is not None:
        setattr(found, name, change(original))
        stack.callback(setattr, found, name, original)
