"""``pt2e-xnnpack``: int8 by PT2E with ExecuTorch's XNNPACK quantizer, calibrated on the project's data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etdev.config.models import Pt2eXnnpack
from etdev.errors import EtdevError, QuantizeError
from etdev.pipeline.artifacts import ExportedMethod, ExportedModel
from etdev.pipeline.export import export_module
from etdev.pipeline.project import Project
from etdev.pipeline.quantize import Calibration, quantize_failure
from etdev.pipeline.usercode import UserCode


def quantize_program(
    project: Project, exported: ExportedModel, name: str, user: UserCode, calibration: Calibration
) -> ExportedModel:
    """Observe, calibrate, convert and export again, one method after the other."""
    settings = project.config.quantize[name]
    assert isinstance(settings, Pt2eXnnpack)
    methods: dict[str, ExportedMethod] = {}
    eager: dict[str, Callable[..., Any]] = {}
    for method, graph in exported.methods.items():
        signature = exported.signatures[method]
        converted = _convert(project, graph, settings, name, method, calibration)
        program = export_module(project, user, converted, signature, graph.example)
        methods[method] = ExportedMethod(program, graph.example)
        eager[method] = converted
    return ExportedModel(methods, eager, exported.signatures, settings.scheme)


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
        prepared = prepare_pt2e(graph.program.module(), quantizer)
        with torch.no_grad():
            for sample in calibration(method):
                prepared(*sample)
        converted = convert_pt2e(prepared)
    except EtdevError:
        raise
    except Exception as error:
        raise quantize_failure(settings.scheme, error, where) from error
    if not _is_quantized(converted):
        raise QuantizeError(
            f"the scheme {settings.scheme!r} found nothing to quantize in method {method!r}",
            where=where,
            hint="dynamic quantization covers linear layers only" if settings.dynamic else "leave `quantize` out",
        )
    return converted


def _is_quantized(module: Any) -> bool:
    return any("quantized_decomposed" in str(node.target) for node in module.graph.nodes if node.op == "call_function")
