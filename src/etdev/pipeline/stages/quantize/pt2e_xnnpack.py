"""``pt2e-xnnpack``: int8 by PT2E with ExecuTorch's XNNPACK quantizer, calibrated on the project's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from etdev.config.models import Pt2eXnnpack
from etdev.errors import EtdevError, QuantizeError
from etdev.pipeline.project import Project
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedMethod, ExportedModel
from etdev.pipeline.stages.export import export_module
from etdev.pipeline.stages.quantize import Calibration, quantize_failure


def quantize_program(
    project: Project, exported: ExportedModel, name: str, user: UserCode, calibration: Calibration
) -> ExportedModel:
    """Observe, calibrate, convert and export again, method by method.

    Methods with nothing to quantize stay unchanged. Raises :class:`~etdev.errors.QuantizeError` if no method has
    anything to quantize.
    """
    settings = project.config.quantize[name]
    assert isinstance(settings, Pt2eXnnpack)
    methods: dict[str, ExportedMethod] = {}
    eager: dict[str, Callable[..., Any]] = {}
    for method, graph in exported.methods.items():
        signature = exported.signatures[method]
        converted = _convert(project, graph, settings, name, method, calibration)
        if not _is_quantized(converted):
            methods[method], eager[method] = graph, exported.eager[method]
            continue
        program = export_module(project, user, converted, signature, graph.example)
        methods[method] = ExportedMethod(program, graph.example)
        eager[method] = converted
    plain = [repr(method) for method in methods if methods[method] is exported.methods[method]]
    if len(plain) == len(methods):
        raise QuantizeError(
            f"the scheme {settings.scheme!r} found nothing to quantize in method {', '.join(plain)}",
            where=project.where("quantize", name),
            hint="set `dynamic` to false: dynamic quantization covers linear layers only"
            if settings.dynamic
            else "remove `quantize`",
        )
    notes = (f"methods with nothing to quantize, which stay in float: {', '.join(plain)}",) if plain else ()
    return replace(exported, methods=methods, eager=eager, scheme=settings.scheme, notes=notes)


def _convert(
    project: Project,
    graph: ExportedMethod,
    settings: Pt2eXnnpack,
    name: str,
    method: str,
    calibration: Calibration,
) -> Any:
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    where = project.where("quantize", name)
    try:
        quantizer = XNNPACKQuantizer().set_global(
            get_symmetric_quantization_config(is_per_channel=settings.per_channel, is_dynamic=settings.dynamic)
        )
        with _initial_state(graph) as reset:
            prepared = prepare_pt2e(graph.program.module(), quantizer)
            with torch.no_grad():
                for sample in calibration(method):
                    prepared(*sample)
                    reset(prepared)
            converted = convert_pt2e(prepared)
            reset(converted)
    except EtdevError:
        raise
    except Exception as error:
        raise quantize_failure(settings.scheme, error, where) from error
    return converted


@contextmanager
def _initial_state(graph: ExportedMethod) -> Iterator[Callable[[Any], None]]:
    """Yield a function that resets a converted module's buffers to their initial values.

    Call the function before each sample, because verification also runs each sample on fresh state. On exit, the float
    model's buffers are reset too: the converted module shares them, and conversion runs the graph once more.
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
