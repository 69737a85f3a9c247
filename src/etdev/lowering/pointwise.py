"""Element-wise ops: the same functions, computed with kernels that take less time per element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from etdev.lowering.graph import Editor, arguments, value

if TYPE_CHECKING:
    from torch.fx import Node

_MANY = 256
"""Minimum number of elements for a replacement. With fewer elements, the time of a kernel call matters more."""


def use_products_for_powers(editor: Editor) -> int:
    """Compute x², x³, √x and 1/√x without ``pow``, like eager PyTorch."""
    done = 0
    for node in editor.calls("pow.Tensor_Scalar"):
        base, exponent = arguments(node)
        if not value(base).dtype.is_floating_point or value(base).dtype != value(node).dtype:
            continue
        with editor.before(node):
            new = _power(editor, base, float(exponent))
            if new is not None:
                editor.replace(node, new)
                done += 1
    return done


def _power(editor: Editor, base: Node, exponent: float) -> Node | None:
    if exponent == 2:
        return editor.call("mul.Tensor", base, base)
    if exponent == 3:
        return editor.call("mul.Tensor", editor.call("mul.Tensor", base, base), base)
    if exponent == 0.5:
        return editor.call("sqrt.default", base)
    return editor.call("rsqrt.default", base) if exponent == -0.5 else None


def use_hardtanh_for_clamp(editor: Editor) -> int:
    """Replace a ``clamp`` between two numbers by ``hardtanh``."""
    done = 0
    for node in editor.calls("clamp.default"):
        low, high = (*arguments(node)[1:], None, None)[:2]
        if low is None or high is None or low > high or not value(node).dtype.is_floating_point:
            continue
        if value(arguments(node)[0]).dtype != value(node).dtype:
            continue
        with editor.before(node):
            editor.replace(node, editor.call("hardtanh.default", arguments(node)[0], low, high))
        done += 1
    return done


def use_sigmoid_for_gelu(editor: Editor) -> int:
    """Compute the approximate GELU as x · sigmoid(2u), which equals x/2 (1 + tanh u), its definition."""
    done = 0
    for node in editor.calls("gelu.default"):
        if node.kwargs.get("approximate") == "tanh" and _many(value(node)):
            with editor.before(node):
                editor.replace(node, _gelu(editor, arguments(node)[0]))
            done += 1
    return done


def _gelu(editor: Editor, x: Node) -> Node:
    """Insert the GELU of x, with u = √(2/π) (x + 0.044715 x³)."""
    factor = 2 * math.sqrt(2 / math.pi)
    inner = editor.call("mul.Scalar", editor.call("mul.Tensor", x, x), 0.044715 * factor)
    doubled = editor.call("mul.Tensor", editor.call("add.Scalar", inner, factor), x)
    return editor.call("mul.Tensor", x, editor.call("sigmoid.default", doubled))


def _many(tensor: Any) -> bool:
    """Return whether a value is a float32 tensor with many elements, or with an unknown number of elements."""
    import torch

    return tensor.dtype is torch.float32 and (not isinstance(tensor.numel(), int) or tensor.numel() >= _MANY)
