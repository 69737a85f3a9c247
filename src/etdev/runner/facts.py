"""Facts about a program, from which the files of a project are generated."""

from __future__ import annotations

import re
from dataclasses import dataclass

from etdev.errors import RunnerError
from etdev.program.segments import CONSTANT_ALIGNMENT, SEGMENT_ALIGNMENT
from etdev.runner.identifiers import identifier
from etdev.runner.layout import Layout, MethodLayout, make_layout
from etdev.runner.libraries import KERNELS, Library, needed_libraries
from etdev.runner.pools import PoolSizes, Scaling, scaling
from etdev.runner.source import ProgramFile
from etdev.runtime.native.measure import lookup_bytes

MOST_STATIC_BYTES = 2**31 - 2**24
"""Maximum number of bytes of static memory. More memory would need another code model (``-mcmodel``)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a program, and about the static memory of the project that is generated for the program."""

    source: ProgramFile
    layout: Layout
    libraries: tuple[Library, ...]
    embed: bool
    """True if the files of the program become C arrays, False if the project reads them at run time."""

    @property
    def name(self) -> str:
        """Name of the program without its suffix, with ``_`` for characters that CMake does not allow in names."""
        return _file_name(self.source.stem)

    @property
    def identifier(self) -> str:
        """C++ namespace of the project."""
        return identifier(self.source.stem)

    @property
    def macro(self) -> str:
        """Prefix of the names of the project's macros."""
        return self.identifier.upper()

    @property
    def files(self) -> tuple[tuple[str, bytes], ...]:
        """Name and content of the program's file, then of each data file."""
        data = ((_file_name(name), content) for name, content in self.source.data.items())
        return ((f"{self.name}.pte", self.source.content), *data)

    @property
    def file_bytes(self) -> int:
        """Total size in bytes of the program's file and its data files."""
        return sum(len(content) for _, content in self.files)

    @property
    def file_alignment(self) -> int:
        """Alignment in bytes that the files need in memory, because of their segments or constants."""
        has_segments = bool(self.source.program.segments or self.source.data)
        return SEGMENT_ALIGNMENT if has_segments else CONSTANT_ALIGNMENT

    @property
    def temp(self) -> int:
        """Size in bytes of the temporary pool, which all methods share."""
        return max((self.pools(method.name).temp for method in self.layout.methods), default=0)

    @property
    def ram(self) -> int:
        """Size in bytes of the static memory."""
        pools = sum(self.pools(method.name).method for method in self.layout.methods)
        files = 0 if self.embed else self.file_bytes
        return sum(arena.size for arena in self.layout.arenas) + pools + self.temp + self.layout.io + files

    @property
    def backends(self) -> list[str]:
        """Sorted ids of the program's backends."""
        return sorted({delegate.id for plan in self.source.program.execution_plan for delegate in plan.delegates})

    @property
    def heap_users(self) -> list[str]:
        """Users of the heap: ``kernels``, and the ids of backends.

        The list is empty if no byte of the heap was in use. The optimized kernel of a matrix product packs its operands
        there.
        """
        has_kernels = any(library.component in KERNELS.values() for library in self.libraries)
        return [] if self.heap == 0 else [*(["kernels"] if has_kernels else []), *self.backends]

    @property
    def heap(self) -> int | None:
        """Heap bytes, in addition to the static memory: the sum over methods of the largest number in use at once.

        None if the bytes were not counted.
        """
        sizes = [self.pools(method.name).heap for method in self.layout.methods]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def default_method(self) -> str:
        """Method that the runner calls by default: ``forward`` or, if missing, the first method with instructions."""
        plans = self.source.program.execution_plan
        names = [plan.name for plan in plans if plan.instructions] or [plan.name for plan in plans]
        return "forward" if "forward" in names else names[0]

    def pools(self, method: str) -> PoolSizes:
        """Return the measured sizes of a method's pools."""
        return self.source.pools[method]

    def scaling(self, method: MethodLayout) -> Scaling:
        """Return the data for estimating the size of a method's pool on a 32-bit target."""
        return scaling(method.plan, merged=bool(self.source.data) and bool(self.source.program.named_data))

    def estimate32(self, method: MethodLayout) -> int:
        """Return the estimated size in bytes of a method's pool on a 32-bit target."""
        return self.scaling(method).estimate(self.pools(method.name).method)

    @property
    def temp32(self) -> int:
        """Estimated size in bytes of the temporary pool on a 32-bit target.

        The estimate equals the measured size, unless the pool is used only for the lookup of kernels. In that case,
        the estimate is smaller.
        """
        found = (
            (self.pools(method.name).temp, lookup_bytes(method.plan), lookup_bytes(method.plan, 4))
            for method in self.layout.methods
        )
        return max((small if temp == large else temp for temp, large, small in found), default=0)

    @property
    def ram32(self) -> int:
        """Estimated size in bytes of the static memory on a 32-bit target."""
        methods = self.layout.methods
        pools = sum(self.estimate32(method) - self.pools(method.name).method for method in methods)
        return self.ram + pools + self.temp32 - self.temp


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("-.") or "program"


def check_program(source: ProgramFile) -> tuple[Layout, tuple[Library, ...]]:
    """Return the static memory and the libraries of a program. ``source`` may lack the sizes of the pools.

    Raises :class:`~etdev.errors.RunnerError` if no project can be generated for the program.
    """
    if not source.program.execution_plan:
        raise RunnerError("the program has no methods", where=source.name, hint="choose a program with methods")
    libraries = needed_libraries(source.program, source.name)
    return make_layout(source.program, source.name, source.delegate_inputs, source.banks), libraries


def collect_facts(source: ProgramFile, *, embed: bool) -> Facts:
    """Return the facts about a program.

    Raises :class:`~etdev.errors.RunnerError` if no project can be generated for the program.
    """
    facts = Facts(source, *check_program(source), embed)
    total = facts.ram + (facts.file_bytes if embed else 0)
    if total > MOST_STATIC_BYTES:
        raise RunnerError(
            f"the project would have {total:,} bytes of static memory and constants, "
            f"but the limit is {MOST_STATIC_BYTES:,} bytes",
            where=source.name,
            hint="load the program with ExecuTorch's own `Module`, which allocates from the heap",
        )
    return facts
