"""Everything that the generated files state about a program."""

from __future__ import annotations

import re
from dataclasses import dataclass

from etdev.errors import RunnerError
from etdev.program.segments import CONSTANT_ALIGNMENT, SEGMENT_ALIGNMENT
from etdev.runner.identifiers import identifier
from etdev.runner.layout import Layout, MethodLayout, make_layout
from etdev.runner.libraries import Library, needed_libraries
from etdev.runner.pools import PoolSizes, Scaling, scaling
from etdev.runner.source import ProgramFile
from etdev.runtime.native.pools import lookup_bytes

MOST_STATIC_BYTES = 2**31 - 2**24
"""Most bytes of static memory. More would need another code model of the compiler (``-mcmodel``)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A program, its memory, and the form of the project."""

    source: ProgramFile
    layout: Layout
    libraries: tuple[Library, ...]
    embed: bool
    """Whether the files of the program become C arrays; otherwise they are read at run time."""

    @property
    def name(self) -> str:
        """Name of the program without its suffix, with ``_`` for characters that CMake's names cannot have."""
        return _file_name(self.source.stem)

    @property
    def identifier(self) -> str:
        """Namespace of the project."""
        return identifier(self.source.stem)

    @property
    def macro(self) -> str:
        """Prefix of the project's macros."""
        return self.identifier.upper()

    @property
    def files(self) -> tuple[tuple[str, bytes], ...]:
        """Name and content of the program and of its data files."""
        data = ((_file_name(name), content) for name, content in self.source.data.items())
        return ((f"{self.name}.pte", self.source.content), *data)

    @property
    def file_bytes(self) -> int:
        """Bytes of the program and its data files together."""
        return sum(len(content) for _, content in self.files)

    @property
    def file_alignment(self) -> int:
        """Alignment in bytes of the files in memory: that of their segments."""
        has_segments = bool(self.source.program.segments or self.source.data)
        return SEGMENT_ALIGNMENT if has_segments else CONSTANT_ALIGNMENT

    @property
    def temp(self) -> int:
        """Bytes of the temporary pool, which all methods share."""
        return max((self.pools(method.name).temp for method in self.layout.methods), default=0)

    @property
    def ram(self) -> int:
        """Bytes of static memory."""
        pools = sum(self.pools(method.name).method for method in self.layout.methods)
        files = 0 if self.embed else self.file_bytes
        return sum(arena.size for arena in self.layout.arenas) + pools + self.temp + self.layout.io + files

    @property
    def default_method(self) -> str:
        """Method that the runner calls if none is named: ``forward``, or the first one with instructions."""
        plans = self.source.program.execution_plan
        names = [plan.name for plan in plans if plan.instructions] or [plan.name for plan in plans]
        return "forward" if "forward" in names else names[0]

    def pools(self, method: str) -> PoolSizes:
        """Return the measured sizes of a method's pools."""
        return self.source.pools[method]

    def scaling(self, method: MethodLayout) -> Scaling:
        """Return how a method's pool changes with the size of pointers."""
        return scaling(method.plan, merged=bool(self.source.data) and bool(self.source.program.named_data))

    def estimate32(self, method: MethodLayout) -> int:
        """Return the estimated bytes of a method's pool on a 32-bit target."""
        return self.scaling(method).estimate(self.pools(method.name).method)

    @property
    def temp32(self) -> int:
        """Estimated bytes of the temporary pool on a 32-bit target: less only if it is for the lookup of kernels."""
        found = (
            (self.pools(method.name).temp, lookup_bytes(method.plan), lookup_bytes(method.plan, 4))
            for method in self.layout.methods
        )
        return max((small if temp == large else temp for temp, large, small in found), default=0)

    @property
    def ram32(self) -> int:
        """Estimated bytes of static memory on a 32-bit target."""
        methods = self.layout.methods
        pools = sum(self.estimate32(method) - self.pools(method.name).method for method in methods)
        return self.ram + pools + self.temp32 - self.temp


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("-.") or "program"


def check_program(source: ProgramFile) -> tuple[Layout, tuple[Library, ...]]:
    """Return the memory and the libraries of a program, for which its pools need not be known.

    Raises :class:`~etdev.errors.RunnerError` if no project can be generated for it.
    """
    if not source.program.execution_plan:
        raise RunnerError("it has no methods", where=source.name, hint="name a program with methods")
    libraries = needed_libraries(source.program, source.name)
    return make_layout(source.program, source.name, source.delegate_inputs), libraries


def collect_facts(source: ProgramFile, *, embed: bool) -> Facts:
    """Return the facts about a program.

    Raises :class:`~etdev.errors.RunnerError` if no project can be generated for it.
    """
    facts = Facts(source, *check_program(source), embed)
    total = facts.ram + (facts.file_bytes if embed else 0)
    if total > MOST_STATIC_BYTES:
        raise RunnerError(
            f"the project would have {total:,} bytes of static memory and constants; {MOST_STATIC_BYTES:,} is the most",
            where=source.name,
            hint="load the program with ExecuTorch's own `Module`, which allocates from the heap",
        )
    return facts
