"""The ``.ptd`` file: named tensors and other named data that programs refer to. No torch, no executorch.

What it is made of is in :mod:`etdev.program.flat_tensor.model`.
"""

from etdev.program.flat_tensor.model import FlatTensor, NamedData, TensorLayout
from etdev.program.flat_tensor.reader import parse, read
from etdev.program.flat_tensor.writer import serialize, write, write_into

__all__ = ["FlatTensor", "NamedData", "TensorLayout", "parse", "read", "serialize", "write", "write_into"]
