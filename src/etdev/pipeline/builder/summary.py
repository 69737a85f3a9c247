"""Summaries of artifacts: the parts of a :class:`~etdev.pipeline.results.result.BuildResult`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from etdev import backends
from etdev.backends.base import Backend, RewritesPrograms
from etdev.config.tables.schemes import BACKEND_SCHEMES
from etdev.devices import HOST, Device, parse_device
from etdev.inspection.delegate_memory import delegate_memory
from etdev.inspection.naming import dtype_name
from etdev.inspection.transfers import transfers_per_call
from etdev.linker.options import MethodReport
from etdev.lowering.forms import PRODUCTS
from etdev.pipeline.project import Project, says_share_state
from etdev.pipeline.project.runtime_contents import needed_libraries
from etdev.pipeline.results.decision_counts import count_copies, count_inplace
from etdev.pipeline.results.result import CheckResult, Failure, MethodResult, QuantizedTensor
from etdev.pipeline.stages.artifacts import ExportedModel, LoweredModel
from etdev.pipeline.stages.emit import find_common
from etdev.pipeline.stages.link.linking import LinkedProgram
from etdev.program import Program
from etdev.program.analysis.effects import operator_name
from etdev.program.analysis.kernel_heap import copied_operands
from etdev.program.analysis.quantized_ends import QuantizedEnd, quantized_ends
from etdev.program.data_files.assignment import DataFiles
from etdev.program.data_files.external import movable_data
from etdev.program.devices import delegate_device, named_devices
from etdev.program.footprint import buffer_sizes, planned_memory, repeated_bytes
from etdev.program.info import BufferInfo
from etdev.program.sidecar.records import DelegateRecord
from etdev.units import format_size
from etdev.verification.advice import accuracy_keys

_MATRIX_OPS = frozenset(f"aten.{name}" for name in ("addmm", "bmm", "convolution", "linear", "mm"))
"""Ops that compute matrix products. A note reports those that stay in float although the target is quantized."""
_LEAST_REPEATED = 1 << 16
"""A note reports weights that are in a file twice if they have at least this many bytes."""
_LOW_SNR_DB = 10.0
"""Lowest acceptable SNR of a target against the float model, in dB. Below it, a note says that the target is spoiled.

