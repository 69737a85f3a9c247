"""Pooling over windows, computed as the maximum or the sum of shifted copies, one dimension after the other.

The portable kernels compute an index for each element of each window. Shifted copies need memory but no indices. If the
copies would raise the peak of the method, images are pooled in tiles.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from etdev.lowering.convolution_sizes import BYTES
from etdev.lowering.graph import INSTRUCTION_BYTES, Editor, arguments, is_plain, value
from etdev.lowering.occupancy import nbytes

if TYPE_CHECKING:
    from torch.fx import Node

_MANY = 512
"""Minimum product of output elements and window elements for which shifted copies are faster than the kernel."""

_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class _Pool:
    """Sizes of a pooling. Each channel of each sample counts as an image."""

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
        """Return the peak bytes of a tile if there are ``parts`` tiles. The whole input and output do not count."""
        (height, width), columns = self.padded, self.output[1]
        # Memory holds the padded image, and two copies of it that are as wide as the output.
        return -(-self.images // parts) * height * (width + 2 * columns) * BYTES


def pool_by_shifts(editor: Editor) -> int:
    """Replace maximum pooling if its indices are unused, and average pooling if all its windows have the same size.

    Return the number of replaced ops.
    """
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


def estimate_calls(node: Node) -> int:
    """Return an estimate of the number of ops that replace a pooling without tiles."""
    source, kernel = arguments(node)[:2]
    is_small = nbytes(node, first_only=True) // BYTES * math.prod(kernel) < _MANY
    return 1 if is_small or not is_plain(source) else 2 * sum(_pair(kernel))


def _maximum(node: Node) -> Node | None:
    """Return the node that selects the maxima, or None if the indices are used."""
    users = list(node.users)
    wanted = len(users) == 1 and users[0].target is operator.getitem and arguments(users[0])[1] == 0
    return users[0] if wanted else None


def _replacement(editor: Editor, node: Node, result: Node, room: int, limit: int) -> Node | None:
    """Insert a replacement of a pooling. Return the replacement, or None if there is none.

    The tiles should need at most ``room`` bytes, in addition to the input and the output. There is no replacement if
    even the smallest tiles need more than ``limit`` bytes.
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
    """Return whether a window covers a whole image."""
    return all(kernel >= size for kernel, size in zip(pool.kernel, pool.area, strict=True))


def _is_regular(pool: _Pool, dim: int) -> bool:
    """Return whether all windows are inside the padded image, along one dimension.

    Windows extend outside the image only if the pooling rounds up the number of windows.
    """
    reach = pool.dilation[dim] * (pool.kernel[dim] - 1) + 1
    return (pool.output[dim] - 1) * pool.stride[dim] + reach <= pool.padded[dim]


def _pair(given: Sequence[int]) -> tuple[int, int]:
    """Return height and width from a list of one or two numbers. A single number is used for both dimensions."""
    return given[0], given[-1]


def _pooled(editor: Editor, source: Node, pool: _Pool, room: int, neutral: float) -> Node:
    """Insert the pooling of all images, in tiles.

    ``neutral`` is the neutral element of the operation. It also selects the operation: minus infinity for the maximum,
    0 for the sum.
    """
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
    """Return the cost of ``parts`` tiles: the bytes that exceed ``room`` plus the bytes of the instructions."""
    return max(pool.bytes_of(parts) - room, 0) + INSTRUCTION_BYTES * 2 * sum(pool.kernel) * parts


def _part(editor: Editor, images: Node, pool: _Pool, chosen: range, neutral: float) -> Node:
    count, offset = len(chosen), chosen.start * math.prod(pool.area)
    if any(pool.padding):
        if count < pool.images:
            images = editor.slice(images, 0, chosen.start, chosen.stop)
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
    """Insert the maximum or the sum of all values.

    The function inserts each value just before its use. So only two values are in memory at the same time.
    """
    result = next(values)
    for other in values:
        result = editor.call("add.Tensor" if neutral == 0 else "maximum.default", result, other)
    return result
