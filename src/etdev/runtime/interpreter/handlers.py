"""Operators that PyTorch lacks, or defines differently from ExecuTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from etdev.devices import HOST
from etdev.runtime.errors import DeviceCopyError, RunError
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.interpreter.kernels import check_overlaps
from etdev.runtime.interpreter.scalars import FUNCTIONS
from etdev.runtime.interpreter.tensors import RunTensor

if TYPE_CHECKING:
    from etdev.runtime.interpreter.values import Values

Handler = Callable[["Values", tuple[int, ...]], None]

_MOST_BITS = 63
"""Maximum number of bits of an integer, without the sign."""


def _scalar(name: str) -> Handler:
    function = FUNCTIONS[name]

    def handle(machine: Values, args: tuple[int, ...]) -> None:
        result = function(*(machine.number(index) for index in args[:-1]))
        if isinstance(result, int) and result.bit_length() > _MOST_BITS:
            raise RunError("the result does not fit in 64 bits")
        machine.values[args[-1]] = result

    return handle


def _et_view(machine: Values, args: tuple[int, ...]) -> None:
    source, out = machine.tensor(args[0]), machine.tensor(args[2])
    sizes = machine.integers(args[1])
    count = prod(source.sizes)
    if -1 in sizes:
        rest = prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = count // rest if rest else 0
    if prod(sizes) != count:
        raise RunError(f"{source.describe()} cannot be viewed as {sizes}, because the number of elements differs")
    out.resize(sizes)
    if source.memory is None:
        raise RunError(f"{source.describe()} has no memory, so it cannot be viewed")
    out.place(source.memory, source.offset)


def _copy_index(machine: Values, args: tuple[int, ...]) -> None:
    target, row, number = machine.tensor(args[0]), machine.tensor(args[1]), machine.number(args[2])
    if not isinstance(number, int) or number < 0:
        raise RunError(f"{number!r} is not a row index")
    check_overlaps("et_copy_index", [[row]], [target], set())
    content = machine.read(row)
    if tuple(row.sizes) != tuple(target.sizes[1:]):
        raise RunError(f"{row.describe()} is not a row of {target.describe()}")
    machine.make_room(target, (number + 1, *row.sizes))
    machine.read(target)[number] = content


def _local_scalar(machine: Values, args: tuple[int, ...]) -> None:
    machine.values[args[-1]] = machine.read(machine.tensor(args[0])).item()


def _sym_size(machine: Values, args: tuple[int, ...]) -> None:
    dim = machine.number(args[1])
    sizes = machine.tensor(args[0]).sizes
    if not isinstance(dim, int) or not -len(sizes) <= dim < len(sizes):
        raise RunError(f"there is no dimension {dim} in a tensor of sizes {list(sizes)}")
    machine.values[args[-1]] = sizes[dim]


def _sym_numel(machine: Values, args: tuple[int, ...]) -> None:
    machine.values[args[-1]] = prod(machine.tensor(args[0]).sizes)


def _empty(machine: Values, args: tuple[int, ...]) -> None:
    machine.make_room(machine.tensor(args[-1]), machine.integers(args[0]))


def _identity(machine: Values, args: tuple[int, ...]) -> None:
    """Copy a tensor. The element type or dimension order may change."""
    source, out = machine.tensor(args[0]), machine.tensor(args[-1])
    check_overlaps("a copy", [[source]], [out], set())
    content = machine.read(source)
    machine.make_room(out, source.sizes)
    machine.write(out, content, convert=True)


def _as_strided_copy(machine: Values, args: tuple[int, ...]) -> None:
    """Copy a strided view of a tensor. The offset counts elements from the first element of that tensor."""
    source, out = machine.tensor(args[0]), machine.tensor(args[-1])
    sizes, steps = machine.integers(args[1]), machine.integers(args[2])
    start = machine.values[args[3]] or 0
    check_overlaps("aten::as_strided_copy.out", [[source]], [out], set())
    content = machine.read(source)
    last = start + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    if prod(sizes) and (start < 0 or min(steps, default=0) < 0 or last >= content.numel()):
        raise RunError(f"sizes {sizes}, strides {steps} and offset {start} are out of bounds of {source.describe()}")
    machine.make_room(out, sizes)
    if prod(sizes):
        machine.write(out, content.as_strided(sizes, steps, content.storage_offset() + start))


def _copy_(machine: Values, args: tuple[int, ...]) -> None:
    """Copy with broadcasting and type conversion, like ``torch.Tensor.copy_``."""
    target, source = machine.tensor(args[0]), machine.tensor(args[1])
    if target.same_bytes(source):
        return
    check_overlaps("aten::copy_", [[source]], [target], set())
    machine.write(target, machine.read(source).broadcast_to(target.sizes), convert=True)


def _index_put_(machine: Values, args: tuple[int, ...]) -> None:
    import torch

    target = machine.tensor(args[0])
    for index in args[1:3]:
        check_overlaps("aten::index_put_", [machine.tensors_of(index)], [target], set())
    content = machine.read(target)
    indices, values, accumulate = (machine.content(index) for index in args[1:4])
    machine.write(target, torch.ops.aten.index_put.default(content, indices, values, accumulate))


def _h2d_copy(machine: Values, args: tuple[int, ...]) -> None:
    source, out = _copied(machine, args)
    if source.device != HOST or out.device == HOST:
        raise RunError(f"a host-to-device copy cannot copy {_where(source)} to {_where(out)}")
    if out.nbytes:
        memory = out.memory
        assert memory is not None
        if memory.allocator is None:
            raise RunError(f"{_where(out)} has no allocator")
        with _naming(out):
            memory.check_writable()
            memory.allocator.copy_host_to_device(out.start, _host_part(source), out.nbytes, out.device.index)


def _d2h_copy(machine: Values, args: tuple[int, ...]) -> None:
    source, out = _copied(machine, args)
    if source.device == HOST or out.device != HOST:
        raise RunError(f"a device-to-host copy cannot copy {_where(source)} to {_where(out)}")
    if out.nbytes:
        memory = source.memory
        assert memory is not None
        if memory.allocator is None:
            raise RunError(f"{_where(source)} has no allocator")
        with _naming(source):
            memory.allocator.copy_device_to_host(_host_part(out), source.start, out.nbytes, source.device.index)


def _copied(machine: Values, args: tuple[int, ...]) -> tuple[RunTensor, RunTensor]:
    """Resize the target of a copy between host and device; return source and target.

    Raise an error if the two tensors do not match.
    """
    source, out = machine.tensor(args[0]), machine.tensor(args[-1])
    if source.declared.scalar_type is not out.declared.scalar_type or source.dim_order != out.dim_order:
        raise RunError(f"{source.describe()} and {out.describe()} differ in element type or dimension order")
    machine.make_room(out, source.sizes)
    for tensor in (source, out):
        if tensor.nbytes and tensor.memory is None:
            raise RunError(f"{_where(tensor)} has no memory")
        if tensor.memory is not None and tensor.offset + tensor.nbytes > tensor.memory.size:
            raise RunError(f"{_where(tensor)} extends beyond the end of its memory")
    return source, out


@contextmanager
def _naming(tensor: RunTensor) -> Iterator[None]:
    """Add the tensor's description, device and planned buffer to each :class:`DeviceCopyError` in the block."""
    try:
        yield
    except DeviceCopyError as error:
        place = tensor.declared.allocation_info
        planned = f" in planned buffer {place.memory_id}" if place else ""
        raise DeviceCopyError(f"{error.message}; the tensor is {_where(tensor)}{planned}", hint=error.hint) from error


