"""The ``.pte`` file: model, strict reader, writer. No torch, no executorch.

What a program is made of is in :mod:`etdev.program.model`.
"""

from etdev.program.blob import Blob
from etdev.program.model import Program
from etdev.program.reader import parse, read
from etdev.program.writer import serialize, write

__all__ = ["Blob", "Program", "parse", "read", "serialize", "write"]
