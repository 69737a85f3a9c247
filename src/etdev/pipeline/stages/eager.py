"""Outputs of eager PyTorch, for the float model and for the quantized model before lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from etdev.errors import VerifyError
from etdev.pipeline.project import Project
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode, translated
from etdev.pipeline.stages.artifacts import ExportedModel
from etdev.pipeline.stages.inputs import Call
from etdev.pipeline.stages.known_outputs import key_of_call

if TYPE_CHECKING:
    import torch


State = dict[str, "torch.Tensor"]
"""Buffers that earlier calls have changed, by name."""


class Session:
    """Successive calls of a model. Each call starts with the state that the earlier calls produced.

    Each method has its own state. With ``model.share_state``, all methods share one state.
    """

    def __init__(self, project: Project, user: UserCode, model: ExportedModel) -> None:
        self._user, self._model, self._shared = user, model, project.config.model.share_state
        self._states: dict[str, State] = {}
        self._keys: dict[str, str | None] = {}
        """Maps each state to the digest of the calls that used the state so far; to None if a call has no digest.

        The digest is the key for looking up known outputs.
        """
        self._waiting: list[tuple[Call, str, str]] = []
        """Calls whose outputs were looked up instead of computed.

        The calls are computed only if a later call needs the resulting state.
        """

    def compute(self, call: Call, at: str, where: str) -> list[Any]:
        """Return the outputs of the next call, as a flat list like that of :func:`compute`.

        ``at`` describes the call in error messages, and ``where`` is the location for errors.
        """
        self._waiting.append((call, at, where))
        known = self._model.known
        state = self._state_of(call.method)
        key = self._keys[state] = key_of_call(call.method, call.inputs, self._keys.get(state, ""))
        found = known.find(key)
        if found is not None:
            return found.outputs
        waiting, self._waiting = self._waiting, []
        outputs = [self.compute_once(*item) for item in waiting][-1]
        # `compute` may look up the first call too. It needs the names of the written buffers.
        known.add(key, outputs, self._states.get(state, {}))
        return outputs

    def _state_of(self, method: str) -> str:
        """Return the name of the state on which a method works."""
        return "" if self._shared else method

    def compute_once(self, call: Call, at: str, where: str) -> list[Any]:
        """Return the outputs as :meth:`compute` does, but do not keep them for later calls of :meth:`compute`."""
        what = f"method {call.method!r} failed in eager PyTorch: {at}"
        function = self._model.eager[call.method]
        with translated(self._user, VerifyError, what, where=where):
            return _compute(function, call.inputs, self._states.setdefault(self._state_of(call.method), {}), where)


def compute(
    project: Project,
    user: UserCode,
    model: ExportedModel,
    method: str,
    inputs: Tensors,
    *,
    written: set[str] | None = None,
) -> list[Any]:
    """Run a method on its initial state; return a flat list of outputs, and leave state and inputs unchanged.

    As in a program, the list begins with the new values of inputs that the method changes. The names of the buffers
    that the method writes are added to ``written``. Raises :class:`~etdev.errors.VerifyError` if the model itself fails
    on these inputs.
    """
    key = key_of_call(method, inputs)
    found = model.known.find(key)
    if found is not None:
        if written is not None:
            written.update(found.written)
        return found.outputs
    state: State = {}
    what = f"method {method!r} failed in eager PyTorch on its own samples"
    function = model.eager[method]
    with translated(user, VerifyError, what, where=project.where("methods", method, "samples")):
        outputs = _compute(function, inputs, state, project.where("methods", method))
    model.known.add(key, outputs, state)
    if written is not None:
        written.update(state)
    return outputs


def _compute(function: Callable[..., Any], inputs: Tensors, state: State, where: str) -> list[Any]:
    """Run the function on the buffers in ``state``, and store in ``state`` the buffers that the function writes."""
    import torch
    from torch.utils._pytree import tree_leaves

    module = module_of(function)
    _require_values("buffers", module.buffers() if module is not None else (), where)
    with torch.no_grad(), _overlaid_state(module, state):
        given = [tensor.clone() for tensor in inputs]
        fresh = [tensor._version for tensor in given]
        result = function(*given)
        changed = [tensor for tensor, version in zip(given, fresh, strict=True) if tensor._version != version]
        leaves = [*changed, *tree_leaves(result)]
        _require_values("outputs", leaves, where)
        return [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _require_values(what: str, found: Iterable[object], where: str) -> None:
    """Raise an error if a tensor has no values; ``what`` describes the tensor.

    An export or a dry run calls the model on tensors without values. A model that stores the result of its first call
    may still contain such a tensor.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    if any(isinstance(item, FakeTensor) for item in found):
        raise VerifyError(
            f"the model has {what} without values: it uses a tensor that was made during export",
            where=where,
            hint="in `__init__`, register tensors that the model keeps between calls as buffers "
            "(`persistent=False` if they are not saved)",
        )


@contextmanager
def _overlaid_state(module: torch.nn.Module | None, state: State) -> Iterator[None]:
    """Set the buffers to the values in ``state`` during the block; restore the buffers on exit.

    On exit, first copy the new value of each written buffer to ``state``. This includes buffers whose
    new value equals the value before the block.
    """
    buffers = dict(module.named_buffers()) if module is not None else {}
    with restored_buffers(module):
        for name in state.keys() & buffers.keys():
            buffers[name].copy_(state[name])
        before = {name: (buffer._version, buffer.clone()) for name, buffer in buffers.items()}
        yield
        for name, buffer in module.named_buffers() if module is not None else ():
            if name in before and (
                buffer is not buffers[name]
                or buffer._version != before[name][0]
                or not buffer.equal(before[name][1])  # Writes through `.data` do not change the version.
            ):
                state[name] = buffer.clone()


@contextmanager
def restored_buffers(module: torch.nn.Module | None) -> Iterator[None]:
    """On exit, restore the values that the buffers had before the block."""
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
    """Restore the module's original tensors after the model replaced them, as in ``self.count = self.count + 1``."""
    for name, buffer in module.named_buffers():
        if name in buffers and buffers[name] is not buffer:
            owner, _, attribute = name.rpartition(".")
            module.get_submodule(owner)._buffers[attribute] = buffers[name]


def module_of(function: Any) -> torch.nn.Module | None:
    """Return ``function`` if it is a module, or the module of ``partial(module.method)``; None for other functions."""
    import torch

    for candidate in (function, getattr(getattr(function, "func", None), "__self__", None)):
        if isinstance(candidate, torch.nn.Module):
            return candidate
    return None