def _host_part(tensor: RunTensor) -> memoryview:
    return host_bytes(tensor.raw(HOST), writable=False)


def _where(tensor: RunTensor) -> str:
    return f"{tensor.describe()} on {tensor.device}"


def _handlers() -> dict[str, Handler]:
    found: dict[str, Handler] = {f"executorch_prim::{name}": _scalar(name) for name in FUNCTIONS}
    found |= {
        "executorch_prim::et_view.default": _et_view,
        "executorch_prim::et_copy_index.tensor": _copy_index,
        "aten::_local_scalar_dense": _local_scalar,
        "aten::sym_size.int": _sym_size,
        "aten::sym_numel": _sym_numel,
        "aten::empty.out": _empty,
        "aten::as_strided_copy.out": _as_strided_copy,
        "aten::copy_": _copy_,
        "aten::index_put_": _index_put_,
        "aten::_to_copy.out": _identity,
        "dim_order_ops::_empty_dim_order.out": _empty,
        "dim_order_ops::_to_dim_order_copy.out": _identity,
        "dim_order_ops::_clone_dim_order.out": _identity,
        "et_copy::_h2d_copy.out": _h2d_copy,
        "et_copy::_d2h_copy.out": _d2h_copy,
    }
    return found


HANDLERS = _handlers()
"""Maps an operator to the function that executes it.

The function takes the running method, and the indices of the call's values.
"""