At 10 dB, the error is 32 % of the signal.
"""
_CONSTANT_DB = 10.0
"""Largest decrease of an SNR, in dB, without the part that is the same for all samples, before a note reports it."""


def describe_methods(lowered: LoweredModel, exported: ExportedModel) -> tuple[MethodResult, ...]:
    """Return a result for each method, with its inputs and the numbers of ops in delegates and on kernels."""
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
            slow_convolutions=replaced[part.method].slow_convolutions,
        )
        for part in lowered.delegations
    )


def with_memory(
    methods: tuple[MethodResult, ...], program: LinkedProgram, records: Mapping[str, DelegateRecord]
) -> tuple[MethodResult, ...]:
    """Return the methods with the link's results: operators, buffers, removed copies and outputs in place.

    Also add the memory of delegates. ``records`` maps the SHA-256 of each delegate's blob to the delegate's record.
    """
    reports = {report.name: report for report in program.linked.methods}
    known = delegate_memory(program.linked.program, records)
    return tuple(
        _with_memory(method, reports[method.name], program).model_copy(update={"delegate_memory": known[method.name]})
        for method in methods
    )


def _with_memory(method: MethodResult, report: MethodReport, program: LinkedProgram) -> MethodResult:
    plan = program.linked.program.method(method.name)
    greedy = program.greedy.get(method.name, {})
    named = program.linked.banks.named if program.linked.banks is not None else tuple[BufferInfo, ...]
    ends = quantized_ends(program.linked.program).get(method.name, ())
    operators = tuple(sorted(operator_name(operator) for operator in plan.operators))
    return method.model_copy(
        update={
            "operators": operators,
            "libraries": needed_libraries(operators),
            "buffers": named(replace(buffer, greedy=greedy.get(buffer.index)) for buffer in report.buffers),
            "instructions": len(plan.instructions),
            "quantized": tuple(_quantized(end, method.input_names) for end in ends),
            "transfers": transfers_per_call(plan),
            "copies": count_copies(report.elisions),
            "inplace": count_inplace(report.inplace),
            "copy_decisions": report.elisions,
            "inplace_decisions": report.inplace,
            "order": report.order,
            "renumbered": dict(report.renumbered),
        }
    )


def _quantized(end: QuantizedEnd, names: tuple[str, ...]) -> QuantizedTensor:
    return QuantizedTensor(
        name=names[end.position] if end.side == "input" else f"output{end.position}",
        dtype=dtype_name(end.dtype),
        scale=end.scale,
        zero_point=end.zero_point,
        quant_min=end.quant_min,
        quant_max=end.quant_max,
    )


def describe_split_state(project: Project, lowered: LoweredModel, exported: ExportedModel) -> Iterator[Failure]:
    """Yield a warning on each group of methods that share state in the model but not in the program.

    In the program, each of these methods has its own copy of the state. Yield nothing if the config sets
    `model.share_state`.
    """
    if says_share_state(project):
        return
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, methods in find_common(lowered, exported).items():
        groups[tuple(methods)].append(name)
    for together, names in groups.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield Failure(
            message=f"{', '.join(together)} each have their own copy of {shown}, which the model has once: a method "
            "does not see what other methods write",
            where=project.where("model"),
            hint="set `model.share_state`: true shares the state, false keeps the copies",
        )


def describe_state(program: Program) -> Iterator[str]:
    """Yield a note for each device whose memory contains state, because that memory must be zeroed at load."""
    found: dict[Device, dict[str, None]] = defaultdict(dict)
    for plan in program.execution_plan:
        for _, tensor in plan.tensors():
            if tensor.name is not None and tensor.allocation_info and not tensor.device.is_host:
                found[tensor.device][tensor.name] = None
    for device, names in sorted(found.items()):
        shown = ", ".join(list(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        yield (
            f"state stays on {device} ({shown}): the runtime must zero that memory when it loads the program; "
            "etdev's runtime does, ExecuTorch does not guarantee it"
        )


def describe_unguarded(project: Project, target: str, checks: Sequence[CheckResult]) -> Iterator[str]:
    """Yield a note on a quantized target if no limit of the config compares the target with the float model.

    Without such a limit, the target passes verification even if quantization has spoiled its outputs. If ``checks``
    measured a low SNR, the note says so.
    """
    settings = project.config.targets[target]
    if settings.quantize is None or settings.verify.min_snr_db is not None or settings.verify.accuracy is not None:
        return
    limit = f"set `min_snr_db` or `accuracy` in `targets.{target}.verify`"
    found = (output for check in checks for output in check.outputs)
    ratios = {output.float_snr_db: output for output in found if output.float_snr_db is not None}
    worst = min(ratios, default=inf)
    if worst >= _LOW_SNR_DB:
        yield f"no check compares the quantized model with the float model: {limit}"
        return
    output, scheme = ratios[worst], project.config.quantize[settings.quantize]
    keys = {"calibration": "check the data of", "keep_float": "keep sensitive modules in float with"}
    causes = [f"{keys[key]} `quantize.{settings.quantize}.{key}`" for key in accuracy_keys(scheme)]
    declared = project.config.methods.get(output.method)
    if declared is not None and declared.inputs and declared.samples is None:
        causes.insert(0, f"set `methods.{output.method}.samples`, because the inputs are random")
    yield (
        f"quantization seems to have spoiled output {output.output} of {output.method!r}: its SNR against the float "
        f"model is {worst:.1f} dB, so the error is {10 ** (-worst / 20):.0%} of the signal. The config sets no limit: "
        f"{', '.join([*causes, limit])}"
    )


def describe_constant_outputs(checks: Sequence[CheckResult]) -> Iterator[str]:
    """Yield a note on each output whose SNR is high only because most of the output is the same for all samples."""
    worst: dict[tuple[str, int], tuple[float, float]] = {}
    for output in (output for check in checks for output in check.outputs):
        ratio, varying = output.float_snr_db, output.varying_snr_db
        if ratio is not None and varying is not None and varying < min(_LOW_SNR_DB, ratio - _CONSTANT_DB):
            key = output.method, output.output
            worst[key] = min(worst.get(key, (inf, inf)), (varying, ratio))
    for (method, position), (varying, ratio) in worst.items():
        yield (
            f"output {position} of {method!r} is nearly the same for all samples. Its SNR against the float model is "
            f"{ratio:.1f} dB, but {varying:.1f} dB without the part that does not change: a limit on the SNR says "
            "little here. Use samples that differ more, check the calibration data, or set `verify.accuracy`"
        )


def describe_float_ops(project: Project, target: str, methods: Iterable[MethodResult]) -> Iterator[str]:
    """Yield a note if a backend with its own kernels did not take all matrix ops of a quantized target."""
    settings = project.config.targets[target]
    names = [step.backend for step in settings.partitioners if isinstance(backends.get(step.backend), RewritesPrograms)]
    left: Counter[str] = Counter()
    for method in methods:
        for item in method.undelegated:
            if item.op.partition(".default")[0] in _MATRIX_OPS:
                left[item.op.removesuffix(".default")] += item.count
    if settings.quantize is not None and names and left:
        ops = ", ".join(f"{name} x{number}" for name, number in sorted(left.items()))
        yield f"ops that stay in float on the portable kernels: {ops}; the backend {names[0]!r} did not take them"


def describe_repeated(project: Project, target: str, program: Program, data: DataFiles) -> Iterator[str]:
    """Yield a note if the file has weights twice, for example because an embedding and a delegate use them.

    Ignore data that a backend keeps in a separate data file, because this data is not in the program's file.
    """
    if project.config.targets[target].external_weights is not None:
        return
    size = repeated_bytes(program, {item.key for item in movable_data(program)}.difference(*data.delegates.values()))
    if size >= _LEAST_REPEATED:
        yield (
            f"{format_size(size)} of weights are in the file twice, for kernels and for delegates; "
            f"`targets.{target}.external_weights` stores equal bytes once"
        )


def describe_heap(project: Project, target: str, methods: Iterable[MethodResult], program: Program) -> Iterator[str]:
    """Yield a note if matrix products in faster forms may take more memory outside of a target's banks than in them."""
    if project.config.targets[target].memory.room is None:
        return
    replaced = {method.name for method in methods if PRODUCTS.intersection(method.forms)}
    copied = max((copied_operands(plan) for plan in program.execution_plan if plan.name in replaced), default=0)
    if copied > planned_memory(program)[str(HOST)]:
        yield (
            f"matrix products may copy {copied:,} bytes of their operands to the heap, which is in no bank; the stock "
            f"lowering ({project.where('targets', target, 'lowering')}) may need less of it, and is slower"
        )


