"""Heap that ExecuTorch's optimized kernels may take, estimated from the program."""

from __future__ import annotations

from etdev.program import model as m
from etdev.program.signatures import operator_name

_PRODUCTS = frozenset({"aten::bmm.out", "aten::linear.out", "aten::mm.out"})
"""Matrix products that the kernel library ``optimized`` of executorch 1.5.1 leaves to Eigen. Operands come first."""
_FLOATS = frozenset({m.ScalarType.FLOAT, m.ScalarType.DOUBLE})
"""Types that Eigen multiplies; the products of other types copy nothing."""
_ON_STACK = 128 << 10
"""Copies of at most so many bytes are on the stack, as Eigen defines it (``EIGEN_STACK_ALLOCATION_LIMIT``)."""


def copied_operands(plan: m.ExecutionPlan) -> int:
    """Return the largest number of bytes that a matrix product of the method may copy to the heap.

    The kernel copies blocks of both matrices. A block is at most a whole matrix. It may be smaller, depending on the
    caches of the machine. Its copy is freed after the product.
    """
    return max((_copied(plan, call) for call in plan.instructions if isinstance(call, m.KernelCall)), default=0)


def _copied(plan: m.ExecutionPlan, call: m.KernelCall) -> int:
    name = operator_name(plan.operators[call.op_index])
    if name not in _PRODUCTS:
        return 0
    operands = [value for value in (plan.values[index] for index in call.args[:2]) if isinstance(value, m.Tensor)]
    sizes = [operand.nbytes for operand in operands if operand.scalar_type in _FLOATS]
    if name == "aten::bmm.out":  # One product after the other.
        sizes = [size // max(operands[0].sizes[0], 1) for size in sizes]
    return sum(size for size in sizes if size > _ON_STACK)
