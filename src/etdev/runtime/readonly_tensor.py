"""Read-only torch tensors. Importing this module imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from etdev.errors import UsageError
from etdev.runtime.errors import refuse_write

_RUNNING = ("running_mean", "running_var")
"""Arguments that batch-norm operators write in training, although the operators' schemas do not declare this."""


def _refuse_address(self: Any, *_: Any, **__: Any) -> Any:
    raise UsageError(
        "a read-only argument has no address that a task may use",
        hint="copy it with `tensor.clone()`, or request write access with `handle.resident('update')`",
    )


class ReadOnlyTensor(torch.Tensor):
    """A read-only view of the tensor ``covered``.

    The view has no storage, so torch passes every operation to :meth:`__torch_dispatch__`, which refuses writes.
    """

    covered: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    data_ptr = untyped_storage = share_memory_ = __dlpack__ = _refuse_address

    @staticmethod
    def __new__(cls: type[ReadOnlyTensor], covered: torch.Tensor) -> ReadOnlyTensor:
        made: ReadOnlyTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            covered.size(),
            strides=covered.stride(),
            storage_offset=covered.storage_offset(),
            dtype=covered.dtype,
            device=covered.device,
        )
        made.covered = covered
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation on the covered tensors; return read-only tensors for views of covered tensors.

        Raise an error if the operation writes to a covered tensor.
        """
        kwargs = kwargs or {}
        if any(isinstance(leaf, cls) for written in _written(func, args, kwargs) for leaf in tree_leaves(written)):
            raise refuse_write()
        held = {_storage(leaf.covered) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls)}

        def uncover(leaf: Any) -> Any:
            return leaf.covered if isinstance(leaf, cls) else leaf

        def cover(leaf: Any) -> Any:
            return cls(leaf) if type(leaf) is torch.Tensor and _storage(leaf) in held else leaf

        return tree_map(cover, func(*tree_map(uncover, args), **tree_map(uncover, kwargs)))

    def numpy(self, *, force: bool = False) -> Any:
        """Return the memory as a read-only numpy array; the tensor must be on the host."""
        found = self.covered.numpy(force=force)
        found.flags.writeable = False
        return found

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)

    def tolist(self) -> Any:
        """Return the elements as a list."""
        return self.covered.tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"read-only {self.covered!r}"

    def __copy__(self) -> torch.Tensor:
        return self.clone()

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.clone().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _written(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the arguments that an operation writes. For ``set_``, which reassigns storage, yield all arguments."""
    schema = func._schema
    named = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
    if schema.name == "aten::set_":
        yield from named.values()
    training = named.get("training", named.get("train", False))
    for argument in schema.arguments:
        declared = argument.alias_info is not None and argument.alias_info.is_write
        if declared or (training and argument.name in _RUNNING):
            yield named.get(argument.name)
