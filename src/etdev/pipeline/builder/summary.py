"""Summaries of artifacts: the parts of a :class:`~etdev.pipeline.results.result.BuildResult`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from etdev import backends
from etdev.devices import Device, parse_device
from etdev.inspection.transfers import transfers_per_call
from etdev.linker.options import MethodReport
from etdev.pipeline.project import Project
from etdev.pipeline.project.runtime_contents import needed_libraries
from etdev.pipeline.results.decision_counts import count_copies, count_inplace
from etdev.pipeline.results.result import MethodResult
from etdev.pipeline.stages.artifacts import ExportedModel, LoweredModel
from etdev.pipeline.stages.link import LinkedProgram
from etdev.program import Program
from etdev.program.analysis.effects import operator_name
from etdev.program.devices import delegate_device, named_devices


def describe_methods(lowered: LoweredModel, exported: ExportedModel) -> tuple[MethodResult, ...]:
    """Return each method's inputs, and which of its ops delegates and kernels run."""
    replaced = {item.method: item for item in lowered.replaced}
    return tuple(
        MethodResult(
            name=part.method,
            inputs=exported.signatures[part.method].describe_each(),
            stateful=part.method in lowered.stateful,
            delegate_calls=dict(part.calls),
            delegated_ops=part.delegated_ops,
            undelegated=part.undelegated,
            operators=(),
            forms=dict(replaced[part.method].forms),
            tiling=replaced[part.method].tiling,
        )
        for part in lowered.delegations
    )


def with_memory(methods: tuple[MethodResult, ...], program: LinkedProgram) -> tuple[MethodResult, ...]:
    """Return the methods with the link's results: operators, buffers, removed copies and outputs in place."""
    reports = {report.name: report for report in program.linked.methods}
    return tuple(_with_memory(method, reports[method.name], program) for method in methods)


def _with_memory(method: MethodResult, report: MethodReport, program: LinkedProgram) -> MethodResult:
    plan = program.linked.program.method(method.name)
    greedy = program.greedy[method.name]
    operators = tuple(sorted(operator_name(operator) for operator in plan.operators))
    return method.model_copy(
        update={
            "operators": operators,
            "libraries": needed_libraries(operators),
            "buffers": tuple(replace(buffer, greedy=greedy[buffer.index]) for buffer in report.buffers),
            "instructions": len(plan.instructions),
            "transfers": transfers_per_call(plan),
            "copies": count_copies(report.elisions),
            "inplace": count_inplace(report.inplace),
            "copy_decisions": report.elisions,
            "inplace_decisions": report.inplace,
            "renumbered": dict(report.renumbered),
        }
    )


def describe_state(program: Program) -> Iterator[str]:
    """Yield a note on state in each device's memory, because that memory must be zeroed at load."""
    found: dict[Device, dict[str, None]] = defaultdict(dict)
    for plan in program.execution_plan:
        for _, tensor in plan.tensors():
            info = tensor.extra_tensor_info
            if info is not None and info.fully_qualified_name and tensor.allocation_info and not tensor.device.is_host:
                found[tensor.device][info.fully_qualified_name] = None
    for device, names in sorted(found.items()):
        shown = ", ".join(list(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield (
            f"state stays on {device} ({shown}): the runtime must zero that memory when it loads the program; "
            "etdev's runtime does, ExecuTorch does not guarantee it"
        )


def describe_unguarded(project: Project, target: str) -> Iterator[str]:
    """Yield a note on a quantized target if no check compares it with the float model.

    Such a target passes every check even if quantization has spoiled its outputs.
    """
    settings = project.config.targets[target]
    if settings.quantize is not None and settings.verify.min_snr_db is None and settings.verify.accuracy is None:
        yield (
            "no check compares the quantized model with the float model: set `min_snr_db` or `accuracy` in "
            f"`targets.{target}.verify`"
        )


def describe_unused(project: Project, target: str, program: Program) -> Iterator[str]:
    """Yield notes on settings without effect, since a name in the config may be misspelled.

    These are partitioners that took no op, options for ops that the model lacks, and memory limits for unused devices.
    """
    settings = project.config.targets[target]
    found = {(item.id, delegate_device(item)) for plan in program.execution_plan for item in plan.delegates}
    for index, step in enumerate(settings.partitioners):
        backend = backends.get(step.backend)
        device = Device() if step.device is None else parse_device(step.device)
        if backend.delegate_ids and not any(
            name in backend.delegate_ids and (step.device is None or place == device) for name, place in found
        ):
            there = f" on {device}" if step.device is not None else ""
            where = project.where("targets", target, "partitioners", index)
            what = f"the partitioner {step.backend!r}{there} took no op"
            yield f"{what}: its options, at {where}, may name ops that the model does not have"
    devices = {str(device) for device in (Device(), *named_devices(program))}
    for name in settings.budget.memory:
        if name not in devices:
            where = project.where("targets", target, "budget", "memory", name)
            yield f"the program uses no memory on {name}, although {where} limits that memory"
