"""PT2E schemes: int8 with one of ExecuTorch's quantizers, calibrated on the project's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from etdev import tosa_tools
from etdev.config.tables.schemes import ArmEthosU, CortexM, Pt2e, Pt2eXnnpack
from etdev.errors import EtdevError, QuantizeError
from etdev.pipeline.project import Project
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedMethod, ExportedModel, LocalError
from etdev.pipeline.stages.emit.module_paths import module_path
from etdev.pipeline.stages.export import export_module
from etdev.pipeline.stages.quantize import Calibration, quantize_failure, xnnpack
from etdev.pipeline.stages.quantize.channels_last import use_channels_last
from etdev.pipeline.stages.quantize.float_modules import check_modules_exist
from etdev.pipeline.stages.quantize.local_errors import LocalErrors


def quantize_program(
    project: Project, exported: ExportedModel, name: str, user: UserCode, calibration: Calibration
) -> ExportedModel:
    """Quantize each method of an exported model: insert observers, calibrate, convert and export again.

    A method without an op to quantize is unchanged. Raises :class:`~etdev.errors.QuantizeError` if no method has an op
    to quantize.
    """
    settings = project.config.quantize[name]
    assert isinstance(settings, Pt2e)
    if isinstance(settings, Pt2eXnnpack) and settings.keep_float:
        nodes = (node for graph in exported.methods.values() for node in graph.program.graph.nodes)
        paths = (module_path(node) or "" for node in nodes)
        check_modules_exist(settings.keep_float, paths, project.where("quantize", name, "keep_float"))
    methods: dict[str, ExportedMethod] = {}
    eager: dict[str, Callable[..., Any]] = {}
    errors: dict[str, Callable[[Tensors], list[LocalError]]] = {}
    for method, graph in exported.methods.items():
        signature = exported.signatures[method]
        converted, local_errors = _convert(project, graph, settings, name, method, calibration)
        if not _is_quantized(converted):
            methods[method], eager[method] = graph, exported.eager[method]
            continue
        program = export_module(project, user, converted, signature, graph.example)
        methods[method] = ExportedMethod(program, graph.example)
        eager[method] = converted
        errors[method] = partial(local_errors.measure, converted)
    plain = [repr(method) for method in methods if methods[method] is exported.methods[method]]
    if len(plain) == len(methods):
        raise QuantizeError(
            f"the scheme {settings.scheme!r} found nothing to quantize in method {', '.join(plain)}",
            where=project.where("quantize", name),
            hint=" or ".join(_remedies(settings)),
        )
    notes = (f"methods with nothing to quantize, which stay in float: {', '.join(plain)}",) if plain else ()
    return replace(exported, methods=methods, eager=eager, scheme=settings.scheme, notes=notes, local_errors=errors)


def _remedies(settings: Pt2e) -> Iterator[str]:
    """Yield the remedies for a scheme that found nothing to quantize."""
    if isinstance(settings, Pt2eXnnpack) and settings.keep_float:
        yield "name fewer modules in `keep_float`"
    if settings.needs_calibration:
        yield "remove `quantize`"
    else:
        yield "set `dynamic` to false: dynamic quantization covers linear layers only"


def _convert(
    project: Project,
    graph: ExportedMethod,
    settings: Pt2e,
    name: str,
    method: str,
    calibration: Calibration,
) -> tuple[Any, LocalErrors]:
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    where = project.where("quantize", name)
    try:
        quantizer = _quantizer(settings)
        with _initial_state(graph) as reset:
            # A call of the guards would not survive Arm's passes, and would fail at sizes that are harmless exceptions.
            module = graph.program.module(check_guards=False)
            if isinstance(settings, CortexM):
                use_channels_last(module)
            prepared = prepare_pt2e(module, quantizer)
            with torch.no_grad():
                for sample in calibration(method):
                    prepared(*sample)
                    reset(prepared)
            local_errors = LocalErrors(prepared)
            converted = convert_pt2e(prepared)
            reset(converted)
    except EtdevError:
        raise
    except Exception as error:
        raise quantize_failure(settings.scheme, error, where) from error
    return converted, local_errors


def _quantizer(settings: Pt2e) -> Any:
    """Return ExecuTorch's quantizer for a scheme."""
    if isinstance(settings, Pt2eXnnpack):
        return xnnpack.make_quantizer(settings)
    if isinstance(settings, ArmEthosU):
        with tosa_tools.importable():
            from executorch.backends.arm.ethosu import EthosUCompileSpec
            from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
        quantizer = EthosUQuantizer(EthosUCompileSpec(settings.target))
        return quantizer.set_global(get_symmetric_quantization_config(is_per_channel=settings.per_channel))
    with tosa_tools.importable():
        from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer

    return CortexMQuantizer()


@contextmanager
def _initial_state(graph: ExportedMethod) -> Iterator[Callable[[Any], None]]:
    """Yield a function that resets a converted module's buffers to their initial values.

    Call the function before each sample, because verification also starts each sample on initial state. On exit, also
    reset the buffers of the float model. The converted module shares these buffers, and conversion changes them because
    it runs the graph.
    """
    import torch

    original = graph.program.module()
    initial = {name: buffer.clone() for name, buffer in original.named_buffers()}

    def reset(module: Any) -> None:
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in initial:
                    buffer.copy_(initial[name])

    try:
        yield reset
    finally:
        reset(original)


def _is_quantized(module: Any) -> bool:
    return any("quantized_decomposed" in str(node.target) for node in module.graph.nodes if node.op == "call_function")
