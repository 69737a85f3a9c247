"""Arguments of tasks: arrays to copy, memory and objects on a worker, and plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from etdev.errors import UsageError
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.orchestrator.arrays import (
    dense,
    describe_array,
    element_size,
    is_array,
    item_size,
)
from etdev.runtime.orchestrator.errors import HandleError, PlacementError
from etdev.runtime.orchestrator.handles import (
    Access,
    Handle,
    InOut,
    ObjectHandle,
    Out,
    Resident,
    ResidentObject,
    Use,
    is_whole,
)
from etdev.runtime.orchestrator.messages import ArrayArgument, MemoryArgument, ObjectArgument

_MOST_DIMENSIONS = 32
"""Maximum number of dimensions of an array. Equal to numpy's limit."""
_MOST_ELEMENTS = (1 << 59) - 1
"""Maximum number of elements of an array; with 16 bytes per element, the size in bytes fits in 63 bits."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of one task, in the form that workers and the scheduler need."""

    sent: tuple[Any, ...]
    uses: tuple[Use, ...]
    owners: Mapping[int, str]
    """Maps a worker to the description of an argument in the worker's memory, for messages."""
    back: Mapping[int, Any]
    """Maps the position of an output argument to the caller's array that receives the output."""
    handles: tuple[Handle | ObjectHandle, ...]
    nbytes: int
    """Bytes of host arrays to copy to or from the worker."""
    copies_to: int
    copies_avoided: int

    def worker(self, wanted: int | None) -> int | None:
        """Return the worker on which the task must run; None for any worker.

        Raises :class:`PlacementError` if two arguments are on different workers, or an argument is not on worker
        ``wanted``.
        """
        if len(self.owners) > 1:
            (one, first), (other, second) = sorted(self.owners.items())[:2]
            raise PlacementError(
                f"{first} is on worker {one}, but {second} is on worker {other}",
                hint="copy one of them to the other worker, or submit a group",
            )
        for owner, what in self.owners.items():
            if wanted not in (None, owner):
                raise PlacementError(
                    f"the task is for worker {wanted}, but its {what} is on worker {owner}",
                    hint=f"submit the task with `worker={owner}` or without `worker`",
                )
            return owner
        return wanted


def read_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
    """Check and convert the arguments of a task. Raises :class:`~etdev.errors.UsageError` for an invalid argument."""
    for name, value in kwargs.items():
        if isinstance(value, Resident | ResidentObject | Out | InOut | Handle | ObjectHandle):
            raise UsageError(
                f"the argument {name!r} is a handle or an output, but is passed by keyword",
                hint="pass handles and outputs by position",
            )
    sent: list[Any] = []
    uses: list[Use] = []
    owners: dict[int, str] = {}
    back: dict[int, Any] = {}
    handles: list[Handle | ObjectHandle] = []
    nbytes = copies = avoided = 0
    for position, value in enumerate(args):
        match value:
            case Handle() | ObjectHandle():
                raise HandleError(
                    f"argument {position} is a handle without an access", hint="pass `handle.resident('read')`"
                )
            case Resident() | ResidentObject():
                handles.append(value.handle)
                owners.setdefault(value.handle.worker, f"argument {position}")
                sent.append(_stays(value, f"argument {position}"))
                uses.append(_use(value, sent[-1]))
                avoided += isinstance(value, Resident)
            case Out() | InOut():
                sent.append(_array(value.array, position, read=isinstance(value, InOut), back=True))
                back[position] = value.array
                size = len(host_bytes(value.array, writable=True))
                nbytes += size * (1 + isinstance(value, InOut))
                copies += isinstance(value, InOut)
            case _ if is_array(value):
                sent.append(_array(value, position, read=True, back=False))
                nbytes += len(host_bytes(sent[-1].data))
                copies += 1
            case _:
                sent.append(value)
    return Arguments(tuple(sent), tuple(uses), owners, back, tuple(handles), nbytes, copies, avoided)


