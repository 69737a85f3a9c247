"""A ``.pte`` in memory: the ET12 schema as frozen dataclasses.

The names are those of ``program.fbs``, which also defines how the runtime uses each field. Some tables of the schema
contain only one thing. Here, that thing replaces the table:

* The value replaces an ``EValue``, and the call replaces an ``Instruction``.
* A :class:`Blob` replaces a ``Buffer`` and a ``BackendDelegateInlineData``.
* A tuple of frames replaces a ``FrameList``.

The two halves of an allocation's offset form one number. A ``DataSegment`` is a :class:`Segment` with its bytes.
Vectors are tuples. A vector or a string that a file lacks is empty, unless the type of the field allows ``None``.

An index into ``values`` is called a value index. All sizes and offsets are in bytes unless a field says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import TypeAlias

from etdev.devices import Device, DeviceType
from etdev.errors import UsageError
from etdev.program.blob import Blob

MAX_RANK = 16
"""Largest number of dimensions that the runtime accepts (``kTensorDimensionLimit``)."""


class ScalarType(IntEnum):
    """Element type of a tensor, with PyTorch's numbers."""

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
        """Return the number of bytes of one element, as the runtime counts them. For a packed type, this is 1."""
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
    """Ways in which a tensor's sizes may change at run time."""

    STATIC = 0
    """The sizes never change."""
    DYNAMIC_BOUND = 1
    """The sizes change, but do not exceed the sizes in the file."""
    DYNAMIC_UNBOUND = 2
    """The sizes change without limit. The sizes in the file are meaningless."""


class TensorDataLocation(IntEnum):
    """File that contains a tensor's data."""

    SEGMENT = 0
    EXTERNAL = 1
    """In another file, under the tensor's name."""


class DataLocation(IntEnum):
    """List that contains a delegate's data."""

    INLINE = 0
    """``Program.backend_delegate_data``."""
    SEGMENT = 1
    """``Program.segments``."""


@dataclass(frozen=True, slots=True)
class AllocationDetails:
    """Location of a tensor in planned memory."""

    memory_id: int
    """Index into ``non_const_buffer_sizes``, starting at 1."""
    memory_offset: int
    """Offset from the start of the planned buffer. The file stores its 64 bits in two halves."""


