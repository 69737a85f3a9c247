"""Comparison of the constants of two programs, including constants that the link permuted or sliced.

The link may replace copies of constants, such as ``permute_copy`` and ``slice_copy``, by new constants. To check a new
constant, this module executes the copy itself and compares the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, cast

from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.validator.domain.memory import Content
from etdev.validator.domain.symbols import CONSTANT, OPERATION, Symbols
from etdev.validator.reading import Part
from etdev.validator.semantics.movement import dims, integer, kind

_LETTERS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Maps a size in bytes to the ``memoryview`` format of unsigned integers of that size."""


class Constants:
    """Constant data of both programs, with a symbol for each blob."""

    def __init__(self, symbols: Symbols, before: m.Program, after: m.Program) -> None:
        self._symbols = symbols
        self._blobs: dict[int, Blob] = {}
        self._folded: dict[int, Blob | None] = {}
        self._segments: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._inline: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._programs = (before, after)

    def of(self, side: int, value: m.Tensor) -> tuple[int, int] | None:
        """Return the symbol of a tensor's data and the data's offset in bytes, or None if the tensor has no data."""
        if value.is_external:
            assert value.extra_tensor_info is not None
            return self._symbols.number((CONSTANT, "external", value.extra_tensor_info.fully_qualified_name)), 0
        if not value.data_buffer_idx:
            return None
        program = self._programs[side]
        if value.allocation_info is not None:
            found = program.mutable_data_segments[:1]
            return self._in_segment(side, found[0], value.data_buffer_idx) if found else None
        if program.constant_segment is not None and len(program.constant_segment.offsets) > value.data_buffer_idx:
            return self._in_segment(side, program.constant_segment, value.data_buffer_idx)
        if value.data_buffer_idx < len(program.constant_buffer):
            return self._of_blob(side, "inline", value.data_buffer_idx, program.constant_buffer, self._inline), 0
        return None

    def _in_segment(self, side: int, offsets: m.SubsegmentOffsets, index: int) -> tuple[int, int] | None:
        if index >= len(offsets.offsets):
            return None
        blobs = tuple(segment.data for segment in self._programs[side].segments)
        return self._of_blob(side, "segment", offsets.segment_index, blobs, self._segments), offsets.offsets[index]

    def _of_blob(
        self, side: int, where: str, index: int, blobs: Sequence[Blob], known: tuple[dict[int, int], dict[int, int]]
    ) -> int:
        """Return the symbol of a blob. A blob of the other program with equal data gets the same symbol."""
        found = known[side].get(index)
        if found is not None:
            return found
        blob = blobs[index]
        for symbol, other in self._blobs.items():
            if side == 1 and len(other) == len(blob) and (other is blob or other == blob):
                found = symbol
                break
        else:
            found = self._symbols.number((CONSTANT, side, where, index))
            self._blobs[found] = blob
        known[side][index] = found
        return found

    # Bytes

    def same(self, one: Content, other: Content) -> bool:
        """Return True if the bytes of both contents are known and equal."""
        mine = self.bytes_of(one)
        theirs = self.bytes_of(other)
        return mine is not None and theirs is not None and mine == theirs

    def bytes_of(self, content: Content) -> Blob | None:
        """Return the bytes of a content that consists of original, permuted or sliced constants; otherwise None."""
        pieces: list[Blob] = []
        for symbol, offset, length in content:
            found = self._bytes(symbol)
            if found is None or offset < 0 or offset + length > len(found):
                return None
            pieces.append(found.cut(offset, length))
        return Blob.joined(pieces)

    def _bytes(self, symbol: int) -> Blob | None:
        if symbol in self._blobs:
            return self._blobs[symbol]
        if symbol not in self._folded:
            self._folded[symbol] = self._fold(self._symbols.keys[symbol])
        return self._folded[symbol]

    def _fold(self, key: tuple[object, ...]) -> Blob | None:
        if key[0] != OPERATION or key[1] not in _ORDERS:
            return None
        _, name, _, kinds, *parts, _ = key
        source = cast(Part, parts[0])
        data = self.bytes_of(cast(Content, source[2]))
        ((out_kind, sizes),) = cast("tuple[tuple[tuple[object, ...], tuple[int, ...]]]", kinds)
        if data is None or not isinstance(sizes, tuple) or kind(source) != out_kind or out_kind[1] is not None:
            return None
        try:
            base, strides = _ORDERS[cast(str, name)](cast("list[Part]", parts), cast("tuple[int, ...]", dims(source)))
        except (IndexError, TypeError, ValueError):
            return None
        itemsize = cast(m.ScalarType, out_kind[0]).itemsize
        found = gathered(data.view, itemsize, base, strides, sizes) if len(strides) == len(sizes) else None
        return None if found is None else Blob(found)


