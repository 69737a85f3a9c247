"""The ``.pte`` in memory: the ET12 schema as frozen dataclasses.

Names are those of ``program.fbs``, which also defines what the runtime does with each. Four tables that only wrap one
thing are that thing here: an ``EValue`` is its value, an ``Instruction`` its call, a ``Buffer`` and a
``BackendDelegateInlineData`` a :class:`Blob`, a ``FrameList`` a tuple of frames. The two halves of an allocation's
offset are one number, and a ``DataSegment`` has its bytes.

Vectors are tuples. A vector that a file lacks is the empty tuple, and so is a string that it lacks, except where the
type says ``None``.

An index into ``values`` is called a value index. All sizes and offsets are in bytes unless a field says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from math import prod
from typing import TypeAlias

from etdev.devices import Device, DeviceType
from etdev.errors import UsageError
from etdev.program.blob import Blob

MAX_RANK = 16
"""Most dimensions that the runtime gives a tensor (``kTensorDimensionLimit``)."""


class ScalarType(IntEnum):
    """Element type of a tensor, numbered as PyTorch numbers it."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @property
    def itemsize(self) -> int:
        """Bytes of one element, as the runtime counts them (packed types: of the byte that stands for one)."""
        return _ITEM_SIZES[self]


_TWO = (ScalarType.SHORT, ScalarType.HALF, ScalarType.BFLOAT16, ScalarType.BITS16, ScalarType.UINT16)
_FOUR = (ScalarType.INT, ScalarType.FLOAT, ScalarType.QINT32, ScalarType.UINT32)
_EIGHT = (ScalarType.LONG, ScalarType.DOUBLE, ScalarType.UINT64)
_ITEM_SIZES = {
    **dict.fromkeys(ScalarType, 1),
    **dict.fromkeys(_TWO, 2),
    **dict.fromkeys(_FOUR, 4),
    **dict.fromkeys(_EIGHT, 8),
}


class TensorShapeDynamism(IntEnum):
    """What may happen to a tensor's sizes at run time."""

    STATIC = 0
    """Nothing."""
    DYNAMIC_BOUND = 1
    """They change, up to the sizes in the file."""
    DYNAMIC_UNBOUND = 2
    """They change without limit; those in the file say nothing."""


class TensorDataLocation(IntEnum):
    """Where a tensor's data is."""

    SEGMENT = 0
    EXTERNAL = 1
    """In another file, under the tensor's name."""


class DataLocation(IntEnum):
    """Which list a delegate's data reference points into."""

    INLINE = 0
    """``Program.backend_delegate_data``."""
    SEGMENT = 1
    """``Program.segments``."""


@dataclass(frozen=True, slots=True)
class AllocationDetails:
    """Where in planned memory a tensor lies."""

    memory_id: int
    """Index into ``non_const_buffer_sizes``, from 1 on."""
    memory_offset: int
    """From the start of that buffer. 64 bits, which the file keeps in two halves."""


@dataclass(frozen=True, slots=True)
class ExtraTensorInfo:
    """What few tensors need."""

    mutable_data_segments_idx: int = 0
    """Index into ``Program.mutable_data_segments``. The runtime of executorch 1.4 takes 0, whatever stands here."""
    fully_qualified_name: str | None = None
    """``mod.linear.weight``; of an external tensor, the key of its data."""
    location: TensorDataLocation = TensorDataLocation.SEGMENT
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0
    """Which of the devices of that type, -128 to 127."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: a constant, a place in planned memory, or a place that the caller or another value fills.

    ======================  ===================  ==========================================================
    ``data_buffer_idx``     ``allocation_info``  the tensor is
    ======================  ===================  ==========================================================
    above 0                 ``None``             a constant
    above 0                 given                planned, with an initial value from the file
    0                       given                planned
    0                       ``None``             given an address at run time (an input, a merge of branches)
    ======================  ===================  ==========================================================

    An external tensor (``extra_tensor_info.location``) has its data in another file, whatever its index says.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    """In elements. Upper bounds if bounded, without meaning if unbounded."""
    dim_order: tuple[int, ...]
    """Dimensions from the outermost in memory to the innermost: ``(0, 2, 3, 1)`` is channels last."""
    shape_dynamism: TensorShapeDynamism = TensorShapeDynamism.STATIC
    data_buffer_idx: int = 0
    """Index of the data's offset in ``constant_segment`` (or in ``constant_buffer``, or in the
    ``mutable_data_segments`` if the tensor is planned). Index 0 means none."""
    allocation_info: AllocationDetails | None = None
    extra_tensor_info: ExtraTensorInfo | None = None
    requires_grad: bool = False
    layout: int = 0
    """PyTorch's number of a layout; 0 is strided, the only one that the runtime has."""
    storage_offset: int = 0
    """In elements. The runtime supports 0 only."""

    @property
    def nbytes(self) -> int:
        """Bytes of data with the sizes in the file. Without meaning if the shape is unbounded."""
        return prod(self.sizes) * self.scalar_type.itemsize

    @property
    def is_external(self) -> bool:
        """Is the data, or the initial value, in another file?"""
        return self.extra_tensor_info is not None and self.extra_tensor_info.location is TensorDataLocation.EXTERNAL

    @property
    def device(self) -> Device:
        """Where the file says that its data is."""
        extra = self.extra_tensor_info
        return Device(extra.device_type, extra.device_index) if extra else Device()

    @property
    def has_initial_value(self) -> bool:
        """Does its planned memory begin with data of this file or of another one?"""
        return self.allocation_info is not None and (self.data_buffer_idx > 0 or self.is_external)

    @property
    def is_constant(self) -> bool:
        """Is the content fixed, in this file or in another one?"""
        return self.allocation_info is None and (self.data_buffer_idx > 0 or self.is_external)


