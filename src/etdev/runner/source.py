"""Input for the generation of a project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from etdev.program.analysis.effects import DelegateInputs
from etdev.program.bank_report import BankUse
from etdev.program.model import Program
from etdev.runner.pools import PoolSizes


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """Content of a program's file, with facts about the program."""

    name: str
    """Name of the program's file, such as ``digits.pte``."""
    content: bytes
    program: Program
    """Program parsed from ``content``, without the data in data files."""
    pools: Mapping[str, PoolSizes]
    """Maps a method to the measured sizes of its pools."""
    measured: str
    """Environment in which the pools were measured, for a comment: ``with executorch 1.5.1 on x86_64``."""
    data: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """Maps a data file's name to its content, in the order in which the runtime searches the files."""
    delegate_inputs: Mapping[str, DelegateInputs] = field(default_factory=lambda: MappingProxyType({}))
    """Maps methods to the number of inputs of each delegate call; methods without an object program are omitted."""
    target: str | None = None
    """Name of the target that the program was built for; None if unknown."""
    alignment: int = 16
    """Alignment in bytes that the program's memory plan requires."""

    banks: tuple[BankUse, ...] = ()
    """Memory banks of the target; empty if it has none, or if they are unknown."""

    @property
    def stem(self) -> str:
        """Name of the program without its suffix. Names of generated files contain it."""
        return self.name.removesuffix(".pte")
