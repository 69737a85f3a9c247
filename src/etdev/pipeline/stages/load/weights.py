"""Strict loading of ``safetensors`` weights into a module: all names and shapes must match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

from etdev.errors import MismatchError
from etdev.files import SpecialFileError, describe_os_error, open_file

if TYPE_CHECKING:
    import torch

_LISTED = 8
_ARCHITECTURE_HINT = "check that `model.kwargs` make the same architecture as when the weights were saved"
_WRAPPERS = {
    "module.": "torch's DataParallel and DistributedDataParallel add this prefix",
    "model.": "Lightning adds this prefix to a module's attribute `model`",
    "_orig_mod.": "torch.compile adds this prefix",
}
"""Prefixes of tensor names, each with a description of the wrapper that adds the prefix."""


def load_weights(module: torch.nn.Module, path: Path, where: str) -> tuple[str, ...]:
    """Copy the tensors in the file ``path`` to the module's state, and return notes for the report.

    If tensors share storage in the module (tied weights), the file needs only one of them. Raises
    :class:`~etdev.errors.MismatchError` if the file lacks a tensor, has an unexpected tensor, or has a tensor of
    another shape. After an error, the module is unchanged.
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
            f"the weights in {path.name} do not match the model: {problem}",
            where=where,
            hint=_prefix_hint(stored, state) or _ARCHITECTURE_HINT,
        )
    module.load_state_dict(dict(stored), strict=False)
    changed = sorted(
        {f"{stored[name].dtype} to {state[name].dtype}" for name in stored if stored[name].dtype != state[name].dtype}
    )
    return tuple(f"weights converted: {conversion}" for conversion in changed)


def misfit(*, missing: Sequence[str] = (), unexpected: Sequence[str] = (), misshapen: Sequence[str] = ()) -> str | None:
    """Return a text such as ``missing: a, b; unexpected: c``, with long lists shortened; None if all are empty."""
    parts = [
        f"{title}: {', '.join(names[:_LISTED])}" + (f" and {rest} more" if (rest := len(names) - _LISTED) > 0 else "")
        for title, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshapen))
        if names
    ]
    return "; ".join(parts) or None


def _prefix_hint(stored: Iterable[str], state: Iterable[str]) -> str | None:
    """Return a hint if the names in the file and in the model differ only by a prefix; None otherwise."""
    there, wanted = set(stored), set(state)
    if prefix := _prefix(there, wanted):
        who = f" ({_WRAPPERS[prefix]})" if prefix in _WRAPPERS else ""
        return (
            f"every name in the file begins with {prefix!r}{who}: save the weights without it, like the script in "
            f"docs/models.md: {{name.removeprefix({prefix!r}): tensor for name, tensor in state.items()}}"
        )
    if prefix := _prefix(wanted, there):
        return (
            f"every name in the model begins with {prefix!r}, but no name in the file does: set the entry to a "
            "function that returns the inner model, or save the weights with the prefix"
        )
    return None


def _prefix(longer: Set[str], shorter: Set[str]) -> str | None:
    """Return the prefix whose removal turns all longer names into the shorter names; None if no prefix does."""
    for name in sorted(longer)[:1]:
        for short in shorter:
            prefix = name.removesuffix(short)
            if name.endswith(f".{short}") and all(
                other.startswith(prefix) and other.removeprefix(prefix) in shorter for other in longer
            ):
                return prefix
    return None


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors in the module's state dict, by name; omit extra state that is not a tensor."""
    import torch

    state: dict[str, object] = module.state_dict(keep_vars=True)
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


def _read(path: Path, where: str) -> Mapping[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        open_file(path).close()  # Loading would wait forever for a pipe.
        stored: dict[str, torch.Tensor] = load_file(path)
    except FileNotFoundError:
        hint = "correct the path, or make or download the file before the build"
        raise MismatchError(f"there is no file {path}", where=where, hint=hint) from None
    except SpecialFileError as error:
        cause, remedy = describe_os_error(error)
        raise MismatchError(f"{path} cannot be read: {cause}", where=where, hint=remedy) from error
    except (SafetensorError, OSError) as error:
        raise MismatchError(f"{path} cannot be read: {error}", where=where) from error
    return stored


def _tied_names(state: Mapping[str, torch.Tensor]) -> dict[str, set[str]]:
    """Map the name of each tensor to the other names of the same tensor.

    Two names refer to the same tensor if address, shape and strides are equal.
    """
    groups: dict[object, set[str]] = {}
    for name, tensor in state.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride()) if tensor.numel() else name
        groups.setdefault(key, set()).add(name)
    return {name: group - {name} for group in groups.values() for name in group}
