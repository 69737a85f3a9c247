"""What the page of ``etdev report`` shows, as data. The JSON in the page is these dataclasses, field by field.

Texts stand once in :attr:`Document.texts`; whatever names one by number says so. A table of many rows is a dataclass of
columns of equal lengths. Time is counted in instants: 0 is when the caller fills the inputs, 1 + position is an
instruction, and the last one is when the caller reads the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NONE = -1
"""Stands for nothing where a number names a row or a text."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors in a planned buffer, by value index."""

    value: tuple[int, ...]
    """Indices among the method's values."""
    name: tuple[int, ...]
    """Texts, or :data:`NONE`."""
    kind: tuple[int, ...]
    """Texts: ``input``, ``state``, ``kernel``, ``delegate``, ``transfer`` between host and device, ``alias``."""
    dtype: tuple[int, ...]
    """Texts."""
    shape: tuple[int, ...]
    """Texts."""
    offset: tuple[int, ...]
    """Bytes from the start of the buffer."""
    size: tuple[int, ...]
    """Bytes, of the largest sizes."""
    start: tuple[int, ...]
    """First instants at which they are in use."""
    end: tuple[int, ...]
    """First instants at which they are so no more."""
    writer: tuple[int, ...]
    """Positions of the instructions that write them first, of aliases those that filled them last before; :data:`NONE`
    if none did."""
    storage: tuple[int, ...]
    """Rows of :class:`Storages` if they share their bytes on purpose; :data:`NONE` if they do not."""
    reason: tuple[int, ...]
    """Texts: why they lie over an operand, or have bytes of their own; :data:`NONE` if nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Storages:
    """Bytes that several tensors share on purpose: aliases, outputs over operands, parts of a whole."""

    offset: tuple[int, ...]
    size: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PeakTensors:
    """What is in use at a peak, the largest first."""

    value: tuple[int, ...]
    """Indices among the method's values: of several tensors in the same bytes, the largest."""
    size: tuple[int, ...]
    """Bytes, of all that lies there."""
    written_by: tuple[int, ...]
    """Texts."""
    instruction: tuple[int, ...]
    """Positions of the instructions that wrote them; :data:`NONE` if none did."""


@dataclass(frozen=True, slots=True)
class PeakPage:
    """The first moment at which most of a buffer is in use."""

    instant: int
    size: int
    """Bytes."""
    during: str
    tensors: PeakTensors


@dataclass(frozen=True, slots=True)
class BufferPage:
    """A planned buffer of a method."""

    index: int
    """Its ``memory_id``."""
    device: str
    size: int
    """Bytes."""
    lower_bound: int | None
    """Bytes below which no plan for the same tensors gets, if known."""
    greedy: int | None
    """Bytes that ExecuTorch's greedy order takes for the same tensors, if the report of the build says so."""
    tensors: Tensors
    storages: Storages
    live: tuple[tuple[int, int], ...]
    """Instants at which the number of bytes in use changes, and how many there are from then on."""
    peak: PeakPage | None


@dataclass(frozen=True, slots=True)
class Instructions:
    """The instructions of a method, by position."""

    operator: tuple[int, ...]
    """Texts."""
    source: tuple[int, ...]
    """Texts, the line of the model's code; :data:`NONE` where it is not known."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between the host and devices, by position."""

    instruction: tuple[int, ...]
    to_device: tuple[bool, ...]
    """Whether from the host to the device; the other way otherwise."""
    device: tuple[int, ...]
    """Texts."""
    size: tuple[int, ...]
    """Bytes, of the largest sizes."""
    value: tuple[int, ...]
    """Of the tensor that is written."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Which device works when, by the order of the instructions."""

    devices: tuple[str, ...]
    """The host first."""
    lane: tuple[int, ...]
    """Of each stretch of instructions on one device: which of ``devices``."""
    start: tuple[int, ...]
    """First positions."""
    end: tuple[int, ...]
    """Positions behind the last."""
    transfers: Transfers


@dataclass(frozen=True, slots=True)
class Table:
    """A small table. Cells are texts or numbers of bytes; ``numbers`` says which columns have the latter."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | None, ...], ...]
    sizes: tuple[int, ...] = ()
    """Columns that hold numbers of bytes."""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class MethodPage:
    """A method."""

    name: str
    unknown: str | None
    """Why lifetimes are not known, if they are not; there are no buffers then."""
    instants: int
    instructions: Instructions
    buffers: tuple[BufferPage, ...]
    timeline: Timeline | None
    """None if everything is on the host."""
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """What some bytes of the file are spent on."""

    name: str
    size: int
    """Bytes."""
    items: tuple[tuple[str, int, str], ...]
    """The largest things in it: name, bytes, and what else is known of them."""


@dataclass(frozen=True, slots=True)
class FilePage:
    """What the bytes of a file are spent on."""

    name: str
    """Without folders."""
    size: int
    """Bytes."""
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One question of the verification, and its answer."""

    name: str
    status: str
    """``passed``, ``failed`` or ``not run``."""
    summary: str
    details: tuple[str, ...]
    """What failed, where, and what to do about it."""


@dataclass(frozen=True, slots=True)
class ProgramPage:
    """A program: of a target, or a file."""

    name: str
    """Of the target if it is one; of the file otherwise."""
    file: str
    """Its name, without folders."""
    size: int
    """Bytes."""
    sha256: str
    status: str | None
    """What the build made of it: ``built``, ``gate failed``, ``rejected``; None if its report is not there."""
    problem: str | None
    """Why nothing can be said of its content, if it cannot be read."""
    facts: tuple[tuple[str, str], ...]
    """What else is known, as labels and texts."""
    memory: Mapping[str, int]
    """Planned bytes per device."""
    sources: str | None
    """Why no line of the model's code is known, if none is."""
    files: tuple[FilePage, ...] = ()
    """The program's own, and those of its data files that are at hand."""
    without: str | None = None
    """Why data files are not among them, if there are any."""
    methods: tuple[MethodPage, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    unverified: str | None = None
    """Why there are no checks, if there are none."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A page."""

    title: str
    made_by: str
    """``etdev 0.1.0``."""
    programs: tuple[ProgramPage, ...]
    texts: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what took part in the build, if its report is there."""
    notes: tuple[str, ...] = ()


class Texts:
    """Texts in the order in which they are first met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """The number of a text; :data:`NONE` of None."""
        return NONE if text is None else self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> tuple[str, ...]:
        """By number."""
        return tuple(self._numbers)
