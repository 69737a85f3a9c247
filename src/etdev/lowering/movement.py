"""Use of ``as_strided_copy`` instead of ops that move elements.

The kernel of ``as_strided_copy`` adds strides to step through memory. Other kernels compute an index for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etdev.lowering.graph import Editor, arguments, is_laid_out, value

if TYPE_CHECKING:
    from torch.fx import Node

    Window = tuple[Sequence[int], Sequence[int], int]
    """Sizes of the output, strides in the input, and offset of the first element in the input. All are in elements."""

_MANY = 64
"""Minimum number of elements for which the replacement is measurably faster."""


def walk_strides(editor: Editor) -> int:
    """Use ``as_strided_copy`` instead of ops that move elements, except ops that the linker turns into views."""
    done = 0
    for op, window in _WINDOWS.items():
        for node in editor.calls(op):
            source = arguments(node)[0]
            if len(node.all_input_nodes) > 1:  # The offset of the first element is known only at run time.
                continue
            if editor.is_constant(source) or not is_laid_out(value(source)) or not is_laid_out(value(node)):
                continue
            if value(node).numel() < _MANY:
                continue
            sizes, strides, offset = window(node)
            if _is_run(sizes, strides):
                continue
            with editor.before(node):
                moved = editor.window(source, *merged(sizes, strides), offset)
                editor.replace(node, editor.view(moved, value(node).shape))
            done += 1
    return done


def merged(sizes: Sequence[int], strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Merge the dimensions of a strided copy. Return the sizes and the strides of the remaining dimensions.

    Dimensions of size 1 are dropped. Neighbouring dimensions are merged if one stride can step through both.
    """
    found: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = (found[-1][0] * size, stride)
        else:
            found.append((size, stride))
    return [size for size, _ in found] or [1], [stride for _, stride in found] or [1]


def _is_run(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the output is one contiguous run of the input's bytes. The linker turns such an op into a view."""
    return merged(sizes, strides)[1] == [1]


def _permuted(node: Node) -> Window:
    source = value(arguments(node)[0])
    order = [dim % source.dim() for dim in arguments(node)[1]]
    return [source.shape[dim] for dim in order], [source.stride(dim) for dim in order], 0


def _transposed(node: Node) -> Window:
    source = value(arguments(node)[0])
    order = list(range(source.dim()))
    first, second = (dim % source.dim() for dim in arguments(node)[1:3])
    order[first], order[second] = second, first
    return [source.shape[dim] for dim in order], [source.stride(dim) for dim in order], 0


def _sliced(node: Node) -> Window:
    source, shape = value(arguments(node)[0]), value(node).shape
    given = arguments(node)
    _, dim, start, _, step = given + (0, None, None, 1)[len(given) - 1 :]
    dim %= source.dim()
    size = source.shape[dim]
    begin = min(max(start + size if start < 0 else start, 0), size) if start is not None else 0
    strides = list(source.stride())
    offset = begin * strides[dim]
    strides[dim] *= step
    return list(shape), strides, offset


def _selected(node: Node) -> Window:
    source = value(arguments(node)[0])
    _, dim, index = arguments(node)
    dim, index = dim % source.dim(), index % source.shape[dim]
    kept = [other for other in range(source.dim()) if other != dim]
    return [source.shape[other] for other in kept], [source.stride(other) for other in kept], index * source.stride(dim)


def _expanded(node: Node) -> Window:
    source, shape = value(arguments(node)[0]), value(node).shape
    missing = len(shape) - source.dim()
    own = [0 if size == 1 else stride for size, stride in zip(source.shape, source.stride(), strict=True)]
    return list(shape), [0] * missing + own, 0


_WINDOWS: dict[str, Callable[[Node], Window]] = {
    "permute_copy.default": _permuted,
    "transpose_copy.int": _transposed,
    "slice_copy.Tensor": _sliced,
    "select_copy.int": _selected,
    "expand_copy.default": _expanded,
}