def read_members(
    args_list: Sequence[Sequence[Any]], workers: Sequence[int | None] | None
) -> tuple[list[Arguments], tuple[int | None, ...]]:
    """Check and convert the arguments of each member of a group; return the arguments and worker of each member.

    Raises :class:`~etdev.errors.UsageError` with the member's number if an argument is invalid.
    """
    places = [None] * len(args_list) if workers is None else list(workers)
    if len(args_list) != len(places) or not places:
        raise PlacementError(f"the group has {len(args_list)} lists of arguments, but {len(places)} workers")
    every: list[Arguments] = []
    wanted: list[int | None] = []
    for number, (args, place) in enumerate(zip(args_list, places, strict=True)):
        try:
            if not isinstance(args, list | tuple):
                raise PlacementError(f"the arguments must be a list, but are a {type(args).__name__}")
            every.append(read_arguments(args, {}))
            wanted.append(every[-1].worker(place))
        except UsageError as error:
            error.where = f"member {number} of the group"
            raise
    return every, tuple(wanted)


def write_back(arguments: Arguments, outputs: Mapping[int, Any]) -> Mapping[int, Any]:
    """Write outputs to the caller's arrays; return these arrays by argument position."""
    for position, data in outputs.items():
        if len(data):
            host_bytes(arguments.back[position], writable=True)[:] = data
    return arguments.back


def _stays(argument: Resident | ResidentObject, where: str) -> MemoryArgument | ObjectArgument:
    if isinstance(argument, ResidentObject):
        return ObjectArgument(argument.handle.buffer)
    handle, dtype = argument.handle, argument.dtype
    try:
        size = element_size(dtype)
        if handle.offset % size:
            raise UsageError(
                f"an array of {dtype} begins at byte {handle.offset}, which is not a multiple of {size}: "
                f"{handle.describe()}",
                hint="copy the bytes to new memory, because some devices cannot read misaligned elements",
            )
        shape = _whole(handle, dtype, size) if argument.shape is None else _shape(argument.shape)
        nbytes = prod(shape) * size
        if nbytes > handle.size:
            raise UsageError(
                f"an array of {dtype} with shape {list(shape)} takes {nbytes} bytes, "
                f"which do not fit in {handle.describe()}"
            )
    except UsageError as error:
        error.where = where
        raise
    return MemoryArgument(handle.buffer, handle.offset, nbytes, dtype, shape, argument.access is not Access.READ)


def _use(argument: Resident | ResidentObject, sent: Any) -> Use:
    """Return the task's :class:`Use` of an argument. The use may cover fewer bytes than the argument's handle."""
    if isinstance(argument, ResidentObject):
        return argument.handle.use(argument.access)
    return argument.handle.view(0, sent.size).use(argument.access)


def _whole(handle: Handle, dtype: str, size: int) -> tuple[int, ...]:
    if handle.size % size:
        raise UsageError(
            f"{handle.size} bytes are not a whole number of {dtype} elements: {handle.describe()}",
            hint="select a whole number of elements: `handle.view(offset, size)`",
        )
    return (handle.size // size,)


def _shape(given: Any) -> tuple[int, ...]:
    """Check a shape from the caller, and return it as a tuple of integers."""
    shape = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    if shape is None or len(shape) > _MOST_DIMENSIONS or not all(is_whole(size) and size >= 0 for size in shape):
        raise UsageError(
            f"{given!r} is not a shape",
            hint=f"use at most {_MOST_DIMENSIONS} sizes, each an integer that is not negative: `shape=(2, 4)`",
        )
    if prod(max(size, 1) for size in shape) > _MOST_ELEMENTS:
        raise UsageError(f"the shape {list(shape)} is larger than any memory")
    return tuple(int(size) for size in shape)


def _array(value: Any, position: int, *, read: bool, back: bool) -> ArrayArgument:
    if not is_array(value):
        raise UsageError(f"argument {position} is a {type(value).__name__}, but an output must be an array")
    dtype, shape = describe_array(value)
    item_size(dtype)
    return ArrayArgument(dtype, shape, bytes(host_bytes(dense(value))) if read else None, back)
