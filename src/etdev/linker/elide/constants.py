"""Folding of copies of constants: the file holds the permuted or sliced constant, and the copy is removed.

``permute_copy``, ``transpose_copy``, ``t_copy``, ``slice_copy``, ``select_copy``, ``split_copy`` and ``view_copy`` of a
constant move bytes and compute nothing. Their outputs become constants. An output that is a contiguous range of the
original's bytes takes no space in the file. Any other output replaces the original if nothing else uses the original.
Otherwise, the file contains both, or the copy stays if the file must not grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from etdev.decisions import Elision
from etdev.linker.edit import frees, with_instructions
from etdev.linker.elide.runs import Numbers
from etdev.linker.merged import Refused
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import arguments, outputs, tensors
from etdev.program.analysis.storage import MethodMemory
from etdev.program.blob import Blob
from etdev.program.constants import Run, constant_count, constant_data


@dataclass(frozen=True)
class Content:
    """Elements of a constant, as a strided view of a blob or of another constant."""

    base: Blob | Content
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in elements, by dimension."""
    offset: int
    """Offset of the first element, in elements."""
    itemsize: int
    """Bytes per element."""
    index: int = 0
    """``data_buffer_idx`` of ``base`` if ``base`` is a constant of the program; otherwise 0."""

    def data(self, *, sizes_only: bool) -> Blob | Run:
        """Return the bytes of the elements in row-major order. If ``sizes_only`` is set, all bytes may be 0.

        The result is a :class:`Run` if the bytes are a contiguous range of an existing constant.
        """
        size = prod(self.sizes) * self.itemsize
        if self.index and self.is_run:
            return Run(self.index, self.offset * self.itemsize, size)
        return Blob(bytes(size)) if sizes_only else self.blob

    @property
    def is_run(self) -> bool:
        """Return whether the elements are contiguous in ``base``, in row-major order."""
        return prod(self.sizes) == 0 or all(
            size == 1 or stride == plain
            for size, stride, plain in zip(self.sizes, self.strides, row_major(self.sizes), strict=True)
        )

    @cached_property
    def blob(self) -> Blob:
        """Return the bytes of the elements in row-major order, as a blob."""
        found = self.base if isinstance(self.base, Blob) else self.base.blob
        if self.is_run:
            return found.cut(self.offset * self.itemsize, prod(self.sizes) * self.itemsize)
        import numpy as np

        elements = np.frombuffer(found.view, dtype=f"V{self.itemsize}")[self.offset :]
        strides = [stride * self.itemsize for stride in self.strides]
        laid = np.lib.stride_tricks.as_strided(elements, self.sizes, strides, writeable=False)
        return Blob(np.ascontiguousarray(laid).tobytes())


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous row-major tensor."""
    return tuple(prod(sizes[dim + 1 :]) for dim in range(len(sizes)))


def fold_constants(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Replace copies of constants by constants.

    Copies that only change the shape are included if ``options.elide`` contains ``views``. The method must belong to an
    object program, in which only aliases share bytes.
    """
    if "constants" not in options.elide:
        return Changed(method)
    folding = _Folding(method.plan, method.memory, lambda tensor: constant_data(work.program, tensor), options.growth)
    for position, call, name in method.kernels():
        if name in _RULES and ("views" in options.elide or name not in _VIEWS):
            folding.consider(position, call, name)
    return folding.result(method, constant_count(work.program), sizes_only=options.sizes_only)


