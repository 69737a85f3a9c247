"""Data of the page of ``etdev report``. The JSON in the page is these dataclasses, field by field.

Each text is stored once, in :attr:`Document.texts`. A field whose description begins with "Texts" has indices into it.
A table of many rows is a dataclass of columns, all of the same length. Time is counted in instants. At instant 0 the
caller fills the inputs. At instant 1 + position an instruction runs. At the last instant the caller reads the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from etdev.program.info import BufferInfo, Peak

NONE = -1
"""Number that stands for no row, no text or no position."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors in a planned buffer, one row each, in order of value index."""

    value: tuple[int, ...]
    """Indices of the tensors in the method's table of values."""
    name: tuple[int, ...]
    """Texts: names; :data:`NONE` without one."""
    kind: tuple[int, ...]
    """Texts: what fills the tensors: ``input``, ``state``, ``kernel``, ``delegate``, ``transfer`` or ``alias``."""
    dtype: tuple[int, ...]
    """Texts: element types."""
    shape: tuple[int, ...]
    """Texts: shapes."""
    offset: tuple[int, ...]
    """Offsets in bytes from the start of the buffer."""
    size: tuple[int, ...]
    """Sizes in bytes. For dynamic shapes, the largest sizes."""
    start: tuple[int, ...]
    """First instants of the lifetimes."""
    end: tuple[int, ...]
    """First instants at which the tensors are no longer in use."""
    writer: tuple[int, ...]
    """Positions of the instructions that write the tensors first; :data:`NONE` if there is none.

    For an alias, it is the last instruction that writes its bytes before it is in use.
    """
    storage: tuple[int, ...]
    """Rows in :class:`Storages` of tensors that share their bytes with others on purpose; :data:`NONE` for others."""
    reason: tuple[int, ...]
    """Texts: reasons why tensors are in place of an operand or have bytes of their own; :data:`NONE` if unknown."""


@dataclass(frozen=True, slots=True)
class Storages:
    """Storages that hold several tensors: aliases, in-place outputs, or parts of a larger tensor. One row each."""

    offset: tuple[int, ...]
    size: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferPage:
    """A planned buffer of a method, and what is in it over time."""

    info: BufferInfo
    tensors: Tensors
    storages: Storages
    live: tuple[tuple[int, int], ...]
    """Pairs of an instant at which the number of bytes in use changes, and the new number."""
    peak: Peak | None


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of a method, one row each, in order of position."""

    operator: tuple[int, ...]
    """Texts: operators."""
    source: tuple[int, ...]
    """Texts: lines of the model's code; :data:`NONE` if unknown."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between the host and devices, one row each, in order of position."""

    instruction: tuple[int, ...]
    to_device: tuple[bool, ...]
    """True for a copy from the host to the device, false for one from the device to the host."""
    device: tuple[int, ...]
    """Texts: devices."""
    size: tuple[int, ...]
    """Sizes in bytes. For dynamic shapes, the largest sizes."""
    value: tuple[int, ...]
    """Value indices of the tensors that are written."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Which device works when. Successive instructions on the same device form a stretch; each has one row."""

    devices: tuple[str, ...]
    """Names of the devices, the host first."""
    lane: tuple[int, ...]
    """Devices of the stretches, as indices in ``devices``."""
    start: tuple[int, ...]
    """Positions of the first instructions of the stretches."""
    end: tuple[int, ...]
    """Positions after the last instructions of the stretches."""
    transfers: Transfers


@dataclass(frozen=True, slots=True)
class Table:
    """A small table. A cell is a text or a number of bytes."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]
    sizes: tuple[int, ...] = ()
    """Indices of the columns whose cells are numbers of bytes."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class MethodPage:
    """A method's part of the page."""

    name: str
    unknown: str | None
    """Reason why lifetimes are unknown, in which case there are no buffers. None if they are known."""
    instants: int
    instructions: Instructions
    buffers: tuple[BufferPage, ...]
    timeline: Timeline | None
    """Timeline of the devices. None if everything is on the host."""
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a file: some of its bytes, which serve one purpose."""

    name: str
    size: int
    """Size in bytes."""
    items: tuple[tuple[str, int, str], ...]
    """The largest items in the section: name, bytes, and other facts."""


@dataclass(frozen=True, slots=True)
class FilePage:
    """A file, with the bytes in each of its sections."""

    name: str
    """Name without folders."""
    size: int
    """Size in bytes."""
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check of the verification, with its result."""

    name: str
    status: str
    """``passed``, ``failed``, ``not run`` or ``not needed``."""
    summary: str
    details: tuple[str, ...]
    """Failures, with their locations and remedies."""


@dataclass(frozen=True, slots=True)
class ProgramPage:
    """A program's part of the page. The program is a target's, or a file of any origin."""

    name: str
    """Name of the target; without a target, name of the file."""
    file: str
    """Name of the file, without folders."""
    size: int
    """Size in bytes."""
    sha256: str
    status: str | None
    """Result of the build: ``built``, ``gate failed`` or ``rejected``. None if the build's report is not available."""
    problem: str | None
    """Reason why the file's content cannot be read; None if it can."""
    facts: tuple[tuple[str, str], ...]
    """Other facts: label and text of each."""
    memory: Mapping[str, int]
    """Planned bytes per device."""
    sources: str | None
    """Reason why the instructions have no lines of the model's code; None if they have."""
    files: tuple[FilePage, ...] = ()
    """The program's file, and those of its data files that are available."""
    without: str | None = None
    """Reason why some data files are not in ``files``; None if all are."""
    methods: tuple[MethodPage, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    unverified: str | None = None
    """Reason why there are no results of checks; None if there are."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """All data of one page."""

    title: str
    made_by: str
    """Name and version of the tool: ``etdev 0.1.0``."""
    programs: tuple[ProgramPage, ...]
    texts: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that made the build; empty if the build's report is not available."""
    notes: tuple[str, ...] = ()


class Texts:
    """Collects texts and numbers them in the order in which they are first added."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Return the number of a text, which is added if it is new; :data:`NONE` for None."""
        return NONE if text is None else self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> tuple[str, ...]:
        """Return all texts, in order of their numbers."""
        return tuple(self._numbers)
