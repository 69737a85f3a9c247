"""Sizes of convolutions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etdev.lowering.graph import arguments, is_plain, value

if TYPE_CHECKING:
    from torch.fx import Node

BYTES = 4
"""Number of bytes of a float32."""
_SAMPLES = 8
"""Maximum number of samples in a batch. Each sample is convolved separately."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """Sizes of a convolution in two dimensions. A one-dimensional convolution has height 1."""

    samples: int
    channels: int
    height: int
    width: int
    outputs: int
    """Channels of the output."""
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    bias: bool

    @property
    def rows(self) -> int:
        """Rows of the output."""
        return self._size(self.height, 0)

    @property
    def columns(self) -> int:
        """Columns of the output."""
        return self._size(self.width, 1)

    def _size(self, size: int, dim: int) -> int:
        return (size + 2 * self.padding[dim] - self.reach(1, dim)) // self.stride[dim] + 1

    def reach(self, places: int, dim: int) -> int:
        """Return the number of input rows or columns that ``places`` neighbouring output rows or columns need."""
        return (places - 1) * self.stride[dim] + self.dilation[dim] * (self.kernel[dim] - 1) + 1

    @property
    def depth(self) -> int:
        """Number of multiplications per element of the output."""
        return self.channels // self.groups * self.kernel[0] * self.kernel[1]

    @property
    def is_product(self) -> bool:
        """True if the convolution is a product of the weight and the unchanged input."""
        return (self.kernel, self.stride, self.padding) == ((1, 1), (1, 1), (0, 0))

    @property
    def input_bytes(self) -> int:
        """Number of bytes of the input."""
        return self.samples * self.channels * self.height * self.width * BYTES

    @property
    def output_bytes(self) -> int:
        """Number of bytes of the output."""
        return self.samples * self.outputs * self.rows * self.columns * BYTES

    def tile(self, axis: int, size: int) -> Convolution:
        """Return the sizes for a tile of ``size`` elements along an axis of the output.

        Axis 0 counts samples and axis 1 channels. Axes from 2 on count positions; the input of such a tile is padded.
        """
        if axis == 0:
            return replace(self, samples=size)
        if axis == 1:
            groups = max(self.groups * size // self.outputs, 1)
            return replace(self, outputs=size, groups=groups, channels=self.channels * groups // self.groups)
        if self.rows == 1 or axis == 3:
            return replace(self, width=self.reach(size, 1), padding=(self.padding[0], 0))
        return replace(self, height=self.reach(size, 0), padding=(0, self.padding[1]))

    @property
    def padded(self) -> Convolution:
        """Sizes of the same convolution on an input that is already padded."""
        (above, left), none = self.padding, (0, 0)
        return replace(self, height=self.height + 2 * above, width=self.width + 2 * left, padding=none)


def sizes_of(node: Node) -> Convolution | None:
    """Return the sizes of a convolution, or None if the convolution cannot be computed as a product of matrices."""
    source, weight, bias, stride, padding, dilation, transposed, _, groups = arguments(node)
    tensors = [source, weight, node] if bias is None else [source, weight, node, bias]
    if transposed or not is_plain(*tensors) or value(source).dim() not in (3, 4) or value(source).shape[0] > _SAMPLES:
        return None
    flat = value(source).dim() == 3
    samples, channels, *area = value(source).shape
    kernel = list(value(weight).shape[2:])
    found = Convolution(
        samples=samples,
        channels=channels,
        height=1 if flat else area[0],
        width=area[-1],
        outputs=value(weight).shape[0],
        kernel=_pair(kernel, 1, flat),
        stride=_pair(stride, 1, flat),
        padding=_pair(padding, 0, flat),
        dilation=_pair(dilation, 1, flat),
        groups=groups,
        bias=bias is not None,
    )
    # Leave out convolutions with rows or columns of the output that depend on padding only.
    return found if all(found.padding[dim] < found.reach(1, dim) for dim in (0, 1)) else None


def _pair(given: list[int], missing: int, flat: bool) -> tuple[int, int]:
    """Return height and width from a list of one or two numbers. If ``flat`` is True, the height is ``missing``."""
    return (missing, given[-1]) if flat else (given[0], given[-1])
