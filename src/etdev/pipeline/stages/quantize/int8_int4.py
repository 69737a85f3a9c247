"""``8da4w``: torchao's int8 dynamic activations with grouped int4 weights, on the eager module's linear layers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

from etdev.config.tables.schemes import Int8DynamicInt4Weight
from etdev.errors import QuantizeError
from etdev.pipeline.stages.quantize import quantize_failure
from etdev.pipeline.stages.quantize.float_modules import check_modules_exist, is_in_modules

if TYPE_CHECKING:
    import torch


def quantize_module(
    module: torch.nn.Module, settings: Int8DynamicInt4Weight, place: Callable[..., str]
) -> torch.nn.Module:
    """Return a quantized copy of the module; the float module is unchanged, because it is the reference.

    ``place()`` is the location of the scheme's table in the config. ``place(KEY)`` is the location of a key in it.

    Raises :class:`~etdev.errors.QuantizeError` if the model has no linear layer. Also raises this error if the group
    size does not divide the input width of a linear layer.
    """
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    where = place()
    linears = {name: part for name, part in module.named_modules() if _takes(part)}
    if not linears:
        raise QuantizeError(
            f"the scheme {settings.scheme!r} works on linear layers, but the model has none",
            where=where,
            hint="use the scheme 'pt2e-xnnpack'",
        )
    paths = dict(module.named_modules(remove_duplicate=False))
    check_modules_exist(settings.keep_float, paths, place("keep_float"))
    kept = [part for name, part in paths.items() if is_in_modules(name, settings.keep_float)]
    linears = {name: part for name, part in linears.items() if not any(part is other for other in kept)}
    if not linears:
        raise QuantizeError(
            "`keep_float` leaves no linear layer to quantize",
            where=place("keep_float"),
            hint="name fewer modules, or remove `quantize` from the target",
        )
    uneven = [
        f"{name} ({part.in_features})" for name, part in linears.items() if part.in_features % settings.group_size
    ]
    if uneven:
        raise QuantizeError(
            f"group_size {settings.group_size} does not divide the input width of {', '.join(uneven)}",
            where=where,
            hint="choose a group_size that divides the widths of all linear layers (a multiple of 32), or name the "
            "other layers in `keep_float`",
        )
    try:
        quantized = copy.deepcopy(module)
        names = {name for name, part in paths.items() if any(part is other for other in linears.values())}
        quantize_(
            quantized,
            Int8DynamicActivationIntxWeightConfig(
                weight_dtype=torch.int4,  # type: ignore[attr-defined]
                weight_granularity=PerGroup(settings.group_size),
            ),
            filter_fn=lambda _, name: name in names,
        )
    except Exception as error:
        raise quantize_failure(settings.scheme, error, where) from error
    return quantized


def _takes(part: torch.nn.Module) -> bool:
    """Return True if torchao quantizes this module.

    torchao does not quantize the output projection of an attention layer, although its class is derived from
    ``Linear``.
    """
    import torch
    from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

    return isinstance(part, torch.nn.Linear) and not isinstance(part, NonDynamicallyQuantizableLinear)
