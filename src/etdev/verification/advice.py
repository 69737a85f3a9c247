"""Advice on how to reduce a figure that exceeds its limit."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.config.models import Target
from etdev.config.tables.schemes import LEAST_GROUP, Int8DynamicInt4Weight, Pt2e, Scheme
from etdev.devices import parse_device
from etdev.inspection.breakdown import tensors_at_peak
from etdev.lowering.forms import PRODUCTS
from etdev.pipeline.project import Project
from etdev.pipeline.project.usable_forms import is_for_microcontrollers
from etdev.program import Program
from etdev.program import model as m
from etdev.program.analysis.kernel_heap import copied_operands
from etdev.program.analysis.quantized_ends import quantized_ends
from etdev.program.devices import H2D_COPY, is_device_copy
from etdev.program.footprint import constant_bytes, named_bytes, planned_memory
from etdev.units import format_size
from etdev.verification.limits import Measured


def advise(project: Project, target: str, measured: Measured, setting: str, figure: str, *place: str) -> str:
    """Return advice on a figure that exceeds its limit: reduce the figure, or raise the limit in the config.

    ``figure`` is a key of ``budget``, such as ``memory``. ``setting`` is the limit's key in the config. For the figure
    ``memory``, ``place`` is a device, such as ``cuda:0``, or a bank. For other figures, omit ``place``.
    """
    helps = _advice(project, target, measured, figure, *place)
    return f"{helps}, or raise {setting}" if helps else f"raise {setting}"


def more_accurate(scheme: Scheme) -> str:
    """Return advice on how to quantize a model with a smaller error: ``calibrate on more or other data, …``."""
    keys = accuracy_keys(scheme)
    ways = ["calibrate on more or other data"] if "calibration" in keys else []
    if isinstance(scheme, Int8DynamicInt4Weight) and scheme.group_size > LEAST_GROUP:
        ways.append("make `group_size` smaller")
    if isinstance(scheme, Int8DynamicInt4Weight) and scheme.embedding_bits == 4:
        ways.append("set `embedding_bits` to 8")
    if "keep_float" in keys:
        ways.append("keep sensitive modules in float (`keep_float`)")
    return ", ".join([*ways, "use a scheme with more bits"])


def accuracy_keys(scheme: Scheme) -> tuple[str, ...]:
    """Return the keys that affect the accuracy of a scheme: ``calibration``, ``keep_float``, both or none."""
    return ("calibration",) * _is_static(scheme) + ("keep_float",) * ("keep_float" in type(scheme).model_fields)


def _copies_operands(measured: Measured) -> bool:
    """Return True if matrix products in other forms than ExecuTorch's may copy operands to the heap."""
    plans = measured.program.execution_plan if measured.program else ()
    replaced = {method.name for method in measured.methods if PRODUCTS.intersection(method.forms)}
    return any(copied_operands(plan) for plan in plans if plan.name in replaced)


def _is_static(scheme: Scheme) -> bool:
    """Return True if a calibration determines the scales of activations."""
    return isinstance(scheme, Pt2e) and scheme.needs_calibration


def _advice(project: Project, target: str, measured: Measured, figure: str, place: str = "cpu") -> str:
    settings, program = project.config.targets[target], measured.program
    match figure:
        case "file":
            return ", ".join([*_smaller_embeddings(project, settings, program), *_smaller_file(settings, measured)])
        case "weights":
            ways = ["quantize the model"] if settings.quantize is None else []
            return ", ".join([*ways, *_smaller_embeddings(project, settings, program)])
        case "ram":
            less = "reduce the largest part (`etdev bench --runtime native` lists the parts of each method)"
            stock = ', set `lowering` to "stock", which may take less memory outside of the plan'
            return less + stock * _copies_operands(measured)
        case "scratch" | "fast_scratch":
            return "add `--optimise=Size` to the option `extra_flags` of the partitioner, or use another `memory_mode`"
        case "copies":
            at_ends = program is not None and _copies_ends(program)
            less = "leave inputs and outputs on their device (io), " if at_ends else ""
            return f"{less}let a delegate also take the ops between two delegates"
    planner = "" if settings.memory.planner == "best" else 'set `memory.planner` to "best", '
    inputs = "the max of dims" if _has_dynamic_dims(project) else "their shapes"
    if place in settings.memory.bank_names.values():
        other = "lower the `size` of this bank, so that the linker uses the other banks more, "
        return f"{other * (len(settings.memory.banks) > 1)}make the largest inputs smaller ({inputs})"
    if parse_device(place).is_host:
        delegate = "" if settings.partitioners else "let a delegate take ops (partitioners), "
        other = _callers_memory(measured) + delegate + _one_delegate(measured, place)
        other += _integer_ends(project, settings, measured)
        other += _less_state(program) if program is not None else ""
    else:
        other = "move a part of the model to another device, "
    return f"{planner}{other}make the largest inputs smaller ({inputs})"


def _smaller_embeddings(project: Project, settings: Target, program: Program | None) -> Iterator[str]:
    """Yield advice to quantize embeddings, if the target's scheme can do so and the program has some in float."""
    scheme = project.config.quantize[settings.quantize] if settings.quantize is not None else None
    names = {op.name for plan in program.execution_plan for op in plan.operators} if program is not None else set()
    if isinstance(scheme, Int8DynamicInt4Weight) and scheme.embedding_bits is None and "aten::embedding" in names:
        yield f"store embeddings as integers (`embedding_bits` in `quantize.{settings.quantize}`)"


