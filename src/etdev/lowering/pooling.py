"""Pooling over windows, as the maximum or the sum of shifted copies, one dimension after the other.

The portable kernels compute an index for each element of each window. Images are pooled in tiles if their copies would
need more memory than the rest of the method.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from etdev.lowering.graph import INSTRUCTION_BYTES, Editor, arguments, is_plain, value
from etdev.lowering.occupancy import nbytes

if TYPE_CHECKING:
    from torch.fx import Node

_MANY = 512
"""Minimum work at which shifts are faster: elements of the output times elements of a window."""

_BYTES = 4
"""Number of bytes of a float32."""

_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class _Pool:
    """Sizes of a pooling of images with one channel each."""

    images: int
    area: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    output: tuple[int, int]

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of a padded image."""
        (height, width), (above, left) = self.area, self.padding
        return height + 2 * above, width + 2 * left

    @property
    def most_parts(self) -> int:
        """Maximum number of tiles."""
        return min(self.images, _MOST_PARTS)

    def bytes_of(self, parts: int) -> int:
        """Return the peak bytes of a tile, in addition to the whole input and output."""
        (height, width), columns = self.padded, self.output[1]
        # The padded image, and two copies of it that are reduced to the output's columns.
        return -(-self.images // parts) * height * (width + 2 * columns) * _BYTES


def pool_by_shifts(editor: Editor) -> int:
    """Replace maximum pooling with unused indices, and average pooling with windows of one size."""
    occupancy = editor.occupancy()
    nodes = editor.calls("max_pool2d_with_indices.default", "avg_pool2d.default")
    room = editor.limit if editor.settings.tiling == "off" else occupancy.peak(without=set(nodes))
    done = 0
    for node in nodes:
        result = _maximum(node) if isinstance(node.meta["val"], (tuple, list)) else node
        if result is None or not is_plain(arguments(node)[0], result):
            continue
        during = occupancy.during(node) - occupancy.output(node) + nbytes(result)
        with editor.before(node):
            new = _replacement(editor, node, result, room - during, editor.limit - during)
            if new is not None:
                editor.replace(result, new)
                done += 1
    return done


def _maximum(node: Node) -> Node | None:
    """Return the node that takes the maxima, or None if the indices are used."""
    users = list(node.users)
    wanted = len(users) == 1 and users[0].target is operator.getitem and arguments(users[0])[1] == 0
    return users[0] if wanted else None


def _replacement(editor: Editor, node: Node, result: Node, room: int, limit: int) -> Node | None:
    """Return a replacement of the result, or None.

    It aims at ``room`` bytes in addition to the input and the output. Return None if even the smallest tiles need more
    than ``limit``.
    """
    is_maximum = result is not node
    pool = _sizes(node, result)
    if not is_maximum and pool.output == (1, 1) and not any(pool.padding) and _covers(pool):
        return editor.call("mean.dim", arguments(node)[0], [-2, -1], True)
    if not all(_is_regular(pool, dim) for dim in (0, 1)) or value(result).numel() * math.prod(pool.kernel) < _MANY:
        return None
    if pool.bytes_of(pool.most_parts) > limit:
        return None
    if is_maximum:
        return editor.view(_pooled(editor, arguments(node)[0], pool, room, -math.inf), value(result).shape)
    if _argument(node, 6, None) is not None:
        return None
    total = _pooled(editor, arguments(node)[0], pool, room, 0.0)
    if any(pool.padding) and not _argument(node, 5, True):
        ones = editor.call("full.default", [1, *pool.area], 1.0)
        counts = _pooled(editor, ones, replace(pool, images=1), room, 0.0)
        mean = editor.call("div.Tensor", total, counts)
    else:
        mean = editor.call("div.Scalar", total, float(math.prod(pool.kernel)))
    return editor.view(mean, value(result).shape)


def _sizes(node: Node, result: Node) -> _Pool:
    shape, kernel = value(arguments(node)[0]).shape, arguments(node)[1]
    return _Pool(
        images=math.prod(shape[:-2]),
        area=_pair(shape[-2:]),
        kernel=_pair(kernel),
        stride=_pair(_argument(node, 2, []) or kernel),
        padding=_pair(_argument(node, 3, [0])),
        dilation=_pair(_argument(node, 4, [1])) if result is not node else (1, 1),
        output=_pair(value(result).shape[-2:]),
    )


def _argument(node: Node, index: int, missing: Any) -> Any:
    return arguments(node)[index] if index < len(arguments(node)) else missing


def _covers(pool: _Pool) -> bool:
    """Return whether every image is one window."""
    return all(kernel >= size for kernel, size in zip(pool.kernel, pool.area, strict=True))


def _is_regular(pool: _Pool, dim: int) -> bool:
    """Return whether all windows are inside the padded image. They are, unless their number is rounded up."""
    reach = pool.dilation[dim] * (pool.kernel[dim] - 1) + 1
    return (pool.output[dim] - 1) * pool.stride[dim] + reach <= pool.padded[dim]


def _pair(given: Sequence[int]) -> tuple[int, int]:
    """Return height and width. One number is used for both."""
    return given[0], given[-1]


def _pooled(editor: Editor, source: Node, pool: _Pool, room: int, neutral: float) -> Node:
    """Return the maximum or the sum over windows. ``neutral`` is the neutral element and selects which."""
    fitting = (parts for parts in range(1, pool.most_parts) if pool.bytes_of(parts) <= room)
    parts = next(fitting, pool.most_parts)
    if editor.settings.tiling == "auto":
        parts = min(range(1, parts + 1), key=lambda number: _cost(pool, number, room))
    editor.is_tiled |= parts > 1
    images = editor.view(source, [pool.images, *pool.area])
    bounds = [pool.images * number // parts for number in range(parts + 1)]
    done = [_part(editor, images, pool, range(start, end), neutral) for start, end in pairwise(bounds)]
    return done[0] if len(done) == 1 else editor.call("cat.default", done)


def _cost(pool: _Pool, parts: int, room: int) -> int:
    """Return the bytes above the room, plus those of the instructions."""
    return max(pool.bytes_of(parts) - room, 0) + INSTRUCTION_BYTES * 2 * sum(pool.kernel) * parts


def _part(editor: Editor, images: Node, pool: _Pool, chosen: range, neutral: float) -> Node:
    count, offset = len(chosen), chosen.start * math.prod(pool.area)
    if any(pool.padding):
        if count < pool.images:
            images = editor.call("slice_copy.Tensor", images, 0, chosen.start, chosen.stop)
        above, left = pool.padding
        images = editor.call("constant_pad_nd.default", images, [left, left, above, above], neutral)
        offset = 0
    height, width = pool.padded
    rows, columns = pool.output
    taken = (
        editor.window(images, [count * height, columns], [width, pool.stride[1]], offset + tap * pool.dilation[1])
        for tap in range(pool.kernel[1])
    )
    narrow = _reduced(editor, taken, neutral)
    steps = [height * columns, pool.stride[0] * columns, 1]
    taken = (
        editor.window(narrow, [count, rows, columns], steps, tap * pool.dilation[0] * columns)
        for tap in range(pool.kernel[0])
    )
    return _reduced(editor, taken, neutral)


def _reduced(editor: Editor, values: Iterator[Node], neutral: float) -> Node:
    """Reduce the values. Each is computed when it is needed, so that two are in memory at a time."""
    result = next(values)
    for other in values:
        result = editor.call("add.Tensor" if neutral == 0 else "maximum.default", result, other)
    return result
