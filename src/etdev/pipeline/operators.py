"""The operators that a program needs, as ExecuTorch's selective build reads them: ``selected_operators.yaml``.

What ``executorch/codegen/tools/gen_oplist.py`` of executorch 1.4 writes of a ``.pte``: every operator that a method
names, and the dtypes and dimension orders that its calls have. What delegates do inside is not among them.
"""

from __future__ import annotations

from collections import defaultdict
from io import StringIO
from pathlib import Path
from typing import Any

from etdev.program import Program, read
from etdev.program import model as m
from etdev.program.effects import operator_name

_KEY_VERSION = "v1"
"""Of the form of a kernel key (``runtime/kernel/operator_registry.h``)."""


def file_operators(file: Path) -> str:
    """The YAML of the program in a file. Raises :class:`~etdev.errors.ProgramError`."""
    return operators_yaml(read(file), file.name)


def operators_yaml(program: Program, name: str) -> str:
    """The YAML of a program; ``name`` is stated as what asks for the operators. Equal programs give equal texts."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    text = StringIO()
    yaml.dump(selected_operators(program, name), text)
    return text.getvalue()


def selected_operators(program: Program, name: str) -> dict[str, Any]:
    """What the YAML holds, with everything in a fixed order."""
    operators = {operator_name(operator) for plan in program.execution_plan for operator in plan.operators}
    keys = kernel_keys(program)
    return {
        "build_features": [],
        "custom_classes": [],
        "et_kernel_metadata": {operator: sorted(keys[operator]) for operator in sorted(keys)},
        "include_all_non_op_selectives": False,
        "include_all_operators": False,
        "kernel_metadata": {},
        "operators": {
            operator: {
                "debug_info": [name],
                "include_all_overloads": False,
                "is_root_operator": True,
                "is_used_for_training": True,
            }
            for operator in sorted(operators)
        },
    }


def kernel_keys(program: Program) -> dict[str, set[str]]:
    """Operator → the kernel keys of its calls: dtype and dimension order of each tensor, ``v1/6;0,1|6;0,1``."""
    found: dict[str, set[str]] = defaultdict(set)
    for plan in program.execution_plan:
        for call in (call for chain in plan.chains for call in chain.instructions):
            if isinstance(call, m.KernelCall):
                parts = [part for value in call.args if (part := _key_part(plan, plan.values[value])) is not None]
                key = f"{_KEY_VERSION}/{'|'.join(parts)}" if parts else _KEY_VERSION
                found[operator_name(plan.operators[call.op_index])].add(key)
    return dict(found)


def _key_part(plan: m.ExecutionPlan, value: m.Value) -> str | None:
    """What a key says of an argument; of a list, what it says of the first tensor in it."""
    if isinstance(value, m.TensorList | m.OptionalTensorList):
        tensors = (plan.values[item] for item in value.items if item >= 0)
        first = next((item for item in tensors if isinstance(item, m.Tensor)), None)
        return None if first is None else _key_part(plan, first)
    if not isinstance(value, m.Tensor):
        return None
    return f"{int(value.scalar_type)};{','.join(map(str, value.dim_order))}"