@dataclass(slots=True)
class _Folding:
    plan: m.ExecutionPlan
    memory: MethodMemory
    data: Callable[[m.Tensor], Blob | None]
    """Function that returns the bytes of a constant, or None if the bytes are not in the program."""
    grow: bool
    decisions: list[Elision] = field(default_factory=list)
    _contents: dict[int, Content] = field(default_factory=dict)
    """Maps each tensor that becomes a constant to its content."""
    _removed: dict[int, tuple[m.Instruction, ...]] = field(default_factory=dict)
    _grown: bool = False
    _numbers: Numbers = field(init=False)
    _users: Counter[tuple[object, ...]] = field(init=False)
    """Maps the key of a constant to the number of arguments and move sources that refer to the constant."""
    _pinned: frozenset[int] = field(init=False)
    """Values that cannot become constants: inputs, outputs and sources of moves."""
    _freed: dict[int, list[int]] = field(init=False)
    """Maps each freed value to the positions of the instructions that free it."""

    def __post_init__(self) -> None:
        self._numbers = Numbers(self.plan)
        flow = self.memory.reaching.flow
        self._users = Counter(
            _constant_key(self.plan.tensor(value))
            for call in flow.instructions
            for value in _tensors_of(self.plan, call)
        )
        moves = {call.move_from for call in flow.instructions if isinstance(call, m.MoveCall)}
        self._pinned = frozenset({*self.plan.inputs, *self.plan.outputs, *moves})
        self._freed = frees(flow.instructions)

    def consider(self, position: int, call: m.KernelCall, name: str) -> None:
        """Decide whether the outputs of this copy become constants, and record the decision."""
        given, outs = arguments(self.plan, call.args), outputs(self.plan, call.args)
        source = self._content(given[0]) if given and outs else None
        if source is None:
            return
        nbytes = sum(self.plan.tensor(out).nbytes for out in outs)
        try:
            if any(self.plan.tensor(out).scalar_type is not self.plan.tensor(given[0]).scalar_type for out in outs):
                raise Refused("its output has an unexpected type or shape")
            found = _RULES[name](_Copy(source, given, self._numbers, [self.plan.tensor(out) for out in outs]))
            for out, content in zip(outs, found, strict=True):
                self._require(position, out, content)
            self._require_growth(given[0], found)
        except Refused as reason:
            if name not in _VIEWS:
                self.decisions.append(Elision(position, name, "kept", nbytes, str(reason), "constants"))
            return
        self._contents.update(zip(outs, found, strict=True))
        self._removed[position] = ()
        self._removed.update((free, ()) for out in outs for free in self._freed.get(out, ()))
        if name not in _VIEWS:
            self.decisions.append(Elision(position, name, "constant", nbytes, kind="constants"))
        else:
            self.decisions.append(Elision(position, name, "constant", nbytes))

    def result(self, method: Method, count: int, *, sizes_only: bool) -> Changed:
        """Return the method with all decisions applied; ``count`` is the number of constants in the program."""
        values = list(self.plan.values)
        known: dict[tuple[object, ...], int] = {}
        added: list[Blob | Run] = []
        for value, content in self._contents.items():
            data = content.index if content.is_run and not content.offset else 0
            key = (id(content.base), content.sizes, content.strides, content.offset, content.itemsize)
            if not data and key not in known:
                known[key] = count + len(added)
                added.append(content.data(sizes_only=sizes_only))
            values[value] = replace(
                self.plan.tensor(value),
                data_buffer_idx=data or known[key],
                allocation_info=None,
                extra_tensor_info=None,
            )
        plan, moved = with_instructions(replace(self.plan, values=tuple(values)), self._removed)
        return Changed(replace(method, plan=plan, added=tuple(added), grown=self._grown), moved, self.decisions)

    def _content(self, value: int) -> Content | None:
        """Return the content of a value that is or becomes a constant, or None for any other value."""
        if value in self._contents:
            return self._contents[value]
        tensor = self.plan.values[value]
        if not isinstance(tensor, m.Tensor) or not _is_plain(tensor) or value in self.memory.reaching.references:
            return None  # A move or a view may have made it refer to another tensor.
        blob = self.data(tensor)
        if blob is None:
            return None
        return Content(
            blob, tensor.sizes, row_major(tensor.sizes), 0, tensor.scalar_type.itemsize, tensor.data_buffer_idx
        )

    def _require(self, position: int, out: int, content: Content) -> None:
        """Raise :class:`Refused` unless the output can become a constant with the content ``content``."""
        tensor = self.plan.tensor(out)
        if not _is_plain(tensor) or tensor.sizes != content.sizes or tensor.scalar_type.itemsize != content.itemsize:
            raise Refused("its output has an unexpected type or shape")
        if not tensor.nbytes:
            raise Refused("its output is empty")
        if out in self._pinned:
            raise Refused("its output is an output of the method, or the source of a move")
        if out not in self.memory.of or out in self.memory.reaching.references:
            raise Refused("the memory of its output is not planned")
        storage = self.memory.storages[self.memory.of[out]]
        if storage.persistent or storage.values != (out,) or storage.writes != (position + 1,):
            raise Refused("its output shares bytes with other values")

    def _require_growth(self, source: int, found: Sequence[Content]) -> None:
        """Raise :class:`Refused` if the file would contain the original and the result, although ``grow`` is False."""
        if all(content.is_run for content in found):
            return
        if source not in self._contents and self._users[_constant_key(self.plan.tensor(source))] > 1:
            if not self.grow:
                raise Refused("the file would grow by more than the memory shrinks")
            self._grown = True


def _tensors_of(plan: m.ExecutionPlan, call: m.Instruction) -> Iterator[int]:
    match call:
        case m.KernelCall() | m.DelegateCall():
            yield from tensors(plan, call.args)
        case m.MoveCall():
            yield from tensors(plan, (call.move_from,))


def _constant_key(tensor: m.Tensor) -> tuple[object, ...]:
    return (tensor.is_constant, tensor.is_external, tensor.data_buffer_idx)


def _is_plain(tensor: m.Tensor) -> bool:
    return tensor.is_static and tensor.is_in_order


# Rules that compute the content of a copy's outputs