def describe_unused(project: Project, target: str, program: Program) -> Iterator[str]:
    """Yield notes on settings without effect. A possible cause is a misspelled name in the config.

    These settings are:

    * partitioners that took no op, for example because their options name ops that the model lacks
    * memory limits for unused devices or banks
    """
    settings = project.config.targets[target]
    found = {(item.id, delegate_device(item)) for plan in program.execution_plan for item in plan.delegates}
    integer = [backends.get(step.backend) for step in settings.partitioners if step.backend in BACKEND_SCHEMES]
    is_float = settings.quantize is None and not any(_takes_part(backend, program) for backend in integer)
    for index, step in enumerate(settings.partitioners):
        backend = backends.get(step.backend)
        if step.backend in BACKEND_SCHEMES and is_float:
            yield _float_note(project, target, index)
            continue
        device = Device() if step.device is None else parse_device(step.device)
        if backend.delegate_ids and not any(
            name in backend.delegate_ids and (step.device is None or place == device) for name, place in found
        ):
            there = f" on {device}" if step.device is not None else ""
            where = project.where("targets", target, "partitioners", index)
            what = f"the partitioner {step.backend!r}{there} took no op"
            yield f"{what}: its options, at {where}, may name ops that the model does not have"
    devices = {str(device) for device in (Device(), *named_devices(program))}
    sizes, banks = buffer_sizes(program), settings.memory.bank_names
    used = devices.union(bank for index, bank in banks.items() if sizes.get(index))
    for name in settings.budget.memory:
        if name not in used:
            where = project.where("targets", target, "budget", "memory", name)
            there = f"in bank {name}" if name in banks.values() else f"on {name}"
            yield f"the program uses no memory {there}, although {where} limits that memory"


def _takes_part(backend: Backend, program: Program) -> bool:
    """Return True if a program has delegates of a backend, or operators of the backend's kernel library."""
    ids = {item.id for plan in program.execution_plan for item in plan.delegates}
    operators = {operator_name(operator) for plan in program.execution_plan for operator in plan.operators}
    library = backend.kernel_library if isinstance(backend, RewritesPrograms) else None
    return not ids.isdisjoint(backend.delegate_ids) or library in needed_libraries(operators)


def _float_note(project: Project, target: str, index: int) -> str:
    """Return the note on a partitioner that took no op because the target is not quantized."""
    name = project.config.targets[target].partitioners[index].backend
    where = project.where("targets", target, "partitioners", index)
    return (
        f"the partitioner {name!r} took no op: it takes only quantized ops, and the target has no `quantize` ({where})"
    )
