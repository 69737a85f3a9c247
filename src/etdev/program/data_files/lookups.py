"""Names of the data that a program needs for its constants and its delegates.

Only a backend knows the content of its blob. For blobs of known formats, this module reads the names that delegates
look up. For all other blobs, the names are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.delegates.xnnpack_graph import xnnpack_graph

_MOST_KEYS_OF_AOTI = 64 << 10
"""Maximum size in bytes of a blob of AOTInductor. The names in a larger blob are not read.

A blob contains two keys of less than a hundred bytes each. The delegate's data is stored under these keys.
"""
_AOTI_SUFFIXES = ("_so_blob", "_weights_blob")


@dataclass(frozen=True, slots=True)
class MissingData:
    """Data that a program needs but that is in no file."""

    name: str
    user: str
    """Part of the program that needs the data, such as ``the delegate XnnpackBackend of method 'forward'``."""

    def __str__(self) -> str:
        return f"{self.name!r}, which {self.user} needs, is in no file"


def missing_data(
    program: m.Program, held: Collection[str] = (), lookups: Mapping[str, Collection[str]] | None = None
) -> Iterator[MissingData]:
    """Yield data that a program needs but that is neither in the program nor in its data files.

    Each name is reported once, for its first user. ``held`` contains the names in the data files. ``lookups`` maps
    a method to names that its delegates look up. The map may lack names that etdev can read from the blobs.
    """
    found = {*held, *(item.key for item in program.named_data)}
    for name, user in _needs(program, lookups or {}):
        if name not in found:
            found.add(name)
            yield MissingData(name, user)


def delegate_lookups(program: m.Program, delegate: m.BackendDelegate) -> tuple[str, ...] | None:
    """Return the names of the data that a delegate looks up, or None if the blob does not state the names."""
    read = _READERS.get(delegate.id)
    if read is None:
        return None
    return read(program.delegate_data(delegate))


def _needs(program: m.Program, lookups: Mapping[str, Collection[str]]) -> Iterator[tuple[str, str]]:
    for plan in program.execution_plan:
        for value, tensor in plan.tensors():
            info = tensor.extra_tensor_info
            if tensor.is_external and info is not None:
                yield info.fully_qualified_name or "", f"value {value} of method {plan.name!r}"
        for delegate in plan.delegates:
            for name in delegate_lookups(program, delegate) or ():
                yield name, f"the delegate {delegate.id} of method {plan.name!r}"
        for name in lookups.get(plan.name, ()):
            yield name, f"a delegate of method {plan.name!r}"


def _xnnpack(blob: Blob) -> tuple[str, ...] | None:
    graph = xnnpack_graph(blob)
    return None if graph is None else tuple(dict.fromkeys(filter(None, graph.constant_data)))


def _aoti(blob: Blob) -> tuple[str, ...] | None:
    """Read the two lines of an AOTInductor delegate's blob: the names of the delegate's library and weights."""
    if len(blob) > _MOST_KEYS_OF_AOTI:
        return None
    try:
        names = tuple(bytes(blob).decode().split("\n"))
    except UnicodeDecodeError:
        return None
    fits = len(names) == len(_AOTI_SUFFIXES) and all(map(str.endswith, names, _AOTI_SUFFIXES))
    return names if fits else None


def _nothing(_: Blob) -> tuple[str, ...]:
    return ()


_READERS: Mapping[str, Callable[[Blob], tuple[str, ...] | None]] = {
    "XnnpackBackend": _xnnpack,
    "CudaBackend": _aoti,
    "MetalBackend": _aoti,
    "EtdevReferenceBackend": _nothing,
}