@dataclass(frozen=True, slots=True)
class ExtraTensorInfo:
    """Fields that few tensors need."""

    mutable_data_segments_idx: int = 0
    """Index into ``Program.mutable_data_segments``. The runtimes of executorch 1.4 and 1.5 ignore it and use 0."""
    fully_qualified_name: str | None = None
    """Name such as ``mod.linear.weight``. For an external tensor, the key of its data."""
    location: TensorDataLocation = TensorDataLocation.SEGMENT
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0
    """Index among the devices of type ``device_type``, -128 to 127."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor: a constant, a range of planned memory, or memory provided at run time.

    ======================  ===================  ==========================================================
    ``data_buffer_idx``     ``allocation_info``  the tensor is
    ======================  ===================  ==========================================================
    above 0                 ``None``             a constant
    above 0                 given                planned, with an initial value from the file
    0                       given                planned
    0                       ``None``             given an address at run time (an input, a merge of branches)
    ======================  ===================  ==========================================================

    An external tensor (``extra_tensor_info.location``) has its data in another file, regardless of ``data_buffer_idx``.
    """

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    """Sizes in elements. For a bounded shape, these are upper bounds. For an unbounded shape, they are meaningless."""
    dim_order: tuple[int, ...]
    """Dimensions from the outermost in memory to the innermost: ``(0, 2, 3, 1)`` is channels last."""
    shape_dynamism: TensorShapeDynamism = TensorShapeDynamism.STATIC
    data_buffer_idx: int = 0
    """Index of the tensor's data, or 0 if the tensor has no data in the file.

    The index refers to ``constant_segment`` or ``constant_buffer``. For a planned tensor, it refers to one of the
    ``mutable_data_segments``.
    """
    allocation_info: AllocationDetails | None = None
    extra_tensor_info: ExtraTensorInfo | None = None
    requires_grad: bool = False
    layout: int = 0
    """PyTorch's number of a layout. The runtime supports only 0, which means strided."""
    storage_offset: int = 0
    """Offset in elements. The runtime supports only 0."""

    @property
    def nbytes(self) -> int:
        """Return the number of bytes for the sizes in the file. The number is meaningless if the shape is unbounded."""
        return prod(self.sizes) * self.scalar_type.itemsize

    @property
    def is_static(self) -> bool:
        """Return whether the sizes in the file are the sizes in each call."""
        return self.shape_dynamism is TensorShapeDynamism.STATIC

    @property
    def is_in_order(self) -> bool:
        """Return whether the dimensions are in order in memory: the first one is the outermost."""
        return self.dim_order == tuple(range(len(self.sizes)))

    @property
    def is_external(self) -> bool:
        """Return whether the data is in another file. For a planned tensor, the data is its initial value."""
        return self.extra_tensor_info is not None and self.extra_tensor_info.location is TensorDataLocation.EXTERNAL

    @property
    def device(self) -> Device:
        """Return the device of the tensor's data, as stated by the file."""
        extra = self.extra_tensor_info
        return Device(extra.device_type, extra.device_index) if extra else Device()

    @property
    def name(self) -> str | None:
        """Return the name of the module's buffer or parameter; None if the file states no name or an empty name."""
        extra = self.extra_tensor_info
        return (extra.fully_qualified_name or None) if extra else None

    @property
    def has_initial_value(self) -> bool:
        """Return whether the planned memory starts with data from this file or from another file."""
        return self.allocation_info is not None and (self.data_buffer_idx > 0 or self.is_external)

    @property
    def is_constant(self) -> bool:
        """Return whether the tensor is a constant, in this file or in another file."""
        return self.allocation_info is None and (self.data_buffer_idx > 0 or self.is_external)


@dataclass(frozen=True, slots=True)
class Null:
    """No value: an absent optional argument."""


@dataclass(frozen=True, slots=True)
class Int:
    """A 64-bit integer that instructions may change. Enums and devices are integers, too."""

    int_val: int


@dataclass(frozen=True, slots=True)
class Bool:
    """A truth value that instructions may change."""

    bool_val: bool


def _bits(value: float) -> bytes:
    return struct.pack("<d", value)


@dataclass(frozen=True, slots=True, eq=False)
class Double:
    """A 64-bit float, compared by bits: a NaN equals itself, and 0.0 differs from -0.0."""

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
    """A list of integers. Each integer is a separate value."""

    items: tuple[int, ...]
    """Value indices of the integers."""


@dataclass(frozen=True, slots=True, eq=False)
class DoubleList:
    """A list of floats, compared by bits, like :class:`Double`."""

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
    """Value indices of tensors. The tensors precede the list in the value table."""


@dataclass(frozen=True, slots=True)
class OptionalTensorList:
    """A list of tensors, some of which may be absent."""

    items: tuple[int, ...]
    """Value indices, as for :class:`TensorList`. An absent tensor is -1 or the index of a :class:`Null`."""


Value: TypeAlias = (
    Null | Int | Bool | Double | Tensor | String | IntList | DoubleList | BoolList | TensorList | OptionalTensorList
)
"""A value of a method: the union ``KernelTypes`` of the schema. The types are in the schema's order."""


def plain_value(value: Value) -> int | bool | float | str | None:
    """Return the number, truth value or text of a simple value, or None for any other value."""
    match value:
        case Int():
            return value.int_val
        case Bool():
            return value.bool_val
        case Double():
            return value.double_val
        case String():
            return value.string_val
        case _:
            return None


@dataclass(frozen=True, slots=True)
class KernelCall:
    """An instruction that runs a kernel."""

    op_index: int
    """Index into ``operators``."""
    args: tuple[int, ...]
    """Value indices: the operator's arguments in the order of its schema, then its return values."""


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """An instruction that runs a delegate."""

    delegate_index: int
    """Index into ``delegates``."""
    args: tuple[int, ...]
    """Value indices: inputs, then outputs."""


