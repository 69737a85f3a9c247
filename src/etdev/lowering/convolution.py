"""Convolutions as matrix products.

The portable kernel computes the address of every factor again and again. The replacement has two steps. First, one
``as_strided_copy`` writes the input's windows to the columns of a matrix. Then, a matrix product with the weight, which
already is a matrix in memory, computes the output. A 1x1 convolution skips the first step, because its input already is
that matrix.

The matrix of columns takes memory. If a convolution would raise the peak of the method, it is tiled by rows of the
output. If the tiles of rows have to be concatenated, it is also tiled by groups of channels. A convolution keeps the
portable kernel if the method would otherwise need more memory than with the stock lowering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from etdev.lowering.convolution_sizes import BYTES, Convolution, sizes_of
from etdev.lowering.graph import INSTRUCTION_BYTES, Editor, arguments, value
from etdev.lowering.occupancy import kind_of

if TYPE_CHECKING:
    from torch.fx import Node

# Nanoseconds, measured in the stock runtime. _NAIVE: one multiplication in the portable kernel. _WALK: one element that
# as_strided_copy writes. _PRODUCT: one multiplication in a matrix product. _SUM: one element of a broadcast sum or of a
# concatenation. _CALL: one kernel call.
_NAIVE, _WALK, _PRODUCT, _SUM, _CALL = 4.0, 0.7, 0.08, 0.6, 1500.0
_SLACK = 1.03
"""Factor between successive memory limits, which are tried in turn.

The first limit exceeds the lowest possible memory by the same factor, to avoid very many tiles.
"""

_MOST_PIECES = 256
"""Maximum number of tiles of a convolution. Each tile adds a few hundred bytes to the file."""

_FEW_CALLS = 16
"""Maximum number of kernel calls per sample of the tilings that :func:`workspace` considers."""
_WORTH = 1.5
"""Minimum estimated speedup for which a convolution is replaced."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A tiling of a convolution, with the memory and the time that it needs."""

    parts: int
    """Number of parts into which the output's channels are divided. In a grouped convolution, groups are divided."""
    bands: int
    """Number of bands of neighbouring output rows, or of neighbouring columns if the output has a single row."""
    pads_first: bool
    """True if the whole input is padded once. False if the input of each tile is padded."""
    memory: int
    """Peak number of bytes in use during the convolution, without unrelated tensors."""
    time: float
    """Estimated time in nanoseconds."""
    calls: int = 1
    """Number of kernel calls."""


@dataclass(frozen=True, slots=True)
class _Options:
    """A convolution that can become matrix products, with its tilings that fit in the memory limit."""

    node: Node
    sizes: Convolution
    others: int
    """Number of bytes of unrelated tensors that are in use during the convolution."""
    ways: list[Pieces]


def multiply_matrices(editor: Editor) -> int:
    """Replace each convolution that is faster as matrix products. Return the number of replaced convolutions."""
    options, left, floor = _possible(editor)
    room = _room(editor, options, floor)
    decided = [(item.node, item.sizes, fastest(item.ways, room - item.others)) for item in options]
    whole = [fastest(item.ways, editor.limit - item.others) for item in options]
    editor.left += left
    editor.is_tiled |= any(pieces.calls > other.calls for (_, _, pieces), other in zip(decided, whole, strict=True))
    for node, sizes, pieces in decided:
        with editor.before(node):
            editor.replace(node, _convolved(editor, node, sizes, pieces))
    return len(decided)


def price(editor: Editor) -> tuple[int, int]:
    """Return the cost of a graph: the number of convolutions without a fitting tiling, and a number of bytes.

    The second number is the peak memory plus the bytes of added instructions.
    """
    if "convolution" not in editor.settings.names:
        return 0, editor.occupancy().peak()
    options, left, floor = _possible(editor)
    return len(left), _cost(options, floor, _room(editor, options, floor))


def workspace(node: Node, axis: int = 0, size: int | None = None) -> int:
    """Return the bytes that a convolution needs besides its input and its output.

    The figure is for a convolution that is computed as matrix products with few kernel calls. Return 0 for other ops,
    and for convolutions that keep the portable kernel. ``axis`` and ``size`` are for a tile of ``size`` elements along
    an axis of the output.
    """
    if kind_of(node) != "convolution":
        return 0
    sizes = sizes_of(node)
    if sizes is not None and size is not None:
        sizes = sizes.tile(axis, size)
    return 0 if sizes is None else _workspace(sizes)


