"""Which emitted programs tiling could help."""

from __future__ import annotations

from etdev.lowering.axes import VIEWS
from etdev.program import Program
from etdev.program.analysis.effects import operator_name


def calls_tileable_kernels(program: Program) -> bool:
    """Return True if the program calls an ATen kernel that is not a view.

    Kernels of libraries such as ``cortex_m`` or ``quantized`` always compute whole tensors.
    """
    names = (operator_name(operator) for plan in program.execution_plan for operator in plan.operators)
    ops = {name.removeprefix("aten::").partition(".")[0] for name in names if name.startswith("aten::")}
    return bool(ops - VIEWS)