def gathered(
    data: bytes | memoryview, itemsize: int, base: int, strides: Sequence[int], sizes: Sequence[int]
) -> bytes | None:
    """Return the elements that ``base``, ``strides`` and ``sizes`` select from ``data``, as consecutive bytes.

    ``base`` and ``strides`` count elements. Return None if an element is outside ``data`` or a stride is below 1.
    """
    if not prod(sizes):
        return b""
    end = base + sum(stride * (size - 1) for stride, size in zip(strides, sizes, strict=True)) + 1
    if base < 0 or end * itemsize > len(data) or any(stride < 1 for stride in strides):
        return None
    letter = _LETTERS[itemsize]
    source = memoryview(data)[: len(data) // itemsize * itemsize].cast("B").cast(letter)
    out = bytearray(prod(sizes) * itemsize)
    target = memoryview(out).cast(letter)
    length, stride = (sizes[-1], strides[-1]) if sizes else (1, 1)
    starts = [base]
    for outer, step in zip(sizes[:-1], strides[:-1], strict=True):
        starts = [start + index * step for start in starts for index in range(outer)]
    for row, start in enumerate(starts):
        target[row * length : (row + 1) * length] = source[start : start + stride * (length - 1) + 1 : stride]
    return bytes(out)


# Where the elements of an output are in the input: index of the first one, and the stride of each dimension


def _strides(sizes: Sequence[int]) -> list[int]:
    return [prod(sizes[index + 1 :]) for index in range(len(sizes))]


def _permute(parts: Sequence[Part], sizes: tuple[int, ...]) -> tuple[int, list[int]]:
    strides = _strides(sizes)
    return 0, [strides[integer(cast(Part, item))] for item in parts[1][1:]]


def _transpose(parts: Sequence[Part], sizes: tuple[int, ...]) -> tuple[int, list[int]]:
    strides = _strides(sizes)
    one, other = integer(parts[1]), integer(parts[2])
    strides[one], strides[other] = strides[other], strides[one]
    return 0, strides


def _t(parts: Sequence[Part], sizes: tuple[int, ...]) -> tuple[int, list[int]]:
    return 0, _strides(sizes)[::-1]


def _slice(parts: Sequence[Part], sizes: tuple[int, ...]) -> tuple[int, list[int]]:
    strides = _strides(sizes)
    dim = integer(parts[1], 0) % len(sizes)
    start = integer(parts[2], 0)
    start = min(max(start + sizes[dim] if start < 0 else start, 0), sizes[dim])
    base = start * strides[dim]
    strides[dim] *= integer(parts[4], 1)
    return base, strides


def _select(parts: Sequence[Part], sizes: tuple[int, ...]) -> tuple[int, list[int]]:
    strides = _strides(sizes)
    dim = integer(parts[1]) % len(sizes)
    base = (integer(parts[2]) % sizes[dim]) * strides[dim]
    del strides[dim]
    return base, strides


_ORDERS = {
    "aten::permute_copy.out": _permute,
    "aten::select_copy.int_out": _select,
    "aten::slice_copy.Tensor_out": _slice,
    "aten::t_copy.out": _t,
    "aten::transpose_copy.int_out": _transpose,
}
