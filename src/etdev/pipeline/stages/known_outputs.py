"""Tables of the outputs of calls, so that each call is computed only once.

The outputs of a quantized model are stored, so that later runs need not quantize the model again for verification.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from etdev.pipeline.project.torch_tensors import bytes_of

if TYPE_CHECKING:
    from etdev.pipeline.project.torch_tensors import Tensors

_MOST_BYTES = 256 << 20
"""Maximum size of a table in bytes. Outputs that do not fit are computed again."""

_PLAIN = (int, float, bool, str, type(None))


_Kept = tuple[list[Any], list[str]]


class Known(NamedTuple):
    """A call's outputs, and the buffers that the call writes."""

    outputs: list[Any]
    written: Sequence[str]
    """Names of the buffers that the call writes."""


class KnownOutputs:
    """A table of known outputs, by the digest of the call.

    The digest covers the method, its inputs, and the earlier calls on the same state.
    """

    def __init__(self, content: bytes | None = None) -> None:
        """Load the content of an earlier run; start empty if ``content`` is None or cannot be read."""
        self._found = {} if content is None else _loaded(content)
        self._used: dict[str, _Kept] = {}
        self._size = 0
        self.has_new = False
        """True if this run added outputs that no earlier run computed."""

    def __bool__(self) -> bool:
        return bool(self._found)

    def include(self, other: KnownOutputs) -> None:
        """Add the known outputs of another table."""
        self._found.update(other._found)

    def find(self, key: str | None) -> Known | None:
        """Return a call's outputs and written buffers, as copies; None if the call is unknown."""
        found = None if key is None else self._found.get(key)
        if key is None or found is None:
            return None
        self._keep(key, found)
        outputs, written = found
        return Known([item.clone() if hasattr(item, "clone") else item for item in outputs], written)

    def add(self, key: str | None, outputs: Sequence[Any], written: Iterable[str]) -> None:
        """Store a call's outputs and the names of the buffers that the call writes.

        Do nothing if the outputs cannot be stored in a file, or if ``key`` is None.
        """
        if key is None or not all(_can_be_kept(item) for item in outputs):
            return
        self.has_new = True
        copies = [item.detach().clone() if hasattr(item, "clone") else item for item in outputs]
        self._keep(key, (copies, sorted(written)))

    def _keep(self, key: str, kept: _Kept) -> None:
        if key in self._used:
            return
        size = sum(item.numel() * item.element_size() for item in kept[0] if hasattr(item, "numel"))
        if self._size + size <= _MOST_BYTES:
            self._used[key] = self._found[key] = kept
            self._size += size

    def content(self) -> bytes:
        """Return the outputs of this run's calls, serialized for a file."""
        import torch

        file = io.BytesIO()
        torch.save(self._used, file)
        return file.getvalue()


def key_of_call(method: str, inputs: Tensors, before: str | None = "") -> str | None:
    """Return the digest of a call, given the digest ``before`` of the calls before it.

    Return None if the inputs of the call cannot be identified.
    """
    import torch

    if before is None:
        return None
    found = hashlib.sha256(f"{before}\n{method}\n".encode())
    for tensor in inputs:
        if tensor.layout != torch.strided or tensor.is_quantized:
            return None
        found.update(f"{tensor.dtype} {list(tensor.shape)} {list(tensor.stride())}\n".encode())
        found.update(bytes_of(tensor))
    return found.hexdigest()


_T = TypeVar("_T")


class MadeOnDemand(Mapping[str, _T]):
    """A mapping that calls ``make`` for an item when the item is first accessed."""

    def __init__(self, make: Callable[[], Mapping[str, _T]]) -> None:
        self._make = make

    def __getitem__(self, name: str) -> _T:
        return self._make()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._make())

    def __len__(self) -> int:
        return len(self._make())


def _can_be_kept(item: object) -> bool:
    import torch

    if isinstance(item, torch.Tensor):
        return item.layout == torch.strided and not item.is_quantized and type(item) is torch.Tensor
    return isinstance(item, _PLAIN)


def _loaded(content: bytes) -> dict[str, _Kept]:
    import torch

    try:
        found = torch.load(io.BytesIO(content), weights_only=True)
    except Exception:  # noqa: BLE001 - of another version of torch, say: all is computed again
        return {}
    return found if isinstance(found, dict) else {}