@dataclass(frozen=True, slots=True)
class MoveCall:
    """An instruction that makes a value refer to the same object as another value. It copies no bytes."""

    move_from: int
    """Value index of the source."""
    move_to: int
    """Value index of the value that changes."""


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """A jump that is taken if a condition is false."""

    cond_value_index: int
    """Value index of a :class:`Bool` or of a bool tensor. A bool tensor is false if any element is false."""
    destination_instruction: int
    """Index into the same chain's ``instructions``. The end of the chain is the number of instructions."""


@dataclass(frozen=True, slots=True)
class FreeCall:
    """An instruction that releases the memory of a tensor that is not planned."""

    value_index: int
    """Value index of the tensor."""


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall
"""An instruction: the union ``InstructionArguments`` of the schema. The types are in the schema's order."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a stack trace."""

    filename: str = ""
    lineno: int = 0
    """Line number, starting at 1."""
    name: str = ""
    """Name of the function."""
    context: str = ""
    """Text of the line."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Instructions that run in order. All current programs have one chain per method."""

    instructions: tuple[Instruction, ...]
    inputs: tuple[int, ...] = ()
    """Value indices of inputs. ExecuTorch leaves this field empty."""
    outputs: tuple[int, ...] = ()
    """Value indices of outputs. ExecuTorch leaves this field empty."""
    stacktrace: tuple[tuple[Frame, ...], ...] = ()
    """For each instruction, the lines of the model's code that it comes from; empty if the file has no stack traces."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Name by which the runtime finds a kernel."""

    name: str
    """Name such as ``aten::add``."""
    overload: str = ""
    """Overload such as ``out``. Empty for the default overload."""


@dataclass(frozen=True, slots=True)
class CompileSpec:
    """A setting for a backend. The backend reads the setting when it compiles and when it loads a delegate."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class BackendDelegateDataReference:
    """Reference to a delegate's data."""

    location: DataLocation
    index: int
    """Index into the list that ``location`` selects."""


