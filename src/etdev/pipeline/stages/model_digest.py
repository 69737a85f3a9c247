"""The digest of a model, for comparing the models that two processes made."""

from __future__ import annotations

import hashlib

from etdev.pipeline.project.torch_tensors import bytes_of
from etdev.pipeline.stages.artifacts import ExportedModel


def digest_of_model(model: ExportedModel) -> str:
    """Return the SHA-256 of all tensors of all methods (weights, buffers and others) and of the constant methods."""
    known: dict[object, str] = {}
    found = hashlib.sha256(repr(sorted(model.constants.items())).encode())
    for method, exported in model.methods.items():
        for table in (exported.program.state_dict, exported.program.constants):
            for name, value in sorted(table.items()):
                found.update(f"{method} {name} {_digest_of(value, known)}\n".encode())
    return found.hexdigest()


def _digest_of(value: object, known: dict[object, str]) -> str:
    """Return the digest of a tensor; an empty text for other values.

    ``known`` contains the digests of weights that methods share, so that each weight is read once.
    """
    import torch

    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return ""
    key = (value.data_ptr(), value.dtype, value.shape, value.stride())
    if key not in known:
        known[key] = f"{value.dtype} {list(value.shape)} {hashlib.sha256(bytes_of(value)).hexdigest()}"
    return known[key]