@dataclass(frozen=True, slots=True)
class Null:
    """No value: an absent optional argument."""


@dataclass(frozen=True, slots=True)
class Int:
    """A 64-bit integer. Enums and devices are integers too. Programs write to them."""

    int_val: int


@dataclass(frozen=True, slots=True)
class Bool:
    """A truth value. Programs write to them."""

    bool_val: bool


def _bits(value: float) -> bytes:
    return struct.pack("<d", value)


@dataclass(frozen=True, slots=True, eq=False)
class Double:
    """A 64-bit float. Equal by bits: a NaN is equal to itself, and 0.0 differs from -0.0."""

    double_val: float

    def __eq__(self, other: object) -> bool:
        return _bits(self.double_val) == _bits(other.double_val) if isinstance(other, Double) else NotImplemented

    def __hash__(self) -> int:
        return hash(_bits(self.double_val))


@dataclass(frozen=True, slots=True)
class String:
    """A string argument."""

    string_val: str


@dataclass(frozen=True, slots=True)
class IntList:
    """A list of integers that are values of their own."""

    items: tuple[int, ...]
    """Value indices, not the integers themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class DoubleList:
    """A list of floats. Equal by bits, like :class:`Double`."""

    items: tuple[float, ...]

    def __eq__(self, other: object) -> bool:
        return self._bits() == other._bits() if isinstance(other, DoubleList) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bits())

    def _bits(self) -> bytes:
        return struct.pack(f"<{len(self.items)}d", *self.items)


@dataclass(frozen=True, slots=True)
class BoolList:
    """A list of truth values."""

    items: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class TensorList:
    """A list of tensors."""

    items: tuple[int, ...]
    """Value indices, of tensors that stand before the list."""


@dataclass(frozen=True, slots=True)
class OptionalTensorList:
    """A list of tensors some of which may be absent."""

    items: tuple[int, ...]
    """Value indices like a :class:`TensorList`'s; -1, or the index of a :class:`Null`, for an absent one."""


Value: TypeAlias = (
    Null | Int | Bool | Double | Tensor | String | IntList | DoubleList | BoolList | TensorList | OptionalTensorList
)
"""The union ``KernelTypes``, in the schema's order."""


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Run a kernel."""

    op_index: int
    """Index into ``operators``."""
    args: tuple[int, ...]
    """Value indices: the operator's arguments in the order of its schema, then what it returns."""


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Run a delegate."""

    delegate_index: int
    """Index into ``delegates``."""
    args: tuple[int, ...]
    """Value indices: inputs, then outputs."""


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Make one value refer to what another refers to; of a tensor, no bytes move."""

    move_from: int
    """Value index."""
    move_to: int
    """Value index."""


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Go on elsewhere if a condition is false."""

    cond_value_index: int
    """Value index, of a :class:`Bool` or of a bool tensor (false if any element is)."""
    destination_instruction: int
    """Index into the same chain's ``instructions``; their number means the end."""


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Release the memory of an unplanned tensor."""

    value_index: int
    """Value index."""


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall
"""The union ``InstructionArguments``, in the schema's order."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack trace."""

    filename: str = ""
    lineno: int = 0
    """From 1 on."""
    name: str = ""
    """Of the function."""
    context: str = ""
    """The line's text."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Instructions that run in order. All current programs have one chain for each method."""

    instructions: tuple[Instruction, ...]
    inputs: tuple[int, ...] = ()
    """Value indices. Left empty by executorch."""
    outputs: tuple[int, ...] = ()
    """Value indices. Left empty by executorch."""
    stacktrace: tuple[tuple[Frame, ...], ...] = ()
    """For each instruction, where in the model it comes from; or empty."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Name under which a kernel is registered."""

    name: str
    """``aten::add``."""
    overload: str = ""
    """``out``; empty for the default overload."""


