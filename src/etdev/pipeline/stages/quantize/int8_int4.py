"""``8da4w``: torchao's int8 dynamic activations with grouped int4 weights, on the eager module's linear layers.

Embeddings can have weights of 4 or 8 bits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from etdev.config.tables.schemes import LEAST_GROUP, Int8DynamicInt4Weight
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

    Raises the errors of :func:`choose_layers`.
    """
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    from etdev.pipeline.stages.quantize.embeddings import replace_embeddings

    linears, embeddings = choose_layers(module, settings, place)
    try:
        quantized = copy.deepcopy(module)
        if settings.embedding_bits is not None:
            replace_embeddings(quantized, embeddings, settings.embedding_bits, settings.group_size)
        quantize_(
            quantized,
            Int8DynamicActivationIntxWeightConfig(
                weight_dtype=torch.int4,  # type: ignore[attr-defined]
                weight_granularity=PerGroup(settings.group_size),
            ),
            filter_fn=lambda _, name: name in linears,
        )
    except Exception as error:
        raise quantize_failure(settings.scheme, error, place()) from error
    return quantized


def choose_layers(
    module: torch.nn.Module, settings: Int8DynamicInt4Weight, place: Callable[..., str]
) -> tuple[set[str], set[str]]:
    """Return the paths of the linear layers and of the embeddings to quantize.

    Raises :class:`~etdev.errors.QuantizeError` if the model has no linear layer, or if the group size does not divide
    the width of a linear layer or an embedding. Also raises this error if ``embedding_bits`` is set, but the model has
    no embedding, or one that computes more than ``torch.nn.Embedding``.
    """
    if not any(_is_linear(part) for part in module.modules()):
        raise QuantizeError(
            f"the scheme {settings.scheme!r} works on linear layers, but the model has none",
            where=place(),
            hint="remove `quantize` from the target"
            if settings.embedding_bits is not None
            else "use the scheme 'pt2e-xnnpack'",
        )
    paths = dict(module.named_modules(remove_duplicate=False))
    check_modules_exist(settings.keep_float, paths, place("keep_float"))
    kept = {part for name, part in paths.items() if is_in_modules(name, settings.keep_float)}
    linears = {name for name, part in paths.items() if _is_linear(part) and part not in kept}
    if not linears:
        raise QuantizeError(
            "`keep_float` leaves no linear layer to quantize",
            where=place("keep_float"),
            hint="name fewer modules, or remove `quantize` from the target",
        )
    embeddings = _embeddings(paths, kept, place) if settings.embedding_bits is not None else set()
    widths = {name: paths[name].in_features for name in linears}
    widths |= {name: paths[name].embedding_dim for name in embeddings}
    _check_widths(widths, settings.group_size, place("group_size"))
    return linears, embeddings


def _embeddings(paths: Mapping[str, Any], kept: Collection[object], place: Callable[..., str]) -> set[str]:
    """Return the paths of the embeddings to quantize.

    Raises :class:`~etdev.errors.QuantizeError` if there are none, or if one computes more than a plain embedding.
    """
    from torch.nn import Embedding

    found = {name: part for name, part in paths.items() if isinstance(part, Embedding) and part not in kept}
    if not found:
        raise QuantizeError(
            "`embedding_bits` is set, but the model has no embedding to quantize",
            where=place("embedding_bits"),
            hint="remove `embedding_bits`",
        )
    for name, part in found.items():
        kind = None if type(part) is Embedding else f"is a {type(part).__name__}"
        if part.max_norm is not None or part._forward_hooks or part._forward_pre_hooks:
            kind = kind or ("has hooks" if part.max_norm is None else "has `max_norm`")
        if kind is not None:
            raise QuantizeError(
                f"the embedding {name!r} {kind}, so it computes more than ExecuTorch's quantized embedding",
                where=place("embedding_bits"),
                hint=f"name {name!r} in `keep_float`, or use a plain `torch.nn.Embedding` in the model",
            )
    return set(found)


def _check_widths(widths: Mapping[str, int], group_size: int, where: str) -> None:
    """Raise :class:`~etdev.errors.QuantizeError` if the group size does not divide a width."""
    uneven = {name: width for name, width in sorted(widths.items()) if width % group_size}
    if not uneven:
        return
    common = math.gcd(*widths.values())
    sizes = [str(size) for size in range(LEAST_GROUP, min(common, group_size) + 1, LEAST_GROUP) if not common % size]
    odd = [name for name, width in uneven.items() if width % LEAST_GROUP]
    kept = ", ".join(map(repr, odd or uneven))
    raise QuantizeError(
        f"group_size {group_size} does not divide the width of "
        f"{', '.join(f'{name} ({width})' for name, width in uneven.items())}",
        where=where,
        hint=f"set `group_size` to {' or '.join(sizes)}, or name {kept} in `keep_float`"
        if sizes
        else f"name {kept} in `keep_float`, because no multiple of {LEAST_GROUP} divides all widths",
    )


def _is_linear(part: torch.nn.Module) -> bool:
    """Return True if torchao quantizes this module.

    torchao does not quantize the output projection of an attention layer, although its class is derived from
    ``Linear``.
    """
    import torch
    from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

    return isinstance(part, torch.nn.Linear) and not isinstance(part, NonDynamicallyQuantizableLinear)
