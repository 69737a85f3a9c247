"""Data of the page of ``etdev report``. The JSON in the page has the fields of these dataclasses.

Each text is stored once, in :attr:`Document.texts`. A table of many rows is a dataclass whose fields are columns.
Time is counted in instants. At instant 0, the caller fills the inputs. The instruction at position p runs at instant
p + 1. At the last instant, the caller reads the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from etdev.program.info import BufferInfo, Peak

NONE = -1
"""Number that represents a missing row, text or position."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors in a planned buffer, one row for each tensor, in order of value index."""

    value: tuple[int, ...]
    """Indices of the tensors in the method's table of values."""
    name: tuple[int, ...]
    """Names of the tensors, as indices in ``Document.texts``. :data:`NONE` for a tensor without a name."""
    kind: tuple[int, ...]
    """Origins of the content, as indices in ``Document.texts``.

    An origin is ``input``, ``state``, ``kernel``, ``delegate``, ``transfer`` or ``alias``.
    """
    dtype: tuple[int, ...]
    """Element types, as indices in ``Document.texts``."""
    shape: tuple[int, ...]
    """Shapes, as indices in ``Document.texts``."""
    offset: tuple[int, ...]
    """Offsets in bytes from the start of the buffer."""
    size: tuple[int, ...]
    """Sizes in bytes. A dynamic shape counts with its largest size."""
    start: tuple[int, ...]
    """For each tensor, the first instant of its lifetime."""
    end: tuple[int, ...]
    """For each tensor, the first instant at which it is no longer in use."""
    writer: tuple[int, ...]
    """For each tensor, the position of the first instruction that writes it. :data:`NONE` if no instruction does.

    An alias is a tensor on the bytes of another tensor. For an alias, this is the position of the last instruction that
    writes these bytes before the alias is first used.
    """
    storage: tuple[int, ...]
    """For each tensor that shares bytes on purpose, its row in :class:`Storages`. :data:`NONE` for other tensors."""
    reason: tuple[int, ...]
    """For each tensor, the reason why it does or does not reuse an operand's bytes. :data:`NONE` if unknown.

    Reasons are indices in ``Document.texts``.
    """


@dataclass(frozen=True, slots=True)
class Storages:
    """Storages that several tensors share, one row for each storage.

    The tensors are aliases, outputs in place, or parts of a larger tensor.
    """

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
    """Pairs: an instant, and the number of bytes in use from this instant on."""
    peak: Peak | None


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of a method, one row for each instruction, in order of position."""

    operator: tuple[int, ...]
    """Operators, as indices in ``Document.texts``."""
    source: tuple[int, ...]
    """Lines of the model's code, as indices in ``Document.texts``. :data:`NONE` if unknown."""