@dataclass(frozen=True, slots=True)
class BackendDelegate:
    """A part of a method that a backend runs."""

    id: str
    """Name of the backend, such as ``XnnpackBackend``."""
    processed: BackendDelegateDataReference
    compile_specs: tuple[CompileSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerMetadata:
    """PyTorch's description of how inputs and outputs nest (``TreeSpec``), as JSON. The runtime does not read it."""

    encoded_inp_str: str = ""
    encoded_out_str: str = ""


@dataclass(frozen=True, slots=True)
class NonConstBufferDevice:
    """Device of a planned buffer. A buffer without an entry is on the CPU."""

    buffer_idx: int
    """Index into ``non_const_buffer_sizes``, starting at 1."""
    device_type: DeviceType = DeviceType.CPU
    device_index: int = 0
    """Index among the devices of type ``device_type``, -128 to 127."""


@dataclass(frozen=True)
class ExecutionPlan:
    """A method."""

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    """Value indices, in the order of the method's flattened arguments."""
    outputs: tuple[int, ...]
    """Value indices of the method's outputs."""
    chains: tuple[Chain, ...]
    operators: tuple[Operator, ...]
    delegates: tuple[BackendDelegate, ...]
    non_const_buffer_sizes: tuple[int, ...]
    """Size of each planned buffer in bytes. Entry 0 is reserved, so an allocation's ``memory_id`` starts at 1."""
    non_const_buffer_device: tuple[NonConstBufferDevice, ...] = ()
    """Devices of the buffers that are not on the CPU."""
    container_meta_type: ContainerMetadata | None = None

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Return the instructions of all chains, by position."""
        return tuple(call for chain in self.chains for call in chain.instructions)

    @property
    def is_fixed(self) -> bool:
        """Return whether each call executes the same instructions on tensors of the same sizes."""
        jumps = any(isinstance(call, JumpFalseCall) for call in self.instructions)
        return not jumps and all(tensor.is_static for _, tensor in self.tensors())

    def buffer_device(self, buffer: int) -> Device:
        """Return the device of a planned buffer, given its index in ``non_const_buffer_sizes``.

        A buffer without an entry is on the host.
        """
        for entry in self.non_const_buffer_device:
            if entry.buffer_idx == buffer:
                return Device(entry.device_type, entry.device_index)
        return Device()

    def tensor(self, value: int) -> Tensor:
        """Return the tensor with this value index."""
        found = self.values[value]
        assert isinstance(found, Tensor)
        return found

    def tensors(self) -> Sequence[tuple[int, Tensor]]:
        """Return the value index and the tensor of each value that is a tensor."""
        return self._tensors

    @cached_property
    def _tensors(self) -> Sequence[tuple[int, Tensor]]:
        return tuple([(index, value) for index, value in enumerate(self.values) if isinstance(value, Tensor)])


@dataclass(frozen=True, slots=True)
class Segment:
    """Data that follows the flatbuffer."""

    offset: int
    """Offset from the start of the first segment. Segments are sorted by offset and do not overlap."""
    data: Blob


@dataclass(frozen=True, slots=True)
class SubsegmentOffsets:
    """Offsets of tensor data in one segment."""

    segment_index: int
    offsets: tuple[int, ...]
    """Offsets from the start of the segment. Entry 0 is reserved.

    A tensor's ``data_buffer_idx`` is an index into this tuple.
    """


@dataclass(frozen=True, slots=True)
class NamedData:
    """A segment that delegates look up by name. Several names may refer to the same segment."""

    key: str
    segment_index: int


@dataclass(frozen=True, slots=True)
class Program:
    """A ``.pte`` file."""

    execution_plan: tuple[ExecutionPlan, ...]
    version: int = 0
    """Version of the schema, always 0 so far. Compatibility depends on the file's identifier, ``ET12``."""
    constant_buffer: tuple[Blob, ...] = ()
    """Constants inside the flatbuffer, used by files from before September 2024. Entry 0 is reserved.

    The runtime in the wheel of executorch 1.5.1 refuses such files.
    """
    backend_delegate_data: tuple[Blob, ...] = ()
    """Delegate data inside the flatbuffer."""
    segments: tuple[Segment, ...] = ()
    constant_segment: SubsegmentOffsets | None = None
    """Offsets of constants. The runtimes of executorch 1.4 and 1.5 require entry 0 even if there are no constants."""
    mutable_data_segments: tuple[SubsegmentOffsets, ...] = ()
    """Initial values of planned tensors."""
    named_data: tuple[NamedData, ...] = ()

    header_length: int | None = 32
    """Size of the extended header in bytes: 32, or 24 in older files. ``None`` for a file without an extended header.

    A header of 24 bytes does not state the total size of the segments. Without an extended header, all segments are
    empty.
    """
    segment_alignment: int = field(default=128, compare=False)
    """Alignment of the first segment in the file, a power of two.

    Files do not state this alignment. The reader infers the largest power of two that divides the segment's position,
    up to a page of 16 KiB. So the writer keeps any alignment that a user relied on. Comparisons of programs ignore the
    alignment.
    """
    inline_alignment: int = field(default=16, compare=False)
    """Alignment of data inside the flatbuffer, a power of two. The reader infers it like ``segment_alignment``."""
    unknown_fields: tuple[str, ...] = ()
    """Fields of the file that this schema does not know. A program with such fields cannot be written."""

    def delegate_data(self, delegate: BackendDelegate) -> Blob:
        """Return the data that a backend compiled for one of the program's delegates."""
        at = delegate.processed
        if at.location is DataLocation.SEGMENT:
            return self.segments[at.index].data
        return self.backend_delegate_data[at.index]

    def method(self, name: str) -> ExecutionPlan:
        """Return the method with this name.

        Raises :class:`~etdev.errors.UsageError` if there is no such method. The error lists the program's methods.
        """
        for plan in self.execution_plan:
            if plan.name == name:
                return plan
        names = ", ".join(repr(plan.name) for plan in self.execution_plan) or "none"
        raise UsageError(f"the program has no method {name!r}", hint=f"use a method of the program: {names}")
