"""Libraries of ExecuTorch that a program needs: kernels for its operators, backends for its delegates."""

from __future__ import annotations

from dataclasses import dataclass

from etdev.errors import RunnerError
from etdev.program.model import Program
from etdev.program.signatures import find_signature, operator_name

RUNTIME = "runtime"
"""Component that every runner needs. It contains kernels only for primitive operators."""

KERNELS = {
    "aten": "kernels_optimized",
    "dim_order_ops": "kernels_optimized",
    "et_copy": "kernels_optimized",
    "quantized_decomposed": "kernels_quantized",
}
"""Maps an operator namespace to the component that contains the kernels in the wheel of executorch 1.5.1."""
PRIMITIVE = frozenset({"aten::_local_scalar_dense", "aten::sym_numel", "aten::sym_size.int"})
"""Operators outside of the namespace ``executorch_prim`` for which the runtime itself has kernels."""
ABSENT = frozenset(
    {
        "aten::hardsigmoid.out",
        "aten::hardswish.out",
        "aten::native_batch_norm.out",
        "aten::silu.out",
        "aten::sym_storage_offset",
        "aten::sym_stride.int",
    }
)
"""Operators for which :func:`find_signature` knows a signature, but for which no component has a kernel."""
BACKENDS = {
    "XnnpackBackend": "backend_xnnpack",
    "OpenvinoBackend": "backend_openvino",
}
"""Maps the id of a backend to the component that contains the backend in the wheel of executorch 1.5.1.

QNN is not included, because the native host, which measures the pools, does not contain QNN.
"""


_OTHER_OPERATOR = "change the model or the target so that it does not call this operator"
_FROM_SOURCE = (
    "build ExecuTorch from source for the processor, with its library cortex_m; `etdev inspect` shows the memory and "
    "operators that the program needs, and docs/mcu.md the way into the firmware"
)
_BY_ARM_RUNNER = "build the program into the firmware, or load it in ExecuTorch's Arm runner, as docs/mcu.md describes"
_OTHER_BACKEND = f"build a target with other partitioners; a runner supports {' and '.join(BACKENDS)}"


@dataclass(frozen=True, slots=True)
class Library:
    """Component of ExecuTorch's CMake package, with the reason why a program needs it."""

    component: str
    reason: str


def needed_libraries(program: Program, where: str) -> tuple[Library, ...]:
    """Return the components that a program needs, in the order of linking.

    Raises :class:`~etdev.errors.RunnerError` if no component contains an operator or a backend of the program.
    """
    reasons: dict[str, str] = {RUNTIME: "loads and runs programs; has the kernels of primitive operators"}
    for plan in program.execution_plan:
        for operator in sorted(map(operator_name, plan.operators)):
            component = kernels_of(operator)
            if component is None:
                raise RunnerError(
                    f"no library of ExecuTorch's wheel has a kernel for {operator}, which method {plan.name!r} calls",
                    where=where,
                    hint=_FROM_SOURCE if operator.startswith("cortex_m::") else _OTHER_OPERATOR,
                )
            if component != RUNTIME:
                reasons.setdefault(component, f"kernels of {operator} and others")
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            if delegate.id not in BACKENDS:
                raise RunnerError(
                    f"a runner does not support the backend {delegate.id}, which method {plan.name!r} needs",
                    where=where,
                    hint=_BY_ARM_RUNNER if delegate.id == "EthosUBackend" else _OTHER_BACKEND,
                )
            reasons.setdefault(BACKENDS[delegate.id], f"delegates of {delegate.id}")
    order = (RUNTIME, *dict.fromkeys(KERNELS.values()), *BACKENDS.values())
    return tuple(Library(component, reasons[component]) for component in order if component in reasons)


def kernels_of(operator: str) -> str | None:
    """Return the component that contains an operator's kernel; None if there is no such component."""
    if operator in ABSENT or find_signature(operator) is None:
        return None
    namespace = operator.partition("::")[0]
    if namespace == "executorch_prim" or operator in PRIMITIVE:
        return RUNTIME
    return KERNELS.get(namespace)
