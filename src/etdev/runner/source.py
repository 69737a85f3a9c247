"""Facts from which a project is generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from etdev.program.analysis.effects import DelegateInputs
from etdev.program.model import Program
from etdev.runner.pools import PoolSizes


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A program as it was built, and what is known about it."""

    name: str
    """Name of the file: ``digits.pte``."""
    content: bytes
    program: Program
    """The program that ``content`` holds, without the data of its data files."""
    pools: Mapping[str, PoolSizes]
    """Measured sizes, by method."""
    measured: str
    """Where the sizes were measured, for a comment: ``with executorch 1.5.1 on x86_64``."""
    data: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """Contents of the data files by name, in the order in which the runtime looks data up."""
    delegate_inputs: Mapping[str, DelegateInputs] = field(default_factory=lambda: MappingProxyType({}))
    """For each method whose object program is known: how many arguments of each delegate call are inputs."""
    target: str | None = None
    """Name of the target that the program was built for; None for a file from elsewhere."""
    alignment: int = 16
    """Alignment in bytes that the memory plan of the program relies on."""

    @property
    def stem(self) -> str:
        """Name of the program without its suffix. It is part of the names of generated files."""
        return self.name.removesuffix(".pte")