@dataclass(frozen=True, slots=True)
class _Copy:
    source: Content
    given: tuple[int, ...]
    numbers: Numbers
    outs: Sequence[m.Tensor]

    def number(self, argument: int, absent: int | None = None) -> int:
        if argument >= len(self.given):
            raise Refused("it has unexpected arguments")
        return self.numbers.at(self.given[argument], absent)

    def dim(self, argument: int) -> int:
        return self.index(self.number(argument, 0), len(self.source.sizes))

    @staticmethod
    def index(number: int, count: int) -> int:
        """Return a nonnegative index; a negative ``number`` counts from the end, as in Python."""
        number += count if number < 0 else 0
        if not 0 <= number < count:
            raise Refused("it has unexpected arguments")
        return number


def _viewed(copy: _Copy) -> list[Content]:
    (out,) = copy.outs
    if prod(out.sizes) != prod(copy.source.sizes):
        raise Refused("its output has an unexpected type or shape")
    strides = row_major(out.sizes)
    if copy.source.is_run:
        return [replace(copy.source, sizes=out.sizes, strides=strides)]
    return [Content(copy.source, out.sizes, strides, 0, copy.source.itemsize)]


def _reordered(copy: _Copy, order: Sequence[int]) -> list[Content]:
    source = copy.source
    if sorted(order) != list(range(len(source.sizes))):
        raise Refused("it has unexpected arguments")
    sizes, strides = (tuple(found[dim] for dim in order) for found in (source.sizes, source.strides))
    return [replace(source, sizes=sizes, strides=strides)]


def _permuted(copy: _Copy) -> list[Content]:
    rank = len(copy.source.sizes)
    dims = copy.numbers.list(copy.given[1]) if len(copy.given) > 1 else ()
    return _reordered(copy, [dim + rank if dim < 0 else dim for dim in dims])


def _transposed(copy: _Copy) -> list[Content]:
    order = list(range(len(copy.source.sizes)))
    if len(copy.given) > 2:
        one, other = copy.dim(1), copy.dim(2)
        order[one], order[other] = order[other], order[one]
    else:
        order.reverse()
    return _reordered(copy, order)


def _part(source: Content, dim: int, start: int, size: int, step: int = 1) -> Content:
    sizes, strides = list(source.sizes), list(source.strides)
    offset = source.offset + start * strides[dim]
    sizes[dim], strides[dim] = size, strides[dim] * step
    return replace(source, sizes=tuple(sizes), strides=tuple(strides), offset=offset)


def _sliced(copy: _Copy) -> list[Content]:
    dim, step = copy.dim(1), copy.number(4, 1)
    count = copy.source.sizes[dim]
    start, end = copy.number(2, 0), copy.number(3, count)
    start, end = (min(max(at + count if at < 0 else at, 0), count) for at in (start, end))
    if step < 1 or end <= start:
        raise Refused("it has unexpected arguments")
    return [_part(copy.source, dim, start, (end - start + step - 1) // step, step)]


def _selected(copy: _Copy) -> list[Content]:
    dim = copy.dim(1)
    found = _part(copy.source, dim, copy.index(copy.number(2), copy.source.sizes[dim]), 1)
    return [_without(found, dim)]


def _without(content: Content, dim: int) -> Content:
    sizes, strides = (found[:dim] + found[dim + 1 :] for found in (content.sizes, content.strides))
    return replace(content, sizes=sizes, strides=strides)


def _split(copy: _Copy) -> list[Content]:
    dim, start, found = copy.dim(2), 0, []
    for size in copy.numbers.pieces(copy.given[1], copy.source.sizes[dim]):
        found.append(_part(copy.source, dim, start, size))
        start += size
    if len(found) != len(copy.outs):
        raise Refused("it has unexpected arguments")
    return found


def _unbound(copy: _Copy) -> list[Content]:
    dim = copy.dim(1)
    if len(copy.outs) != copy.source.sizes[dim]:
        raise Refused("it has unexpected arguments")
    return [_without(_part(copy.source, dim, index, 1), dim) for index in range(len(copy.outs))]


_VIEWS = frozenset(
    {
        "aten::alias_copy.out",
        "aten::detach_copy.out",
        "aten::lift_fresh_copy.out",
        "aten::squeeze_copy.dim_out",
        "aten::squeeze_copy.dims_out",
        "aten::unsqueeze_copy.out",
        "aten::view_copy.out",
        "dim_order_ops::_clone_dim_order.out",
    }
)
_RULES: dict[str, Callable[[_Copy], list[Content]]] = {
    **dict.fromkeys(_VIEWS, _viewed),
    "aten::permute_copy.out": _permuted,
    "aten::t_copy.out": _transposed,
    "aten::transpose_copy.int_out": _transposed,
    "aten::slice_copy.Tensor_out": _sliced,
    "aten::select_copy.int_out": _selected,
    "aten::split_copy.Tensor_out": _split,
    "aten::split_with_sizes_copy.out": _split,
    "aten::unbind_copy.int_out": _unbound,
}