@dataclass(frozen=True, slots=True)
class Values:
    """Values that instructions use and that are in no planned buffer of the page, in order of value index."""

    value: tuple[int, ...]
    """Indices of the values in the method's table of values."""
    name: tuple[int, ...]
    """Names of the values, as indices in ``Document.texts``. :data:`NONE` for a value without a name."""
    type: tuple[int, ...]
    """Descriptions, as indices in ``Document.texts``. They contain the type, and the shape or the content."""
    place: tuple[int, ...]
    """Places of the bytes, as indices in ``Document.texts``. :data:`NONE` for a value that is not a tensor."""
    size: tuple[int, ...]
    """Sizes in bytes. :data:`NONE` for a value that is not a tensor."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of the data-flow graph, one row for each edge.

    A node's number is the position of an instruction, or the number of instructions plus a row in :class:`Ends`.
    """

    origin: tuple[int, ...]
    """For each edge, the node that writes the value."""
    to: tuple[int, ...]
    """For each edge, the node that reads the value."""
    value: tuple[int, ...]
    """For each edge, the index of the value in the method's table of values."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Starts and ends of the data flow: inputs, outputs and state of a method, one row for each."""

    kind: tuple[int, ...]
    """Kinds, as indices in ``Document.texts``: ``input``, ``output`` or ``state``."""
    name: tuple[int, ...]
    """Names, as indices in ``Document.texts``."""
    value: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Data flow and control flow of a method's instructions.

    Columns about instructions have one row for each instruction, in order of position.
    """

    kind: tuple[int, ...]
    """Kinds, as indices in ``Document.texts``.

    A kind is ``kernel``, ``delegate``, ``transfer``, ``copy``, ``control`` or ``pointer``.
    """
    module: tuple[int, ...]
    """Paths of the model's modules, as indices in ``Document.texts``. :data:`NONE` if unknown."""
    device: tuple[int, ...]
    """Devices that run the instructions, as indices in ``Document.texts``. :data:`NONE` for a copy between devices."""
    arguments: tuple[int, ...]
    """Value indices, for each instruction in turn: the values that it reads, then the values that it writes.

    A list of tensors is replaced by its tensors.
    """
    reads: tuple[int, ...]
    """Number of values that each instruction reads."""
    writes: tuple[int, ...]
    """Number of values that each instruction writes."""
    jump_from: tuple[int, ...]
    """Positions of jumps. A jump has one row for each instruction that may run next."""
    jump_to: tuple[int, ...]
    """Positions of the instructions that may run next, one for each row of ``jump_from``."""
    ends: Ends
    edges: Edges
    values: Values


@dataclass(frozen=True, slots=True)
class Modules:
    """Sizes of the model's modules in a method, one row for each module, parents first. Submodules are included."""

    path: tuple[int, ...]
    """Paths such as ``layers.0``, as indices in ``Document.texts``; empty for the model, :data:`NONE` if unknown."""
    instructions: tuple[int, ...]
    """Number of instructions of each module."""
    weights: tuple[int, ...]
    """Bytes of constants, of delegates, and of data that delegates look up. Each counts where it is used first."""
    written: tuple[int, ...]
    """Bytes that each module writes if every instruction runs once. The module's ops in delegates count, too."""
    peak: tuple[int, ...]
    """Of the bytes in use at the peaks of all buffers, the number of bytes that each module wrote."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Copies between the host and devices, one row for each copy, in order of position."""

    instruction: tuple[int, ...]
    to_device: tuple[bool, ...]
    """True for a copy from the host to the device, False for a copy from the device to the host."""
    device: tuple[int, ...]
    """Devices, as indices in ``Document.texts``."""
    size: tuple[int, ...]
    """Sizes in bytes. A dynamic shape counts with its largest size."""
    value: tuple[int, ...]
    """Value indices of the tensors that the copies write."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times at which devices work. A row is a stretch: successive instructions on the same device."""

    devices: tuple[str, ...]
    """Names of the devices, the host first."""
    lane: tuple[int, ...]
    """For each stretch, its device, as an index in ``devices``."""
    start: tuple[int, ...]
    """For each stretch, the position of its first instruction."""
    end: tuple[int, ...]
    """For each stretch, the position of the first instruction after it."""
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
    """Reason why lifetimes are unknown, or None if they are known. Without lifetimes, ``buffers`` is empty."""
    instants: int
    instructions: Instructions
    buffers: tuple[BufferPage, ...]
    graph: Graph
    modules: Modules | None
    """Sizes of the model's modules, or None if no module is known."""
    timeline: Timeline | None
    """Timeline of the devices, or None if everything runs on the host."""
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a file: the bytes that serve one purpose."""

    name: str
    size: int
    """Size in bytes."""
    items: tuple[tuple[str, int, str], ...]
    """The largest items in the section. An item has a name, a size in bytes, and a text with other facts."""


@dataclass(frozen=True, slots=True)
class FilePage:
    """A file, with the bytes in each of its sections."""

    name: str
    """Name of the file without folders."""
    size: int
    """Size in bytes."""
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check of the verification, with its result."""

    name: str
    status: str
    """Status: ``passed``, ``failed``, ``not run`` or ``not needed``."""
    summary: str
    details: tuple[str, ...]
    """Failures, with locations and remedies."""


