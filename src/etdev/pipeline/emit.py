"""Stage *emit*: the complete program, by ExecuTorch's own memory planning and emission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from etdev.errors import EmitError
from etdev.pipeline.artifacts import EmittedProgram, ExportedModel, LoweredModel
from etdev.pipeline.lower import fixed_ranges
from etdev.pipeline.lower_errors import explain_emission
from etdev.pipeline.project import Project

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def emit_program(project: Project, lowered: LoweredModel, exported: ExportedModel, target: str) -> EmittedProgram:
    """Plan memory and emit.

    Raises :class:`~etdev.errors.EmitError` for ops without an out variant, and if the emitted program does not hold
    inputs of the sizes that the config declares.
    """
    from executorch.exir import ExecutorchBackendConfig

    if _uses_quantized_ops(lowered):
        import executorch.kernels.quantized  # noqa: F401 - registers the out variants of quantized_decomposed
    try:
        with ExitStack() as stack:
            for method in exported.methods.values():
                stack.enter_context(fixed_ranges(method.program))
            passes = [keep_initial_values(lowered, tuple(exported.methods))]
            manager = lowered.manager.to_executorch(ExecutorchBackendConfig(passes=passes))
    except Exception as error:
        programs = [lowered.manager.exported_program(name) for name in exported.methods]
        raise explain_emission(error, project, target, programs) from error
    plans = manager.executorch_program.execution_plan
    for plan in plans:
        if plan.name in exported.signatures:
            _check_planned_sizes(project, plan, exported)
    return EmittedProgram(
        manager,
        operators={plan.name: tuple(sorted({_operator_name(op) for op in plan.operators})) for plan in plans},
    )


def keep_initial_values(lowered: LoweredModel, methods: tuple[str, ...]) -> Callable[[Any], Any]:
    """A graph pass that marks the state whose initial value is not zero, so that the value goes into the file.

    ExecuTorch drops initial values otherwise: state starts as zeros, or as what the memory holds. Zeros are left to the
    runtime, since the values are stored in the file.
    """
    from torch.fx.passes.infra.pass_base import PassResult

    names = {name for method in methods for name in _initialized_state(lowered.manager.exported_program(method))}

    def mark(module: Any) -> Any:
        for node in module.graph.nodes:
            if node.op == "placeholder" and node.name in names:
                node.meta["et_init_buffer"] = True
        return PassResult(module, bool(names))

    return mark


def _initialized_state(program: ExportedProgram) -> Iterator[str]:
    """Placeholders of mutated buffers whose initial value is not all zeros."""
    signature = program.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    for placeholder, buffer in signature.inputs_to_buffers.items():
        if buffer in mutated:
            value = program.state_dict[buffer] if buffer in program.state_dict else program.constants[buffer]
            if value.count_nonzero() > 0:
                yield placeholder


def _operator_name(operator: Any) -> str:
    return f"{operator.name}.{operator.overload}" if operator.overload else str(operator.name)


def _uses_quantized_ops(lowered: LoweredModel) -> bool:
    return any("quantized_decomposed" in item.op for part in lowered.delegations for item in part.undelegated)


def _check_planned_sizes(project: Project, plan: Any, exported: ExportedModel) -> None:
    """Whether the file takes inputs up to the declared maximum: the sizes in it are what memory was planned for."""
    signature = exported.signatures[plan.name]
    for item, index, shape in zip(signature.inputs, plan.inputs, signature.sizes(signature.largest()), strict=False):
        sizes = tuple(plan.values[index].val.sizes)
        if sizes != shape:
            raise EmitError(
                f"the emitted method {plan.name!r} takes {item.name!r} up to {list(sizes)}, declared {list(shape)}",
                where=project.where("methods", plan.name, "inputs"),
                hint="a pass of the lowering narrowed a dynamic dimension; fix its size, or report this with the model",
            )
