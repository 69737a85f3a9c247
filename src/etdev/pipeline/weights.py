"""Loading ``safetensors`` weights into a module, strictly: every name and every shape must match."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from etdev.errors import LoadError

if TYPE_CHECKING:
    import torch

_LISTED = 8


def load_weights(module: torch.nn.Module, path: Path, where: str) -> tuple[str, ...]:
    """Copy the tensors of ``path`` into the module's state. Returns notes for the report.

    Tensors that share storage in the module (tied weights) need only one of their names in the file, as safetensors
    writes them. Raises :class:`~etdev.errors.LoadError` listing missing, unexpected and misshapen names; the module is
    untouched then.
    """
    stored = _read(path, where)
    state = module.state_dict(keep_vars=True)
    tied = _tied_names(state)
    missing = [name for name in state if name not in stored and not (tied[name] & stored.keys())]
    unexpected = [name for name in stored if name not in state]
    misshapen = [
        f"{name} (file {list(stored[name].shape)}, model {list(state[name].shape)})"
        for name in stored
        if name in state and stored[name].shape != state[name].shape
    ]
    parts = [
        f"{title}: {_listed(names)}"
        for title, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    if parts:
        raise LoadError(
            f"the weights in {path.name} do not fit the model: {'; '.join(parts)}",
            where=where,
            hint="check that `model.kwargs` build the same architecture that the weights were saved from",
        )
    module.load_state_dict(dict(stored), strict=False)
    changed = sorted(
        {f"{stored[name].dtype} to {state[name].dtype}" for name in stored if stored[name].dtype != state[name].dtype}
    )
    return tuple(f"weights converted from {conversion}" for conversion in changed)


def _read(path: Path, where: str) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix != ".safetensors":
        raise LoadError(
            f"{path.name!r} is not a .safetensors file; other formats hold pickles, which are not loaded",
            where=where,
            hint="convert it once: safetensors.torch.save_model(model, 'weights.safetensors')",
        )
    try:
        stored: dict[str, torch.Tensor] = load_file(path)
    except FileNotFoundError:
        raise LoadError(f"there is no file {path}", where=where) from None
    except (SafetensorError, OSError) as error:
        raise LoadError(f"{path} cannot be read: {error}", where=where) from error
    return stored


def _tied_names(state: Mapping[str, torch.Tensor]) -> dict[str, set[str]]:
    """For each name, the names of the same tensor: same memory, shape and strides."""
    groups: dict[object, set[str]] = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if tensor.numel() else name
        groups.setdefault(key, set()).add(name)
    return {name: group - {name} for group in groups.values() for name in group}


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"