@cache
def _workspace(sizes: Convolution) -> int:
    ways = possible_ways(sizes, input_stays=False)
    few = [way.memory for way in ways if way.calls <= _FEW_CALLS * sizes.samples]
    return max(0, min(few) - sizes.input_bytes - sizes.output_bytes) if few else 0


def _possible(editor: Editor) -> tuple[list[_Options], tuple[int, ...], int]:
    """Return ``(options, left, floor)``.

    ``options`` has the convolutions to replace. ``left`` has an estimate for each convolution whose tilings all exceed
    the memory limit: the peak in bytes with the tiling that needs the least memory. ``floor`` is the peak in bytes of
    all ops that are not in ``options``.
    """
    occupancy = editor.occupancy()
    sizes = {node: found for node in editor.calls("convolution.default") if (found := sizes_of(node)) is not None}
    options: list[_Options] = []
    left: list[int] = []
    for node, found in sizes.items():
        freed = [arguments(node)[0]] if occupancy.ends_at(arguments(node)[0], node) else []
        others = occupancy.during(node) - sum(value(item).numel() * BYTES for item in [node, *freed])
        possible = possible_ways(found, input_stays=not freed)
        ways = [way for way in possible if others + way.memory <= editor.limit]
        if ways:
            options.append(_Options(node, found, others, ways))
        elif possible:
            left.append(others + min(way.memory for way in possible))
    return options, tuple(left), occupancy.peak(without={item.node for item in options})


def _room(editor: Editor, options: Sequence[_Options], floor: int) -> int:
    """Return the memory limit in bytes for all convolutions. Each convolution uses the fastest tiling that fits."""
    least = [item.others + min(way.memory for way in item.ways) for item in options]
    lowest = int(min(max((floor, *(size * _SLACK for size in least))), editor.limit))
    if editor.settings.tiling == "always" or not options:
        return lowest
    if editor.settings.tiling == "off":
        return editor.limit
    steps = range(round(log(max(editor.limit, 1) / max(lowest, 1), _SLACK)) + 1)
    rooms = [min(int(lowest * _SLACK**step), editor.limit) for step in steps]
    return min((*rooms, editor.limit), key=lambda room: _cost(options, floor, room))


def _cost(options: Sequence[_Options], floor: int, room: int) -> int:
    """Return the cost in bytes of the fastest tilings that fit in ``room``.

    The cost is the peak memory, which is at least ``floor``, plus the bytes of the added instructions.
    """
    chosen = [(item.others, fastest(item.ways, room - item.others)) for item in options]
    memory = max((floor, *(others + way.memory for others, way in chosen)))
    return memory + INSTRUCTION_BYTES * sum(way.calls for _, way in chosen)


# Choice of the tiling -------------------------------------------------------------------------------------------------


@cache
def possible_ways(sizes: Convolution, *, input_stays: bool) -> tuple[Pieces, ...]:
    """Return the tilings that are faster than the portable kernel, fastest first.

    ``input_stays`` must be True if other ops need the input afterwards.
    """
    naive = sizes.samples * sizes.outputs * sizes.rows * sizes.columns * sizes.depth * _NAIVE
    ways = (way for way in _ways(sizes, input_stays) if way.time * _WORTH < naive)
    return tuple(sorted(ways, key=lambda way: way.time))


def fastest(ways: Sequence[Pieces], room: float) -> Pieces:
    """Return the fastest tiling that fits in ``room`` bytes. If none fits, return the tiling with the least memory.

    ``ways`` must be in the order of :func:`possible_ways`.
    """
    return next((way for way in ways if way.memory <= room), None) or min(ways, key=lambda way: way.memory)