def _smaller_file(settings: Target, measured: Measured) -> Iterator[str]:
    """Yield changes of the config that make the file of a target smaller."""
    program = measured.program
    weights = 0 if program is None else constant_bytes(program) + named_bytes(program)
    if settings.quantize is None:
        yield "quantize the model"
    # On a microcontroller, a data file is in the same flash.
    if settings.external_weights is None and weights and not is_for_microcontrollers(settings):
        yield f"move the weights ({format_size(weights)}) to a file next to it (`external_weights`)"
    tiled = [method.tiling for method in measured.methods if method.tiling is not None and method.tiling.tiled]
    if tiled and settings.memory.tiling != "off":
        growth = sum(decision.file_growth or 0 for decision in tiled)
        yield 'set `memory.tiling` to "off"' + (f", because tiles take {format_size(growth)}" if growth > 0 else "")
    ends = {} if program is None else quantized_ends(program)
    if ends:
        count = sum(len(end.constants(method)) for method, found in ends.items() for end in found)
        names = " and ".join(f"`io.{method}.quantized`" for method in ends)
        yield f"list fewer inputs and outputs in {names} ({count} constant methods describe them)"


def _callers_memory(measured: Measured) -> str:
    """Return advice to let the caller provide the memory of the largest input or output on the host.

    Return an empty text if this tensor takes at most half of the planned memory on the host.
    """
    ends = [
        (tensor.nbytes, kind, position, plan.name)
        for plan in (measured.program.execution_plan if measured.program is not None else ())
        for kind, values in (("input", plan.inputs), ("output", plan.outputs))
        for position, tensor in enumerate(plan.values[value] for value in values)
        if isinstance(tensor, m.Tensor) and tensor.allocation_info is not None and tensor.device.is_host
    ]
    size, kind, position, method = max(ends, default=(0, "", 0, ""))
    if measured.program is None or 2 * size <= planned_memory(measured.program).get("cpu", 0):
        return ""
    setting = f'set `io.{method}.{kind}s` to "caller"'
    return f"let the caller provide {kind} {position} of {method!r} ({format_size(size)}; {setting}), "


_NOT_FLOAT = "invalid dtype"
"""End of a backend's reason for an op on integers. Such ops are small, and no change makes a delegate take them."""


def _one_delegate(measured: Measured, device: str) -> str:
    """Return advice to delegate one more op that a backend left out.

    The op computes or uses the largest tensor at the peak that any of these ops computes or uses. Return an empty text
    if there is no such tensor.
    """
    left = {
        _kernel(item.op): item
        for method in measured.methods
        for item in method.undelegated
        if item.reasons and not item.reasons[0].endswith(_NOT_FLOAT)
    }
    if measured.program is None or not left:
        return ""
    touched = [
        (tensor.nbytes, op)
        for tensor in tensors_at_peak(measured.program, device, measured.notes)
        for op in (_kernel(tensor.origin), _kernel(tensor.last_user))
        if op in left
    ]
    if not touched:
        return ""
    item = left[max(touched)[1]]
    why = "; ".join([*([item.source] if item.source else []), item.reasons[0]])
    return f"let a delegate also take `{item.op}` ({why}), "


def _kernel(op: str) -> str:
    """Return the name without overload that an op and its kernel share: ``aten.mean.dim`` and ``aten::mean.out``."""
    return ".".join(op.replace("::", ".").split(".")[:2])


def _integer_ends(project: Project, settings: Target, measured: Measured) -> str:
    """Return advice to make a method take and return integers instead of floats; empty if no method can do so."""
    scheme = project.config.quantize[settings.quantize] if settings.quantize is not None else None
    if scheme is None or not _is_static(scheme) or measured.program is None:
        return ""
    known = quantized_ends(measured.program)
    for plan in measured.program.execution_plan:
        ends = [plan.values[index] for index in (*plan.inputs, *plan.outputs)]
        floats = [end for end in ends if isinstance(end, m.Tensor) and end.scalar_type is m.ScalarType.FLOAT]
        if floats and not known.get(plan.name):
            return f"take and return integers (`io.{plan.name}.quantized`), "
    return ""


def _less_state(program: Program) -> str:
    """Return advice to make state smaller; empty if state is less than a quarter of the memory on the host."""
    state = {
        tensor.name: tensor.nbytes
        for plan in program.execution_plan
        for _, tensor in plan.tensors()
        if tensor.name is not None and tensor.allocation_info is not None and tensor.device.is_host
    }
    total = sum(state.values())
    if not total or 4 * total < planned_memory(program).get("cpu", 0):
        return ""
    most = max(state, key=lambda name: state[name])
    return f"make the state smaller ({format_size(total)}; the largest is {most!r}), "


def _copies_ends(program: Program) -> bool:
    """Return True if any method copies an input to a device, or an output back to the host."""
    return any(
        call.args[0] in plan.inputs if plan.operators[call.op_index].name == H2D_COPY else call.args[1] in plan.outputs
        for plan in program.execution_plan
        for call in plan.instructions
        if isinstance(call, m.KernelCall) and is_device_copy(plan.operators[call.op_index])
    )


def _has_dynamic_dims(project: Project) -> bool:
    return any(dim.min != dim.max for method in project.config.methods.values() for dim in method.dims.values())
