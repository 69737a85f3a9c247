"""Description of a program: the one model that ``inspect``, ``diff``, the report page and results of builds share.

:mod:`etdev.inspection.inspect` derives it from a :class:`~etdev.program.model.Program`. The JSON of ``etdev inspect``
is these dataclasses, field by field. Bytes of tensors are those at the largest dynamic sizes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from etdev.decisions import ElisionKind

FORMAT = 1
"""Version of the JSON. Fields may be added; existing ones keep their names and meanings."""

CopyKind: TypeAlias = ElisionKind | Literal["order", "repeat"]
"""Purpose of a copy: as in the linker, or another order of the elements, or the same elements several times."""

ConstantKind: TypeAlias = Literal["constant", "initial value", "external"]
"""Kind of data in files: a constant, the initial value of state, or a constant in a data file."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or an output of a method. Fields that do not apply to its type are None."""

    type: str
    """``tensor``, or ``int``, ``bool``, ``double``, ``string``, ``null``, …"""
    dtype: str | None = None
    """Element type, such as ``float32``."""
    shape: tuple[int, ...] | None = None
    """Shape in elements. Upper bounds if bounded, without meaning if unbounded."""
    dynamism: str | None = None
    """``static``, ``bounded`` or ``unbounded``."""
    nbytes: int | None = None
    """Bytes at the largest size; None for an unbounded tensor too."""
    device: str | None = None
    """Device such as ``cpu`` or ``cuda:0``."""
    memory: str | None = None
    """``planned``; ``caller``, if the caller provides it; ``constant``; or ``alias`` of memory known only at run time.
    """
    value: str | None = None
    """Value in the file of a number, a truth value or a string, as text."""

    def __str__(self) -> str:
        if self.type != "tensor":
            return self.type if self.value is None else f"{self.type} {self.value}"
        sizes = ", ".join(map(str, self.shape or ()))
        bound = {"static": "", "bounded": " at most", "unbounded": " without limit"}[self.dynamism or "static"]
        return f"{self.dtype} [{sizes}]{bound}"


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A planned buffer of a method."""

    index: int
    """The ``memory_id``."""
    device: str
    """Device such as ``cpu`` or ``cuda:0``."""
    size: int
    """Bytes that the runtime allocates."""
    lower_bound: int | None = None
    """Lower bound in bytes on any plan for the same tensors; None if unknown.

    For a file, it assumes lifetimes from the data flow, and the file's alignment.
    """
    greedy: int | None = None
    """Bytes that ExecuTorch's greedy planner needs for the same tensors; None if only the file is known."""
    state: bool = False
    """True if it holds only state; False if that is unknown."""


@dataclass(frozen=True, slots=True)
class StateInfo:
    """State of a method, which it keeps from one call to the next."""

    name: str
    """Name in the module if the file has it, otherwise ``value 7``."""
    size: int
    """Bytes."""
    buffer: int
    """The ``memory_id`` of its buffer."""
    offset: int
    """Offset in bytes from the start of that buffer."""
    shared: bool
    """True if other methods have the same state at the same place."""
    initialized: bool
    """True if the file holds its initial value; otherwise it starts as zeros."""


@dataclass(frozen=True, slots=True)
class TensorInUse:
    """Bytes in use at the peak: one tensor, or several of which this is the largest."""

    value: int
    """Index among the method's values."""
    values: int
    """Number of tensors that share these bytes."""
    dtype: str
    """Element type, such as ``float32``."""
    shape: tuple[int, ...]
    """Shape in elements; upper bounds if it is dynamic."""
    nbytes: int
    """Bytes of the whole storage."""
    instruction: int | None
    """Position of the instruction that wrote it last; None if no instruction did."""
    origin: str
    """Writer: ``aten::mm.out``, ``input 0``, ``an input`` for other tensors in its bytes, or ``an earlier call``.

    ``an earlier call`` means that the bytes keep their content between calls.
    """
    name: str | None
    """Name in the module, if the file has it."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of a planned buffer: the first instant at which most bytes are in use."""

    buffer: int
    """The ``memory_id``."""
    device: str
    """Device such as ``cpu`` or ``cuda:0``."""
    nbytes: int
    """Bytes in use.

    This excludes alignment, and bytes that a delegate reads past a buffer. Branches of which only one runs count both,
    even if they share bytes in the file.
    """
    instant: int
    """0 while the caller fills the inputs; 1 + the position of the instruction; or one more than the last of these."""
    instruction: int | None
    """Position of the instruction; None while the caller fills the inputs or reads the outputs."""
    during: str
    """Running operation: ``aten::mm.out``, ``filling the inputs`` or ``reading the outputs``."""
    tensors: tuple[TensorInUse, ...]
    """Tensors in use, the largest first."""


@dataclass(frozen=True, slots=True)
class OutputInPlace:
    """An output that is written over an operand of its instruction."""

    instruction: int
    """Position of the instruction."""
    operator: str
    """Operator such as ``aten::add.out``, or the name of a delegate."""
    output: int
    """Index of the output among the method's values."""
    operand: int
    """Index of the operand among the method's values."""
    nbytes: int
    """Bytes of the output."""


