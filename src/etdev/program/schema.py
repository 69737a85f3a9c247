"""Flatbuffer layout of the tables of ET12, for the reader and the writer.

Field numbers are positions in ``program.fbs``. A union takes two numbers: the first for its tag, the second for its
content. Fields are in the order of the dataclass's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from operator import attrgetter
from struct import calcsize, pack
from typing import Any, TypeAlias

from etdev.devices import DeviceType
from etdev.program import model as m
from etdev.program.flaw import FlawError


class Absence(Enum):
    """Meaning of a field that a file lacks."""

    DEFAULT = auto()
    """The field has its default: a number's default, an empty vector or an empty string.

    The writer omits a number that equals its default. It always writes vectors and strings, because the runtime does
    not test for null everywhere.
    """
    OMITTED = auto()
    """The field is ``None`` or an empty vector. The writer omits such a field, too."""
    REFUSED = auto()
    """A missing field is a flaw: the runtime refuses such a file, or crashes."""


@dataclass(frozen=True)
class Scalar:
    """A number."""

    code: str
    """Format code of the ``struct`` module."""
    default: int | float = 0
    choices: Mapping[int, Any] | None = None
    """Maps allowed numbers to values in the model. None if all numbers are allowed."""
    what: str = "a number"
    """Description of the number for error messages."""

    @property
    def width(self) -> int:
        """Return the width in bytes."""
        return calcsize(self.code)

    @cached_property
    def packed_default(self) -> bytes:
        """Return the default number as a file stores it."""
        return pack(f"<{self.code}", self.default)


@dataclass(frozen=True, slots=True)
class Text:
    """A UTF-8 string."""


@dataclass(frozen=True, slots=True)
class Scalars:
    """A vector of numbers."""

    element: Scalar
    limit: int | None = None
    """Largest number of elements, or None if there is no limit."""


@dataclass(frozen=True, slots=True)
class RawBytes:
    """A vector of bytes that the decoder copies to ``bytes``."""


@dataclass(frozen=True, slots=True)
class Data:
    """A vector of bytes that the decoder keeps as a :class:`Blob`. The writer aligns the vector in the file."""


@dataclass(frozen=True, slots=True)
class One:
    """A field that refers to one table."""

    table: Table


@dataclass(frozen=True, slots=True)
class Many:
    """A field that refers to a vector of tables."""

    table: Table


@dataclass(frozen=True, slots=True)
class Union:
    """A field that refers to a table of one of several types. Tags count from 1; 0 means no table."""

    tables: tuple[Table, ...]

    def tag_of(self, value: object) -> int:
        """Return the tag for the type of an object. Raise :class:`FlawError` if the union has no table of that type."""
        for tag, table in enumerate(self.tables, 1):
            if table.python_type is type(value):
                return tag
        names = ", ".join(table.name for table in self.tables)
        raise FlawError(f"expected one of {names}, found a {type(value).__name__}")


Kind: TypeAlias = Scalar | Text | Scalars | RawBytes | Data | One | Many | Union


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a table."""

    number: int
    name: str
    kind: Kind
    absence: Absence = Absence.DEFAULT


@dataclass(frozen=True, eq=False)
class Table:
    """A type of table, with functions that convert between the table and an object of the model."""

    name: str
    make: Callable[..., Any]
    """Function that makes the object from the fields' values."""
    split: Callable[[Any], tuple[Any, ...]]
    """Function that returns the fields' values of an object."""
    fields: tuple[Field, ...]
    python_type: type | None = None
    """Type of the object. A union chooses the table by this type."""
    wrapper: bool = False
    """True for a table with a single field. In the model and in paths, the value of the field replaces the table."""

    @cached_property
    def snake_name(self) -> str:
        """Return the name in paths, such as ``kernel_call`` for ``KernelCall``."""
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name).removeprefix("_")

    @cached_property
    def slots(self) -> int:
        """Return the number of vtable entries of a table that has all fields."""
        return max((field.number + 1 + isinstance(field.kind, Union) for field in self.fields), default=0)


_BOOL = {0: False, 1: True}


def _enum(kind: type[Enum]) -> Scalar:
    return Scalar("b", choices={member.value: member for member in kind}, what=f"a {kind.__name__}")