def _ways(sizes: Convolution, input_stays: bool) -> Iterator[Pieces]:
    most_parts, most_bands = sizes.groups if sizes.groups > 1 else sizes.outputs, _bandable(sizes)
    for parts in [1] if sizes.is_product else _divisions(most_parts, 64):
        for bands in [1] if sizes.is_product else _divisions(most_bands, _MOST_PIECES // parts):
            yield _way(sizes, parts, bands, input_stays)
            if any(sizes.padding):
                yield _padded_first(sizes, parts, bands, input_stays)


def _divisions(size: int, most: int) -> list[int]:
    """Return the numbers of parts to try. No number exceeds ``size``, ``most`` or twice the previous number."""
    return [number for number in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64) if number <= min(size, most)]


def _bandable(sizes: Convolution) -> int:
    return sizes.rows if sizes.rows > 1 else sizes.columns


def _way(sizes: Convolution, parts: int, bands: int, input_stays: bool) -> Pieces:
    area, grouped = sizes.rows * sizes.columns, sizes.groups > 1
    output = sizes.outputs * area * BYTES
    source = sizes.channels * sizes.height * sizes.width * BYTES
    walked = 0 if sizes.is_product else sizes.channels * sizes.kernel[0] * sizes.kernel[1] * area
    split = bands * parts if grouped else bands
    columns = walked * BYTES / split
    region = _region_bytes(sizes, bands) / (parts if grouped else 1) if any(sizes.padding) else 0
    # The unpadded input is in use until its last region is padded. With several bands, a region is first copied out of
    # the input.
    kept = source if split > 1 or input_stays or not region else 0
    cut = region if bands > 1 else 0
    # The bands of one part are concatenated before the next part begins.
    joined = output / parts if bands > 1 else 0
    peak = max(source + region + cut, kept + region + columns)
    memory = peak + output + joined if split > 1 else max(source + region, peak + output)
    calls = parts * ((2 + (region > 0) + (cut > 0)) * bands + (bands > 1)) + (parts > 1) + 2 * sizes.bias
    repeated = 1 if grouped else parts
    time = (
        walked * _WALK * repeated
        + area * sizes.outputs * sizes.depth * _PRODUCT
        + (region + cut) / BYTES * split * repeated * _SUM
        + sizes.outputs * area * (sizes.bias + (bands > 1)) * _SUM
        + calls * _CALL
    )
    # The outputs of all samples are concatenated at the end.
    memory = int(memory) + (sizes.samples > 1) * output
    return Pieces(parts, bands, False, memory, sizes.samples * time, int(sizes.samples * calls))


def _padded_first(sizes: Convolution, parts: int, bands: int, input_stays: bool) -> Pieces:
    source = sizes.samples * sizes.channels * sizes.height * sizes.width * BYTES
    padded = sizes.samples * sizes.channels * sizes.padded.height * sizes.padded.width * BYTES
    way = _way(sizes.padded, parts, bands, input_stays=False)
    memory = max(source + padded, way.memory + (source if input_stays else 0))
    time = way.time + padded / BYTES * _SUM + _CALL
    return replace(way, pads_first=True, memory=memory, time=time, calls=way.calls + 1)