@dataclass(frozen=True, slots=True)
class ProgramPage:
    """A program's part of the page. The program belongs to a target, or is a file of any origin."""

    name: str
    """Name of the target. If there is no target, name of the file."""
    file: str
    """Name of the file, without folders."""
    size: int
    """Size in bytes."""
    sha256: str
    status: str | None
    """Result of the build: ``built``, ``gate failed`` or ``rejected``. None if the build's report is not available."""
    problem: str | None
    """Reason why the file's content cannot be read, or None if it can be read."""
    facts: tuple[tuple[str, str], ...]
    """Other facts, each as a label and a text."""
    memory: Mapping[str, int]
    """Planned bytes per device."""
    sources: str | None
    """Reason why the instructions have no lines of the model's code, or None if they have such lines."""
    verdict: str | None = None
    """Verdict on the target, such as ``good``. None if the build's report is not available."""
    verified: bool = False
    """True if the target ran in ExecuTorch's runtime and nothing that the config asks for is missing."""
    nested: Mapping[str, int] = field(default_factory=dict)
    """Planned bytes of the programs in delegates, per device."""
    files: tuple[FilePage, ...] = ()
    """The program's file, and its available data files."""
    without: str | None = None
    """Reason why some data files are missing in ``files``, or None if ``files`` is complete."""
    methods: tuple[MethodPage, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    unverified: str | None = None
    """Reason why there are no results of checks, or None if there are results."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of two programs: ``a`` of the first program, ``b`` of the second. None if a program lacks the figure."""

    name: str
    a: int | None
    b: int | None
    nbytes: bool
    """True for a number of bytes."""


@dataclass(frozen=True, slots=True)
class WeightChange:
    """Data that differs between two programs, with its sizes. A size is None if the program lacks the data."""

    name: str
    kind: str
    a: int | None
    b: int | None


@dataclass(frozen=True, slots=True)
class MethodDiffPage:
    """Comparison of two methods of the same name."""

    name: str
    figures: tuple[Figure, ...]
    instruction_a: tuple[int, ...]
    """For each instruction of either method, the position in the first. :data:`NONE` if only the second has it."""
    instruction_b: tuple[int, ...]
    """For each of these instructions, the position in the second method. :data:`NONE` if only the first has it."""
    matched: int
    """Number of tensors that both methods have in planned memory."""
    moved_a: tuple[int, ...]
    """Tensors whose place differs between the methods, as value indices of the first method."""
    moved_b: tuple[int, ...]
    """The tensors of ``moved_a`` in the same order, as value indices of the second method."""


@dataclass(frozen=True, slots=True)
class DiffPage:
    """Comparison of the two programs of a document."""

    verdict: str
    figures: tuple[Figure, ...]
    methods: tuple[MethodDiffPage, ...]
    only_a: tuple[str, ...]
    """Names of the methods that only the first program has."""
    only_b: tuple[str, ...]
    weights: tuple[WeightChange, ...]
    uncounted: str | None
    """Text that says that delegates' memory is not counted. None if neither program has delegates."""


@dataclass(frozen=True, slots=True)
class Document:
    """All data of one page."""

    title: str
    made_by: str
    """Name and version of the tool, such as ``etdev 0.1.0``."""
    programs: tuple[ProgramPage, ...]
    texts: tuple[str, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that made the build. Empty if the build's report is not available."""
    notes: tuple[str, ...] = ()
    diff: DiffPage | None = None
    """Comparison of the two programs, or None for a page without a comparison."""


class Texts:
    """Numbered collection of texts, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str | None) -> int:
        """Return the index of a text in the collection, or :data:`NONE` for None. Add a text that is not in it."""
        return NONE if text is None else self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> tuple[str, ...]:
        """Return all texts in order of their indices."""
        return tuple(self._numbers)
