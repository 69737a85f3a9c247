"""Data of the page of ``etdev report``. The JSON in the page is these dataclasses, field by field.

Each text is stored once in :attr:`Document.texts`. Fields that refer to texts by number are documented as texts. A
table of many rows is a dataclass of columns of equal lengths. Time is counted in instants: 0 is when the caller fills
the inputs, 1 + position is an instruction, and the last one is when the caller reads the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from etdev.program.info import BufferInfo, Peak

NONE = -1
"""Number that means no row or no text."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors in a planned buffer, by value index."""

    value: tuple[int, ...]
    """Indices among the method's values."""
    name: tuple[int, ...]
    """Texts, or :data:`NONE`."""
    kind: tuple[int, ...]
    """Texts: ``input``, ``state``, ``kernel``, ``delegate``, ``transfer`` between host and device, ``alias``."""
    dtype: tuple[int, ...]
    """Texts: element types."""
    shape: tuple[int, ...]
    """Texts: shapes."""
    offset: tuple[int, ...]
    """Offsets in bytes from the start of the buffer."""
    size: tuple[int, ...]
    """Sizes in bytes, at the largest dynamic sizes."""
    start: tuple[int, ...]
    """First instants of the lifetimes."""
    end: tuple[int, ...]
    """Ends of the lifetimes: first instants at which they are no longer in use."""
    writer: tuple[int, ...]
    """Positions of the instructions that write them first; :data:`NONE` without one.

    For an alias: the instruction that last filled it before.
    """
    storage: tuple[int, ...]
    """Rows of :class:`Storages` if they share their bytes on purpose; :data:`NONE` otherwise."""
    reason: tuple[int, ...]
    """Texts: reasons why they are in place of an operand, or have bytes of their own; :data:`NONE` if it is not known.
    """


@dataclass(frozen=True, slots=True)
class Storages:
    """Bytes that several tensors share on purpose: aliases, in-place outputs, parts of a whole."""

    offset: tuple[int, ...]
    size: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferPage:
    """A planned buffer of a method, and its content over time."""

    info: BufferInfo
    tensors: Tensors
    storages: Storages
    live: tuple[tuple[int, int], ...]
    """Instants at which the number of bytes in use changes, each with the new number."""
    peak: Peak | None


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of a method, by position."""

    operator: tuple[int, ...]
    """Texts: operators."""
    source: tuple[int, ...]
    """Texts: lines of the model's code; :data:`NONE` where it is not known."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between the host and devices, by position."""

    instruction: tuple[int, ...]
    to_device: tuple[bool, ...]
    """True for a copy from the host to the device, false for one from the device to the host."""
    device: tuple[int, ...]
    """Texts: devices."""
    size: tuple[int, ...]
    """Sizes in bytes, at the largest dynamic sizes."""
    value: tuple[int, ...]
    """Values of the tensors that are written."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Work of the devices over time, by the order of the instructions."""

    devices: tuple[str, ...]
    """Names of the devices, the host first."""
    lane: tuple[int, ...]
    """Index in ``devices`` for each stretch of instructions on one device."""
    start: tuple[int, ...]
    """First positions of the stretches."""
    end: tuple[int, ...]
    """Ends of the stretches: positions after the last."""
    transfers: Transfers


@dataclass(frozen=True, slots=True)
class Table:
    """Small table. Cells are texts or numbers of bytes; ``sizes`` lists the columns with the latter."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]
    sizes: tuple[int, ...] = ()
    """Columns with numbers of bytes."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class MethodPage:
    """One method."""

    name: str
    unknown: str | None
    """Reason why lifetimes are not known; there are no buffers then. None if they are known."""
    instants: int
    instructions: Instructions
    buffers: tuple[BufferPage, ...]
    timeline: Timeline | None
    """None if everything is on the host."""
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """Part of the bytes of a file."""

    name: str
    size: int
    """Size in bytes."""
    items: tuple[tuple[str, int, str], ...]
    """Largest items in it: name, bytes, and other facts."""


@dataclass(frozen=True, slots=True)
class FilePage:
    """Bytes of a file, by their use."""

    name: str
    """Name without folders."""
    size: int
    """Size in bytes."""
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check of the verification, with its answer."""

    name: str
    status: str
    """``passed``, ``failed``, ``not run`` or ``not needed``."""
    summary: str
    details: tuple[str, ...]
    """Failures, with their places and remedies."""


@dataclass(frozen=True, slots=True)
class ProgramPage:
    """A program: that of a target, or a file."""

    name: str
    """Name of the target if it is one, otherwise of the file."""
    file: str
    """Name of the file, without folders."""
    size: int
    """Size in bytes."""
    sha256: str
    status: str | None
    """Result of the build: ``built``, ``gate failed``, ``rejected``; None without its report."""
    problem: str | None
    """Reason why the content cannot be read, if so."""
    facts: tuple[tuple[str, str], ...]
    """Other facts, as labels and texts."""
    memory: Mapping[str, int]
    """Planned bytes per device."""
    sources: str | None
    """Reason why no line of the model's code is known, if so."""
    files: tuple[FilePage, ...] = ()
    """The program's file, and those of its data files that are available."""
    without: str | None = None
    """Reason why data files are not among them, if so."""
    methods: tuple[MethodPage, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    unverified: str | None = None
    """Reason why there are no checks, if so."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """One page."""

    title: str
    made_by: str
    """Name and version of the tool: ``etdev 0.1.0``."""
    programs: tuple[ProgramPage, ...]
    texts: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that took part in the build, if its report is available."""
    notes: tuple[str, ...] = ()


class Texts:
    """Texts in the order in which they are first added."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Return the number of a text; :data:`NONE` for None."""
        return NONE if text is None else self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> tuple[str, ...]:
        """Return all texts by number."""
        return tuple(self._numbers)