_I8, _I32, _I64 = Scalar("b"), Scalar("i"), Scalar("q")
_U8, _U32, _U64 = Scalar("B"), Scalar("I"), Scalar("Q")
_F64 = Scalar("d", 0.0)
_TRUTH = Scalar("B", choices=_BOOL, what="a bool (0 or 1)")
_TEXT = Text()
SCALAR_TYPE = _enum(m.ScalarType)


def table(kind: type, *fields: Field) -> Table:
    """Return the table for the dataclass ``kind``, which has the same fields in the same order."""
    names = tuple(field.name for field in fields)
    split: Callable[[Any], tuple[Any, ...]]
    if len(names) > 1:
        split = attrgetter(*names)
    else:

        def split(value: Any) -> tuple[Any, ...]:
            return tuple([getattr(value, name) for name in names])

    return Table(kind.__name__, kind, split, fields, kind)


def _wrapper(name: str, field: Field) -> Table:
    """Return a table with a single field. In the model, the field's value replaces the table."""
    return Table(name, lambda value: value, lambda value: (value,), (field,), wrapper=True)


REFUSED, OMITTED = Absence.REFUSED, Absence.OMITTED

ALLOCATION = Table(
    "AllocationDetails",
    lambda memory_id, low, high: m.AllocationDetails(memory_id, low | high << 32),
    lambda value: (value.memory_id, value.memory_offset & 0xFFFFFFFF, value.memory_offset >> 32),
    (
        Field(0, "memory_id", _U32),
        Field(1, "memory_offset_low", _U32),
        Field(2, "memory_offset_high", _U32),
    ),
    m.AllocationDetails,
)
EXTRA_TENSOR_INFO = table(
    m.ExtraTensorInfo,
    Field(0, "mutable_data_segments_idx", _U64),
    Field(1, "fully_qualified_name", _TEXT, OMITTED),
    Field(2, "location", _enum(m.TensorDataLocation)),
    Field(3, "device_type", _enum(DeviceType)),
    Field(4, "device_index", _I8),
)
TENSOR = table(
    m.Tensor,
    Field(0, "scalar_type", SCALAR_TYPE),
    Field(2, "sizes", Scalars(_I32, m.MAX_RANK), REFUSED),
    Field(3, "dim_order", Scalars(_U8, m.MAX_RANK), REFUSED),
    Field(8, "shape_dynamism", _enum(m.TensorShapeDynamism)),
    Field(5, "data_buffer_idx", _U32),
    Field(6, "allocation_info", One(ALLOCATION), OMITTED),
    Field(9, "extra_tensor_info", One(EXTRA_TENSOR_INFO), OMITTED),
    Field(4, "requires_grad", _TRUTH),
    Field(7, "layout", _I8),
    Field(1, "storage_offset", _I32),
)


def _list(kind: type, element: Scalar) -> Table:
    return table(kind, Field(0, "items", Scalars(element), REFUSED))


