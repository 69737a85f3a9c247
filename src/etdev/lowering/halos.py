"""Halos: tiles of convolutions and poolings along the height of an image, or along a signal.

Windows slide over the input. So a tile needs a *halo*: the input's elements next to the tile that its windows cover.
If another such op uses the output, neighbouring tiles of the output overlap. The overlap is computed more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from etdev.lowering.graph import arguments, value
from etdev.lowering.occupancy import kind_of

if TYPE_CHECKING:
    from torch.fx import Node

POOLING = frozenset({"max_pool2d_with_indices", "avg_pool2d"})
"""Poolings that can be tiled along the height of an image."""


class Halo(NamedTuple):
    """Windows that slide over an op's first input along the tiled axis."""

    stride: int
    before: int
    """Number of elements of padding before the input. A negative number means elements that are left out."""
    extent: int
    """Number of elements from the first to the last element of a window."""
    fill: float = 0.0
    """Value of the padding."""

    def needed(self, tile: range, size: int) -> range:
        """Return the elements of the input that a tile of the output needs. The input has ``size`` elements."""
        whole = self._windows(tile)
        return range(max(whole.start, 0), min(whole.stop, size))

    def missing(self, tile: range, size: int) -> tuple[int, int]:
        """Return the numbers of elements of padding before and after the elements that :meth:`needed` returns."""
        whole = self._windows(tile)
        return max(-whole.start, 0), max(whole.stop - size, 0)

    def _windows(self, tile: range) -> range:
        begin = tile.start * self.stride - self.before
        return range(begin, begin + (len(tile) - 1) * self.stride + self.extent)


def halo_of(node: Node, axis: int) -> Halo | None:
    """Return the halo of a tile along an axis of an op's output.

    Return None if the op has no windows along the axis, or cannot be tiled along it. Windows over images are tiled
    along the height only, because tiles along the width would need the same memory.
    """
    kind, given = kind_of(node), arguments(node)
    shape = list(value(given[0]).shape)
    if kind == "constant_pad_nd":
        place = 2 * (len(shape) - 1 - axis)
        amounts = [*given[1][place : place + 2], 0, 0]
        return Halo(1, amounts[0], 1) if any(amounts) else None
    is_image = kind in POOLING or len(shape) == 4
    if axis != len(shape) - (2 if is_image and shape[-2] > 1 else 1):
        return None
    if kind == "convolution":
        return None if given[6] else _windows(axis - 2, value(given[1]).shape[2:], *given[3:6])
    return _pooling(node, axis - len(shape) + 2) if kind in POOLING else None


def _windows(dim: int, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float = 0.0) -> Halo | None:
    """Return the halo along a dimension. Return None if some windows consist of padding only."""
    stride, padding, dilation = (
        [*each] * (len(kernel) if len(each) == 1 else 1) for each in (stride, padding, dilation)
    )
    extent = dilation[dim] * (kernel[dim] - 1) + 1
    return Halo(stride[dim], padding[dim], extent, fill) if padding[dim] < extent else None


def _pooling(node: Node, dim: int) -> Halo | None:
    source, kernel, *others = arguments(node)
    kernel = [kernel[0], kernel[-1]]
    stride = (others[0] if others else ()) or kernel
    padding = others[1] if len(others) > 1 else [0, 0]
    if kind_of(node) == "avg_pool2d":
        rounds_up = len(others) > 2 and others[2]
        return None if rounds_up or any(padding) else _windows(dim, kernel, stride, padding, [1, 1])
    rounds_up = len(others) > 3 and others[3]
    # Indices count the elements of the whole image.
    if rounds_up or any(user.args[1] != 0 for user in node.users) or not value(source).is_floating_point():
        return None
    dilation = others[2] if len(others) > 2 else [1, 1]
    return _windows(dim, kernel, stride, padding, dilation, float("-inf"))


def without_padding(node: Node, axis: int, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments ``given`` of a convolution or a pooling, but without padding along an axis."""
    place, rank = (4 if kind_of(node) == "convolution" else 3), value(arguments(node)[0]).dim()
    if len(given) <= place:
        return given
    dims = rank - 2 if place == 4 else 2
    padding = [*given[place]] * (dims if len(given[place]) == 1 else 1)
    padding[axis - rank + dims] = 0
    return (*given[:place], padding, *given[place + 1 :])