@dataclass(frozen=True, slots=True)
class CompileSpec:
    """A setting that a delegate was compiled with and gets again when it is loaded."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class BackendDelegateDataReference:
    """Where a delegate's data is."""

    location: DataLocation
    index: int
    """Into the list that ``location`` says."""


@dataclass(frozen=True, slots=True)
class BackendDelegate:
    """A part of a method that a backend runs."""

    id: str
    """Name of the backend: ``XnnpackBackend``."""
    processed: BackendDelegateDataReference
    compile_specs: tuple[CompileSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerMetadata:
    """PyTorch's description of how inputs and outputs nest (``TreeSpec``), as JSON. The runtime does not read it."""

    encoded_inp_str: str = ""
    encoded_out_str: str = ""


@dataclass(frozen=True, slots=True)
class NonConstBufferDevice:
    """Device of a planned buffer. One without an entry is on the CPU."""

    buffer_idx: int
    """Index into ``non_const_buffer_sizes``, from 1 on."""
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0
    """Which of the devices of that type, -128 to 127."""


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A method."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    """Value indices, in the order of the method's flattened arguments."""
    outputs: tuple[int, ...]
    """Value indices."""
    chains: tuple[Chain, ...]
    operators: tuple[Operator, ...]
    delegates: tuple[BackendDelegate, ...]
    non_const_buffer_sizes: tuple[int, ...]
    """Bytes of each planned buffer. Entry 0 is reserved; an allocation's ``memory_id`` counts from 1."""
    non_const_buffer_device: tuple[NonConstBufferDevice, ...] = ()
    """Buffers that are not on the CPU."""
    container_meta_type: ContainerMetadata | None = None

    def buffer_device(self, buffer: int) -> Device:
        """Where a planned buffer is, by its index in ``non_const_buffer_sizes``; the host, without an entry."""
        for entry in self.non_const_buffer_device:
            if entry.buffer_idx == buffer:
                return Device(entry.device_type, entry.device_index)
        return Device()

    def tensors(self) -> Iterator[tuple[int, Tensor]]:
        """Value index and tensor, of each value that is one."""
        return ((index, value) for index, value in enumerate(self.values) if isinstance(value, Tensor))


@dataclass(frozen=True, slots=True)
class Segment:
    """Data that follows the flatbuffer."""

    offset: int
    """From the first segment's place in the file. Segments are sorted by it and do not overlap."""
    data: Blob


@dataclass(frozen=True, slots=True)
class SubsegmentOffsets:
    """Where in a segment the data of each tensor begins."""

    segment_index: int
    offsets: tuple[int, ...]
    """From the start of the segment. A tensor's ``data_buffer_idx`` is an index into these; entry 0 is reserved."""


@dataclass(frozen=True, slots=True)
class NamedData:
    """A segment that delegates look up by name. Several names may have the same segment."""

    key: str
    segment_index: int


@dataclass(frozen=True, slots=True)
class Program:
    """A ``.pte`` file."""

    execution_plan: tuple[ExecutionPlan, ...]
    version: int = 0
    """Of the schema; 0 so far. What decides is the file's identifier, ``ET12``."""
    constant_buffer: tuple[Blob, ...] = ()
    """Constants inside the flatbuffer, as files before September 2024 have them. Entry 0 is reserved."""
    backend_delegate_data: tuple[Blob, ...] = ()
    """Delegate data inside the flatbuffer."""
    segments: tuple[Segment, ...] = ()
    constant_segment: SubsegmentOffsets | None = None
    """Constants. The runtime of executorch 1.4 wants the reserved entry even if there are none."""
    mutable_data_segments: tuple[SubsegmentOffsets, ...] = ()
    """Initial values of planned tensors."""
    named_data: tuple[NamedData, ...] = ()

    header_length: int | None = 32
    """Bytes of the extended header: 32; 24 in older files, which do not say how long the segments are together; or
    ``None`` for a file without one, where all segments are empty."""
    segment_alignment: int = field(default=128, compare=False)
    """Power of two that the place of the first segment in the file is a multiple of. No file states it: it is taken to
    be the largest that the file fits, up to a page of 16 KiB, so that what somebody relied on is kept. Not part of what
    makes programs equal."""
    inline_alignment: int = field(default=16, compare=False)
    """Power of two that the data inside the flatbuffer is aligned to, by the same rule."""
    unknown_fields: tuple[str, ...] = ()
    """What the file has and this schema does not know. A program with any cannot be written."""

    def method(self, name: str) -> ExecutionPlan:
        """The method of that name. Raises :class:`~etdev.errors.UsageError`, which lists those there are."""
        for plan in self.execution_plan:
            if plan.name == name:
                return plan
        names = ", ".join(repr(plan.name) for plan in self.execution_plan) or "none"
        raise UsageError(f"the program has no method {name!r}", hint=f"it has {names}")