def _region_bytes(sizes: Convolution, bands: int) -> int:
    """Return the bytes of padded input that one band of the output needs. ``bands`` is the number of bands."""
    dim = 0 if sizes.rows > 1 else 1
    extent = [sizes.reach(sizes.rows, 0), sizes.reach(sizes.columns, 1)]
    extent[dim] = sizes.reach(-(-_bandable(sizes) // bands), dim)
    return sizes.channels * extent[0] * extent[1] * BYTES


# Rewriting ------------------------------------------------------------------------------------------------------------


def _convolved(editor: Editor, node: Node, sizes: Convolution, pieces: Pieces) -> Node:
    source, weight, bias = arguments(node)[:3]
    area = [sizes.height, sizes.width]
    image = editor.view(source, [sizes.samples * sizes.channels, *area])
    if pieces.pads_first:
        above, left = sizes.padding
        image = editor.call("constant_pad_nd.default", image, [left, left, above, above], 0.0)
        sizes = sizes.padded
    samples = [_sample(editor, image, weight, sizes, pieces, number) for number in range(sizes.samples)]
    flat = _joined(editor, samples, 0)
    if bias is not None:
        batch = [sizes.samples] if sizes.samples > 1 else []
        flat = editor.view(flat, [*batch, sizes.outputs, sizes.rows * sizes.columns])
        flat = editor.call("add.Tensor", flat, editor.view(bias, [sizes.outputs, 1]))
    return editor.view(flat, value(node).shape)


def _sample(editor: Editor, image: Node, weight: Node, sizes: Convolution, pieces: Pieces, number: int) -> Node:
    """Return the output of one sample as a matrix, with a row per channel and a column per position.

    ``image`` contains the channels of all samples.
    """
    grouped, own = sizes.groups > 1, sizes.channels // sizes.groups
    shape = [sizes.groups, sizes.outputs // sizes.groups] if grouped else [sizes.outputs]
    matrix = editor.view(weight, [*shape, sizes.depth])
    parts = []
    for chosen in _ranges(shape[0], pieces.parts):
        part = matrix
        if pieces.parts > 1:
            part = editor.slice(matrix, 0, chosen.start, chosen.stop)
        groups = chosen if grouped else range(1)
        first = number * sizes.channels + groups.start * own
        channels = range(first, first + len(groups) * own)
        bands = []
        for band in _ranges(_bandable(sizes), pieces.bands):
            columns = _columns(editor, image, sizes, channels, band)
            if grouped:
                columns = editor.view(columns, [len(groups), sizes.depth, value(columns).shape[1]])
            bands.append(editor.call("bmm.default" if grouped else "mm.default", part, columns))
        parts.append(_joined(editor, bands, len(shape)))
    return editor.view(_joined(editor, parts, 0), [sizes.outputs, sizes.rows * sizes.columns])


def _columns(editor: Editor, image: Node, sizes: Convolution, channels: range, band: range) -> Node:
    """Return the right factor of the matrix product for a band of the output. Column i is the window of position i."""
    rows, columns = (band, range(sizes.columns)) if sizes.rows > 1 else (range(1), band)
    shape = [len(channels) * sizes.kernel[0] * sizes.kernel[1], len(rows) * len(columns)]
    if sizes.is_product and len(channels) == value(image).shape[0]:
        return editor.view(image, shape)
    source, offset, height, width = _region(editor, image, sizes, channels, rows, columns)
    walk = [len(channels), *sizes.kernel, len(rows), len(columns)]
    steps = [height * width, sizes.dilation[0] * width, sizes.dilation[1], sizes.stride[0] * width, sizes.stride[1]]
    return editor.view(editor.window(source, walk, steps, offset), shape)


def _region(
    editor: Editor, image: Node, sizes: Convolution, channels: range, rows: range, columns: range
) -> tuple[Node, int, int, int]:
    """Return the input of some output rows and columns, as ``(tensor, offset in the tensor, height, width)``."""
    area = sizes.height * sizes.width
    above, below, height = _extent(sizes, rows, 0)
    left, right, width = _extent(sizes, columns, 1)
    top = max(rows.start * sizes.stride[0] - sizes.padding[0], 0)
    begin = max(columns.start * sizes.stride[1] - sizes.padding[1], 0)
    offset = channels.start * area + top * sizes.width + begin
    if not any((above, below, left, right)):
        return image, offset, sizes.height, sizes.width
    inner = [len(channels), height - above - below, width - left - right]
    if inner[1:] != [sizes.height, sizes.width]:
        image = editor.window(image, inner, [area, sizes.width, 1], offset)
    elif len(channels) < value(image).shape[0]:
        image = editor.slice(image, 0, channels.start, channels.stop)
    return editor.call("constant_pad_nd.default", image, [left, right, above, below], 0.0), 0, height, width


def _extent(sizes: Convolution, places: range, dim: int) -> tuple[int, int, int]:
    """Return ``(padding before, padding after, padded size)`` for the input of some output rows or columns."""
    start = places.start * sizes.stride[dim] - sizes.padding[dim]
    reach = sizes.reach(len(places), dim)
    size = (sizes.height, sizes.width)[dim]
    return max(-start, 0), max(start + reach - size, 0), reach


def _joined(editor: Editor, parts: list[Node], dim: int) -> Node:
    return parts[0] if len(parts) == 1 else editor.call("cat.default", parts, dim)


def _ranges(size: int, parts: int) -> list[range]:
    """Divide ``size`` items into nearly equal ranges. No range is empty."""
    bounds = [size * number // parts for number in range(parts + 1)]
    return [range(start, end) for start, end in pairwise(bounds)]