@dataclass(frozen=True, slots=True)
class CopyCalls:
    """Instructions of one operator that copy between tensors in the same memory, and compute nothing."""

    operator: str
    """Operator such as ``aten::view_copy.out``."""
    kind: CopyKind
    calls: int
    nbytes: int
    """Bytes that one pass over the instructions copies in them."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Bytes that a call copies at most between the host and devices, on the path that copies most both ways together.

    A copy in a loop counts once, as if the loop had one iteration.
    """

    h2d_bytes: int
    """Bytes copied from the host to devices."""
    d2h_bytes: int
    """Bytes copied from devices to the host."""
    loops: bool = False
    """True if an iteration of a loop repeats some of the copies."""

    @property
    def total(self) -> int:
        """Bytes in both directions."""
        return self.h2d_bytes + self.d2h_bytes

    def __str__(self) -> str:
        rounds = ", some of it again in each round of a loop" if self.loops else ""
        return f"{self.h2d_bytes:,} bytes to devices, {self.d2h_bytes:,} bytes back{rounds}"


@dataclass(frozen=True, slots=True)
class CompileSpecInfo:
    """A setting that a delegate was compiled with."""

    key: str
    size: int
    """Bytes of the value."""
    text: str | None
    """The value if it is printable UTF-8 text."""

    def __str__(self) -> str:
        return f"{self.key}={f'({self.size:,} bytes)' if self.text is None else self.text}"


@dataclass(frozen=True, slots=True)
class DelegateInfo:
    """A part of a method that a backend runs."""

    id: str
    """Name of the backend."""
    calls: int
    """Number of instructions that call it."""
    device: str
    """Device of its arguments, from its compile specs; ``?`` if they do not name one."""
    blob_bytes: int
    """Bytes of the backend's data."""
    segment: int | None
    """Segment of that data; None if it is inside the flatbuffer."""
    compile_specs: tuple[CompileSpecInfo, ...]


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """A method of a program."""

    name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    tensors: dict[str, int]
    """Number of tensors per device."""
    buffers: tuple[BufferInfo, ...]
    state: tuple[StateInfo, ...]
    peaks: tuple[Peak, ...]
    """Peak of each buffer that holds more than state."""
    inplace: tuple[OutputInPlace, ...]
    """Outputs written over an operand."""
    memory_unknown: str | None
    """Reason why lower bounds, state, peaks and outputs in place are unknown; None if they are known."""
    instructions: int
    operators: dict[str, int]
    """Operator such as ``aten::add.out`` → number of instructions that call it, sorted by name.

    The runtime must have an operator even if no instruction calls it.
    """
    delegates: tuple[DelegateInfo, ...]
    transfers: Transfers
    """Bytes copied between the host and devices."""
    copies: tuple[CopyCalls, ...]
    """Copies between tensors in the same memory, those with the most bytes first."""


@dataclass(frozen=True, slots=True)
class ConstantInfo:
    """Data of tensors: a constant or an initial value, with the largest tensor that has it."""

    name: str | None
    """Name in the module, if the file has it."""
    kind: ConstantKind
    index: int
    """Index of the data among the file's constants or initial values; meaningless in a data file."""
    dtype: str
    """Element type, such as ``float32``."""
    shape: tuple[int, ...]
    """Shape in elements."""
    nbytes: int
    method: str
    value: int
    """Index among the method's values."""
    instruction: int | None
    """Position of the first instruction that has it as an argument; None without one."""
    operator: str | None
    """Operator or delegate of that instruction."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """Data after the flatbuffer."""

    index: int
    offset: int
    """Offset in bytes from the first segment."""
    size: int
    """Bytes."""
    holds: tuple[str, ...]
    """Users: ``constants``, ``initial_state``, ``delegates``, ``named_data``; empty if nothing refers to it."""


@dataclass(frozen=True, slots=True)
class NamedDataInfo:
    """Data that delegates look up by name."""

    key: str
    segment: int
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Sections:
    """Bytes of a file by purpose; their sum is the file's size."""

    flatbuffer: int
    """Bytes of the flatbuffer, including the header and inline data."""
    constants: int
    initial_state: int
    delegates: int
    named_data: int
    other: int
    """Padding, and segments that nothing refers to."""

    def parts(self) -> dict[str, int]:
        """Return the bytes of each part that has any, by its name in texts: ``initial state``."""
        named = {name.replace("_", " "): size for name, size in asdict(self).items() if size}
        return {"padding and unused" if name == "other" else name: size for name, size in named.items()}


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A ``.pte`` file."""

    format: int
    file: str
    size: int
    """Bytes."""
    schema_version: int
    header_bytes: int | None
    """Length of the extended header; None in a file without one."""
    methods: tuple[MethodInfo, ...]
    memory: dict[str, int]
    """Planned bytes per device: the sum over buffers of the largest size in any method."""
    weights_bytes: int
    """Bytes of tensors' constants, in segments and in the flatbuffer; excludes delegates and other files."""
    constants: tuple[ConstantInfo, ...]
    sections: Sections
    segments: tuple[SegmentInfo, ...]
    named_data: tuple[NamedDataInfo, ...]
    external_data: tuple[str, ...]
    """Names of data in another file (``.ptd``): of tensors, and of delegates whose blobs tell what they look up."""
    unknown_fields: tuple[str, ...]
    """Fields of the file that this version of etdev does not know."""

    def method(self, name: str) -> MethodInfo:
        """Return a method by name. Raises :class:`KeyError` if there is none."""
        return {method.name: method for method in self.methods}[name]

    def to_json(self) -> str:
        """Return the versioned document of ``etdev inspect --output json``."""
        return json.dumps(asdict(self), indent=2)
