"""Matrix products: one kernel for each ``linear``, and replacements of ``addmm``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etdev.lowering.graph import Editor, arguments, edge, value

if TYPE_CHECKING:
    from torch.fx import Node


def keep_linear(editor: Editor) -> int:
    """Fuse each transposition and its ``mm`` or ``addmm`` back into ``linear``. Return the number of fused products."""
    done = 0
    for node in editor.calls("addmm.default", "mm.default"):
        bias, rows, turned = arguments(node) if len(arguments(node)) == 3 else (None, *arguments(node))
        weight = _untransposed(turned)
        if weight is None or not _fits(node, bias):
            continue
        with editor.before(node):
            operands = (rows, weight) if bias is None else (rows, weight, bias)
            editor.replace(node, editor.call("linear.default", *operands))
        done += 1
    return done


def split_addmm(editor: Editor) -> int:
    """Replace ``addmm`` by ``linear`` if the matrix can be stored transposed, and by ``mm`` and ``add`` otherwise."""
    done = 0
    for node in editor.calls("addmm.default"):
        bias, rows, matrix = arguments(node)
        if node.kwargs or not _is_float(node):
            continue
        with editor.before(node):
            if _fits(node, bias) and editor.transpose_constant(matrix):
                new = editor.call("linear.default", rows, matrix, bias)
            else:
                new = editor.call("add.Tensor", editor.call("mm.default", rows, matrix), bias)
            editor.replace(node, new)
        done += 1
    return done


def _untransposed(node: Node) -> Node | None:
    """Return the input of a node that transposes two dimensions, or None for any other node."""
    is_permuted = node.target is edge("permute_copy.default")
    if is_permuted and [dim % 2 for dim in arguments(node)[1]] != [1, 0]:
        return None
    source: Node | None = arguments(node)[0] if is_permuted or node.target is edge("t_copy.default") else None
    return source


def _fits(node: Node, bias: Node | None) -> bool:
    """Return whether ``linear`` computes the same result as ``node``, which is an ``mm`` or ``addmm``.

    This requires floats, one bias per column, and no scaling factors.
    """
    if node.kwargs or not _is_float(node):
        return False
    return bias is None or list(value(bias).shape) == [value(node).shape[1]]


def _is_float(node: Node) -> bool:
    return value(node).dtype.is_floating_point
