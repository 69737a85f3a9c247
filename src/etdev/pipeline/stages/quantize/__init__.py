"""Stage *quantize*: the quantization schemes; each scheme works before or after export.

A new scheme needs three parts: a model of its keys in :mod:`etdev.config.models`, a module here, and a line in one of
the two tables below.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from etdev.errors import QuantizeError, describe_exception
from etdev.pipeline.project import Project
from etdev.pipeline.project.requirements import import_package
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedModel, LoadedModel

if TYPE_CHECKING:
    import torch

Calibration = Callable[[str], Iterable[Tensors]]
"""A function that takes a method's name and returns the method's calibration inputs."""

_BEFORE_EXPORT = {"8da4w": "etdev.pipeline.stages.quantize.int8_int4:quantize_module"}
"""Maps each scheme that changes the eager module to the function that applies the scheme."""

_ON_MODEL = {"8da4w": "etdev.pipeline.stages.quantize.int8_int4:choose_layers"}
"""Maps each scheme that can check the eager module without quantizing it to the function that does so."""

_AFTER_EXPORT = dict.fromkeys(
    ("pt2e-xnnpack", "arm-ethos-u", "cortex-m"), "etdev.pipeline.stages.quantize.pt2e:quantize_program"
)
"""Maps each scheme that changes the exported graph to the function that applies the scheme."""


def works_before_export(scheme: str) -> bool:
    """Return True if a scheme changes the eager module, False if it changes the exported graph."""
    return scheme in _BEFORE_EXPORT


def quantize_loaded(project: Project, loaded: LoadedModel, name: str) -> LoadedModel:
    """Apply ``[quantize.NAME]`` to a copy of the eager module."""
    settings = project.config.quantize[name]
    quantize: Callable[[torch.nn.Module, Any, Callable[..., str]], torch.nn.Module] = _function(
        _BEFORE_EXPORT[settings.scheme]
    )
    module = quantize(loaded.module, settings, partial(project.where, "quantize", name))
    return replace(loaded, module=module)


def check_loaded(project: Project, loaded: LoadedModel, name: str) -> None:
    """Raise the errors about the model that ``[quantize.NAME]`` would raise, without quantizing the model."""
    settings = project.config.quantize[name]
    if settings.scheme in _ON_MODEL and loaded.program is None:
        _named(_ON_MODEL[settings.scheme])(loaded.module, settings, partial(project.where, "quantize", name))


def quantize_exported(
    project: Project, exported: ExportedModel, name: str, user: UserCode, calibration: Calibration
) -> ExportedModel:
    """Apply ``[quantize.NAME]`` to every exported method."""
    settings = project.config.quantize[name]
    import_package("executorch.exir")
    quantize: Callable[..., ExportedModel] = _function(_AFTER_EXPORT[settings.scheme])
    return quantize(project, exported, name, user, calibration)


def quantize_failure(scheme: str, error: Exception, where: str) -> QuantizeError:
    """Return the error for a scheme that failed. ``where`` is the location of the scheme's table in the config."""
    return QuantizeError(f"the scheme {scheme!r} failed: {describe_exception(error)}", where=where)


def _function(path: str) -> Any:
    import_package("torchao")
    return _named(path)


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
