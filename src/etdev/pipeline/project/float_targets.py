"""Early detection of targets without quantization whose backend takes only quantized ops.

Such a target builds, but its ops stay in float. This module reads only the config, and does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from etdev.config.issues import NOT_QUANTIZED
from etdev.config.keys import format_key
from etdev.config.loader import LoadedConfig
from etdev.config.module_imports import imported_packages
from etdev.config.tables.schemes import BACKEND_SCHEMES, integer_backend
from etdev.errors import Problem


def float_targets(loaded: LoadedConfig, targets: Iterable[str] | None = None) -> Iterator[Problem]:
    """Yield a problem for each of the targets that gives float ops to a backend that takes only quantized ops.

    If ``targets`` is None, check all targets. A model that may be quantized already causes no problem. That is a saved
    program, or one with a module in the entry's folder that imports torchao.
    """
    config = loaded.config
    if config.model.pt2 is not None or _imports_torchao(loaded):
        return
    for target in config.targets if targets is None else targets:
        settings = config.targets[target]
        names = [step.backend for step in settings.partitioners]
        backend = integer_backend(names)
        if backend is None or settings.quantize is not None:
            continue
        key = ("targets", target, "partitioners", names.index(backend), "backend")
        yield loaded.problem(
            f"`{format_key(key)}`: the backend {backend!r} takes only quantized ops, and the target has no `quantize`, "
            "so float ops stay on other kernels",
            *key,
            hint=scheme_remedy(loaded, target, BACKEND_SCHEMES[backend]),
            rule=NOT_QUANTIZED,
        )


def _imports_torchao(loaded: LoadedConfig) -> bool:
    return any("torchao" in imported_packages(file) for file in sorted(loaded.base("model", "entry").glob("*.py")))


def scheme_remedy(loaded: LoadedConfig, target: str, scheme: str) -> str:
    """Return the remedy that names the scheme which a target needs, and a table of the config with this scheme."""
    known = [name for name, settings in loaded.config.quantize.items() if settings.scheme == scheme]
    table = f'"{known[0]}"' if known else "the name of a table `quantize.NAME`"
    return f'set `targets.{target}.quantize` to {table}, with the scheme "{scheme}"'
