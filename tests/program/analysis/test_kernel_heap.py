"""The heap that matrix products may take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etdev.program import model as m
from etdev.program.analysis.kernel_heap import copied_operands
from program.hand import tensor
from support.files import method


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        (("aten::mm", "out"), ((64, 1_024), (1_024, 1_024)), 4 * (64 + 1_024) * 1_024),
        (("aten::mm", "out"), ((4, 128), (128, 512)), 4 * 128 * 512),
        (("aten::mm", "out"), ((64, 64), (64, 64)), 0),
        (("aten::linear", "out"), ((4, 512), (128, 512)), 4 * 128 * 512),
        (("aten::bmm", "out"), ((4, 64, 512), (4, 512, 256)), 4 * 512 * 256),
        (("aten::add", "out"), ((1_024, 1_024), (1_024, 1_024)), 0),
    ],
    ids=["both", "one", "on the stack", "linear", "one of a batch", "no product"],
)
def test_a_product_copies_large_operands(
    operator: tuple[str, str], shapes: tuple[tuple[int, ...], ...], expected: int
) -> None:
    def plan(kind: m.ScalarType) -> m.ExecutionPlan:
        values = [
            replace(tensor(1), scalar_type=kind, sizes=shape, dim_order=tuple(range(len(shape)))) for shape in shapes
        ]
        call = m.KernelCall(0, (0, 1, 1, 1))
        return method(values, [call], operators=(m.Operator(*operator),))

    assert copied_operands(plan(m.ScalarType.FLOAT)) == expected
    assert copied_operands(plan(m.ScalarType.INT)) == 0