VALUES = Union(
    (
        table(m.Null),
        table(m.Int, Field(0, "int_val", _I64)),
        table(m.Bool, Field(0, "bool_val", _TRUTH)),
        table(m.Double, Field(0, "double_val", _F64)),
        TENSOR,
        table(m.String, Field(0, "string_val", _TEXT, REFUSED)),
        _list(m.IntList, _I64),
        _list(m.DoubleList, _F64),
        _list(m.BoolList, _TRUTH),
        _list(m.TensorList, _I32),
        _list(m.OptionalTensorList, _I32),
    )
)
EVALUE = _wrapper("EValue", Field(0, "val", VALUES, REFUSED))
CALLS = Union(
    (
        table(m.KernelCall, Field(0, "op_index", _I32), Field(1, "args", Scalars(_I32), REFUSED)),
        table(m.DelegateCall, Field(0, "delegate_index", _I32), Field(1, "args", Scalars(_I32), REFUSED)),
        table(m.MoveCall, Field(0, "move_from", _I32), Field(1, "move_to", _I32)),
        table(m.JumpFalseCall, Field(0, "cond_value_index", _I32), Field(1, "destination_instruction", _I32)),
        table(m.FreeCall, Field(0, "value_index", _I32)),
    )
)
INSTRUCTION = _wrapper("Instruction", Field(0, "instr_args", CALLS, REFUSED))
OPERATOR = table(m.Operator, Field(0, "name", _TEXT, REFUSED), Field(1, "overload", _TEXT))
FRAME = table(
    m.Frame,
    Field(0, "filename", _TEXT),
    Field(1, "lineno", _I32),
    Field(2, "name", _TEXT),
    Field(3, "context", _TEXT),
)
FRAME_LIST = _wrapper("FrameList", Field(0, "items", Many(FRAME)))
CHAIN = table(
    m.Chain,
    Field(2, "instructions", Many(INSTRUCTION), REFUSED),
    Field(0, "inputs", Scalars(_I32)),
    Field(1, "outputs", Scalars(_I32)),
    Field(3, "stacktrace", Many(FRAME_LIST), OMITTED),
)
DATA_REFERENCE = table(
    m.BackendDelegateDataReference, Field(0, "location", _enum(m.DataLocation)), Field(1, "index", _U32)
)
COMPILE_SPEC = table(m.CompileSpec, Field(0, "key", _TEXT, REFUSED), Field(1, "value", RawBytes(), REFUSED))
DELEGATE = table(
    m.BackendDelegate,
    Field(0, "id", _TEXT, REFUSED),
    Field(1, "processed", One(DATA_REFERENCE), REFUSED),
    Field(2, "compile_specs", Many(COMPILE_SPEC), REFUSED),
)
CONTAINER_METADATA = table(m.ContainerMetadata, Field(0, "encoded_inp_str", _TEXT), Field(1, "encoded_out_str", _TEXT))
BUFFER_DEVICE = table(
    m.NonConstBufferDevice,
    Field(0, "buffer_idx", _I32),
    Field(1, "device_type", _enum(DeviceType)),
    Field(2, "device_index", _I8),
)
EXECUTION_PLAN = table(
    m.ExecutionPlan,
    Field(0, "name", _TEXT, REFUSED),
    Field(2, "values", Many(EVALUE), REFUSED),
    Field(3, "inputs", Scalars(_I32), REFUSED),
    Field(4, "outputs", Scalars(_I32), REFUSED),
    Field(5, "chains", Many(CHAIN), REFUSED),
    Field(6, "operators", Many(OPERATOR)),
    Field(7, "delegates", Many(DELEGATE), REFUSED),
    Field(8, "non_const_buffer_sizes", Scalars(_I64), REFUSED),
    Field(9, "non_const_buffer_device", Many(BUFFER_DEVICE), OMITTED),
    Field(1, "container_meta_type", One(CONTAINER_METADATA), OMITTED),
)
BUFFER = _wrapper("Buffer", Field(0, "storage", Data()))
INLINE_DATA = _wrapper("BackendDelegateInlineData", Field(0, "data", Data()))
EXTENT = Table(
    "DataSegment",
    lambda offset, size: (offset, size),
    lambda value: value,
    (Field(0, "offset", _U64), Field(1, "size", _U64)),
)
SUBSEGMENTS = table(m.SubsegmentOffsets, Field(0, "segment_index", _U32), Field(1, "offsets", Scalars(_U64)))
NAMED_DATA = table(m.NamedData, Field(0, "key", _TEXT, REFUSED), Field(1, "segment_index", _U32))
_ROOT_FIELDS = (
    Field(0, "version", _U32),
    Field(1, "execution_plan", Many(EXECUTION_PLAN), REFUSED),
    Field(2, "constant_buffer", Many(BUFFER)),
    Field(3, "backend_delegate_data", Many(INLINE_DATA)),
    Field(4, "segments", Many(EXTENT)),
    Field(5, "constant_segment", One(SUBSEGMENTS), OMITTED),
    Field(6, "mutable_data_segments", Many(SUBSEGMENTS), OMITTED),
    Field(7, "named_data", Many(NAMED_DATA), OMITTED),
)
PROGRAM = Table(
    "Program",
    lambda *values: dict(zip([field.name for field in _ROOT_FIELDS], values, strict=True)),
    lambda value: tuple(value[field.name] for field in _ROOT_FIELDS),
    _ROOT_FIELDS,
)
"""The root table. It decodes to a dictionary from field names to values. A segment is a pair (offset, size)."""
