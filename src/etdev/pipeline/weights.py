"""Loading ``safetensors`` weights into a module, strictly: every name and every shape must match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etdev.errors import MismatchError

if TYPE_CHECKING:
    import torch

_LISTED = 8


def load_weights(module: torch.nn.Module, path: Path, where: str) -> tuple[str, ...]:
    """Copy the tensors of ``path`` into the module's state. Returns notes for the report.

    Tensors that share storage in the module (tied weights) need only one of their names in the file, as safetensors
    writes them. Raises :class:`~etdev.errors.MismatchError` listing missing, unexpected and misshapen names; the module
    is untouched then.
    """
    stored = _read(path, where)
    state = _tensors(module)
    tied = _tied_names(state)
    missing = [name for name in state if name not in stored and not (tied[name] & stored.keys())]
    unexpected = [name for name in stored if name not in state]
    misshapen = [
        f"{name} (file {list(stored[name].shape)}, model {list(state[name].shape)})"
        for name in stored
        if name in state and stored[name].shape != state[name].shape
    ]
    problem = misfit(missing=missing, unexpected=unexpected, misshapen=misshapen)
    if problem is not None:
        raise MismatchError(
            f"the weights in {path.name} do not fit the model: {problem}",
            where=where,
            hint="check that `model.kwargs` build the same architecture that the weights were saved from",
        )
    module.load_state_dict(dict(stored), strict=False)
    changed = sorted(
        {f"{stored[name].dtype} to {state[name].dtype}" for name in stored if stored[name].dtype != state[name].dtype}
    )
    return tuple(f"weights converted from {conversion}" for conversion in changed)


def misfit(*, missing: Sequence[str] = (), unexpected: Sequence[str] = (), misshapen: Sequence[str] = ()) -> str | None:
    """``missing: a, b; unexpected: c``, long lists cut; None if there is nothing to list."""
    parts = [
        f"{title}: {', '.join(names[:_LISTED])}" + (f" and {rest} more" if (rest := len(names) - _LISTED) > 0 else "")
        for title, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    return "; ".join(parts) or None


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The module's state, without what ``get_extra_state`` adds that is no tensor."""
    import torch

    state: dict[str, object] = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _read(path: Path, where: str) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix != ".safetensors":
        raise MismatchError(
            f"{path.name!r} is not a .safetensors file; other formats can hold pickles, which are not loaded",
            where=where,
            hint="convert it once: safetensors.torch.save_model(model, 'weights.safetensors')",
        )
    try:
        stored: dict[str, torch.Tensor] = load_file(path)
    except FileNotFoundError:
        raise MismatchError(f"there is no file {path}", where=where) from None
    except (SafetensorError, OSError) as error:
        raise MismatchError(f"{path} cannot be read: {error}", where=where) from error
    return stored


def _tied_names(state: Mapping[str, torch.Tensor]) -> dict[str, set[str]]:
    """For each name, the names of the same tensor: same memory, shape and strides."""
    groups: dict[object, set[str]] = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if tensor.numel() else name
        groups.setdefault(key, set()).add(name)
    return {name: group - {name} for group in groups.values() for name in group}
