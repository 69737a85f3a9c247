"""The operators that a program needs, in the format of ExecuTorch's selective build: ``selected_operators.yaml``.

For a ``.pte``, ``executorch/codegen/tools/gen_oplist.py`` of executorch 1.4 and 1.5 writes the same content. The
content lists every operator in the methods' operator tables, with the dtypes and dimension orders of the operator's
calls. Operators inside delegates are not included.
"""

from __future__ import annotations

from collections import defaultdict
from io import StringIO
from pathlib import Path
from typing import Any

from etdev.program import Program, read
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name

_KEY_VERSION = "v1"
"""Version of the format of a kernel key (``runtime/kernel/operator_registry.h``)."""


def file_operators(file: Path) -> str:
    """Return the YAML text for the program in a file.

    Raises :class:`~etdev.errors.ProgramError` if the file is not a valid program.
    """
    return operators_yaml(read(file), file.name)


def operators_yaml(program: Program, name: str) -> str:
    """Return the YAML text for a program, with ``name`` as the origin of the operators.

    Equal programs have equal texts.
    """
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    text = StringIO()
    yaml.dump(selected_operators(program, name), text)
    return text.getvalue()


def selected_operators(program: Program, name: str) -> dict[str, Any]:
    """Return the YAML's content as Python objects, always in the same order."""
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
    """Return the kernel keys of each operator's calls, by operator.

    A kernel key has the dtype and the dimension order of each tensor: ``v1/6;0,1|6;0,1``.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for plan in program.execution_plan:
        for call in plan.instructions:
            if isinstance(call, m.KernelCall):
                parts = [part for value in call.args if (part := _key_part(plan, plan.values[value])) is not None]
                key = f"{_KEY_VERSION}/{'|'.join(parts)}" if parts else _KEY_VERSION
                found[operator_name(plan.operators[call.op_index])].add(key)
    return dict(found)


def _key_part(plan: m.ExecutionPlan, value: m.Value) -> str | None:
    """Return the part of a kernel key for one argument; for a list, the part for its first tensor."""
    if isinstance(value, m.TensorList | m.OptionalTensorList):
        tensors = (plan.values[item] for item in value.items if item >= 0)
        first = next((item for item in tensors if isinstance(item, m.Tensor)), None)
        return None if first is None else _key_part(plan, first)
    if not isinstance(value, m.Tensor):
        return None
    return f"{int(value.scalar_type)};{','.join(map(str, value.dim_order))}"
