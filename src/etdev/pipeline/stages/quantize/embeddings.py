"""Embeddings with integer weights: ExecuTorch's ops ``embedding_byte`` and ``embedding_4bit``."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from etdev.errors import QuantizeError


class QuantizedEmbedding(nn.Module):
    """An embedding whose weight (rows, width) is integers of 4 or 8 bits; one scale for each group in a row.

    In ``integers``, two integers of 4 bits share a byte, as the op ``embedding_4bit`` expects them. Scales are float32,
    because the kernel of executorch 1.5.1 misreads other ones.
    """

    integers: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor, bits: int, group_size: int) -> None:
        """Quantize ``weight``, float (rows, width). ``group_size`` must divide the width, which must be even."""
        super().__init__()
        from executorch.exir.passes import quant_fusion_pass  # noqa: F401 - registers the ops
        from torchao.quantization.quant_primitives import MappingType, choose_qparams_affine, quantize_affine

        self.bits, self.dtype = bits, weight.dtype
        limits = -(1 << bits - 1), (1 << bits - 1) - 1
        groups = (1, group_size)
        with torch.no_grad():
            floats = weight.float()
            scales, zeros = choose_qparams_affine(floats, MappingType.SYMMETRIC, groups, torch.int8, *limits)
            integers = quantize_affine(floats, groups, scales, zeros, torch.int8, *limits)
        self.register_buffer("integers", _packed(integers) if bits == 4 else integers)
        self.register_buffer("scales", scales)

    @property
    def weight(self) -> Tensor:
        """Raise an error, because a model that reads the float weight would compute with integers."""
        raise QuantizeError(
            "the model reads the `weight` of an embedding that `embedding_bits` quantizes: name the embedding in "
            "`keep_float`, or use an output layer of class `torch.nn.Linear`"
        )

    def forward(self, indices: Tensor) -> Tensor:
        """Return the vectors (..., width) of the quantized weight's dtype, for integer indices (...)."""
        ops, wide = torch.ops.quantized_decomposed, indices.long()  # The kernel for 8 bits needs int64.
        if self.bits == 4:
            found: Tensor = ops.embedding_4bit(self.integers, self.scales, None, -8, 7, wide)
        else:
            found = ops.embedding_byte(self.integers, self.scales, None, -128, 127, wide)
        return found.to(self.dtype)


def _packed(integers: Tensor) -> Tensor:
    """Return int8 (rows, width) with values of 4 bits as bytes (rows, width / 2). Even columns become the high bits."""
    shifted = (integers + 8).to(torch.uint8)
    return torch.bitwise_or(shifted[:, ::2] << 4, shifted[:, 1::2])


def replace_embeddings(module: nn.Module, paths: Iterable[str], bits: int, group_size: int) -> None:
    """Replace the embeddings of a module at the given paths. An embedding with several paths stays one module."""
    quantized: dict[nn.Module, QuantizedEmbedding] = {}
    for path in paths:
        part = module.get_submodule(path)
        if isinstance(part, nn.Embedding):  # Otherwise it was replaced on another path to the module around it.
            if part not in quantized:
                quantized[part] = QuantizedEmbedding(part.weight, bits, group_size)
            outer, _, name = path.rpartition(".")
            setattr(module.get_submodule(outer), name, quantized[part])
