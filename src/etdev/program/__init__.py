"""The ``.pte`` file format: model, strict reader and writer. This package imports neither torch nor executorch.

:mod:`etdev.program.model` defines the parts of a program.
"""

from etdev.program.blob import Blob
from etdev.program.model import Program
from etdev.program.reader import parse, read
from etdev.program.writer import serialize, write

__all__ = ["Blob", "Program", "parse", "read", "serialize", "write"]
