"""What eager PyTorch computes: the float model, and the quantized model before lowering."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etdev.errors import VerifyError
from etdev.pipeline.artifacts import ExportedModel, Tensors
from etdev.pipeline.project import Project
from etdev.pipeline.usercode import UserCode, translated

if TYPE_CHECKING:
    import torch


def compute(project: Project, user: UserCode, model: ExportedModel, method: str, inputs: Tensors) -> list[Any]:
    """Outputs of a method on initial state, flattened in order; state and inputs are left as they were.

    A program answers the inputs that it changes before its outputs, so they come first here too. Raises
    :class:`~etdev.errors.VerifyError` if the model itself fails on these inputs.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    function = model.eager[method]
    what = f"method {method!r} failed in eager PyTorch on its own samples"
    with restored_buffers(_module_of(function)), torch.no_grad():
        with translated(user, VerifyError, what, where=project.where("methods", method, "samples")):
            given = [tensor.clone() for tensor in inputs]
            fresh = [tensor._version for tensor in given]
            result = function(*given)
        changed = [tensor for tensor, version in zip(given, fresh, strict=True) if tensor._version != version]
        return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in (*changed, *tree_leaves(result))]


@contextmanager
def restored_buffers(module: torch.nn.Module | None) -> Iterator[None]:
    """Give the buffers back the values that they had."""
    buffers = dict(module.named_buffers()) if module is not None else {}
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    try:
        yield
    finally:
        for name, buffer in buffers.items():
            buffer.copy_(before[name])
        if module is not None:
            _undo_rebinding(module, buffers)


def _undo_rebinding(module: torch.nn.Module, buffers: dict[str, torch.Tensor]) -> None:
    """A model may assign a new tensor to a buffer (``self.count = self.count + 1``) instead of changing it."""
    for name, buffer in module.named_buffers():
        if name in buffers and buffers[name] is not buffer:
            owner, _, attribute = name.rpartition(".")
            module.get_submodule(owner)._buffers[attribute] = buffers[name]


def _module_of(function: Any) -> torch.nn.Module | None:
    """The module behind ``module`` or ``partial(module.method)``."""
    import torch

    for candidate in (function, getattr(getattr(function, "func", None), "__self__", None)):
        if isinstance(candidate, torch.nn.Module):
            return candidate
    return None
