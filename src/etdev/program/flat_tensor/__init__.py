"""The ``.ptd`` file format: named tensors and other named data. This package imports neither torch nor executorch.

:mod:`etdev.program.flat_tensor.model` defines the parts of a file.
"""

from etdev.program.flat_tensor.model import FlatTensor, NamedData, TensorLayout
from etdev.program.flat_tensor.reader import parse, read
from etdev.program.flat_tensor.writer import serialize, write, write_into

__all__ = ["FlatTensor", "NamedData", "TensorLayout", "parse", "read", "serialize", "write", "write_into"]
