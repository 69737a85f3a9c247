"""Description of a program: the common model of ``inspect``, ``diff``, the report page and results of builds.

:mod:`etdev.inspection.inspect` derives the description from a :class:`~etdev.program.model.Program`. The JSON of
``etdev inspect`` has the fields of these dataclasses. The bytes of a tensor with dynamic sizes are counted at its
largest sizes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from etdev.decisions import ElisionKind

FORMAT = 1
"""Version of the JSON. Fields may be added; existing fields keep their names and meanings."""

CopyKind: TypeAlias = ElisionKind | Literal["order", "repeat"]
"""Purpose of a copy: one of :data:`ElisionKind`, ``order`` (reorders elements) or ``repeat`` (repeats elements)."""

ConstantKind: TypeAlias = Literal["constant", "initial value", "external"]
"""Kind of a tensor's data: a constant, the initial value of state, or a constant in a data file."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or an output of a method. Fields that do not apply to the type of the argument are None."""

    type: str
    """Type of the argument, such as ``tensor``, ``int``, ``bool``, ``double``, ``string`` or ``null``."""
    dtype: str | None = None
    """Element type, such as ``float32``."""
    shape: tuple[int, ...] | None = None
    """Shape in elements. Dynamic sizes are upper bounds if ``bounded``, and meaningless if ``unbounded``."""
    dynamism: str | None = None
    """Dynamism of the shape: ``static``, ``bounded`` or ``unbounded``."""
    nbytes: int | None = None
    """Number of bytes at the largest size. None for an unbounded tensor, and for an argument that is not a tensor."""
    device: str | None = None
    """Device such as ``cpu`` or ``cuda:0``."""
    memory: str | None = None
    """Memory of a tensor: ``planned``, ``caller``, ``constant`` or ``alias``.

    The caller provides the bytes of a ``caller`` tensor. The bytes of an ``alias`` belong to another tensor, which an
    instruction chooses at run time.
    """
    value: str | None = None
    """Value of a number, a truth value or a string, as text. None for a number that is set only at run time."""
    scale: float | None = None
    """Scale of a quantized tensor that constant methods describe: ``float = (integer - zero_point) * scale``."""
    zero_point: int | None = None
    """Integer that represents the float 0. None if ``scale`` is None."""
    name: str | None = None
    """Name of an output in the model's result, such as ``mask`` for ``{"mask": x}``. None if the output has no name."""

    def __str__(self) -> str:
        if self.type != "tensor":
            return self.type if self.value is None else f"{self.type} {self.value}"
        sizes = ", ".join(map(str, self.shape or ()))
        bound = {"static": "", "bounded": " at most", "unbounded": " without limit"}[self.dynamism or "static"]
        quantized = "" if self.scale is None else f", scale {self.scale:.6g}, zero point {self.zero_point}"
        return f"{self.dtype} [{sizes}]{bound}{quantized}"


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A planned buffer of a method."""

    index: int
    """Memory id of the buffer, counted from 1."""
    device: str
    """Device such as ``cpu`` or ``cuda:0``."""
    size: int
    """Bytes that the runtime allocates."""
    lower_bound: int | None = None
    """Lower bound in bytes: no plan for the same tensors can make the buffer smaller. None if unknown.

    Of a ``.pte``, the data flow determines the lifetimes, and the offsets determine the alignment.
    """
    greedy: int | None = None
    """Size in bytes that ExecuTorch's greedy planner needs for the same tensors. None if no build computed it."""
    state: bool = False
    """True if the buffer contains only state. False if it contains other data, or if its content is unknown."""
    bank: str | None = None
    """Name of the memory bank that holds the buffer; None if the bank is unknown or the program has no banks."""
    capacity: int | None = None
    """Size of the bank in bytes; None if ``bank`` is None."""

    @property
    def label(self) -> str:
        """Text with the memory id and the bank, such as ``buffer 2 (dtcm)``."""
        return f"buffer {self.index}" + (f" ({self.bank})" if self.bank is not None else "")


@dataclass(frozen=True, slots=True)
class StateInfo:
    """State that a method keeps from one call to the next."""

    name: str
    """Name in the module if the file states the name; otherwise a text such as ``value 7``."""
    size: int
    """Size in bytes."""
    buffer: int
    """Memory id of the buffer that contains the state."""
    offset: int
    """Offset in bytes from the start of the planned buffer."""
    shared: bool
    """True if other methods have the same state at the same place."""
    initialized: bool
    """True if the file contains the state's initial value. Otherwise, the state starts as zeros."""


@dataclass(frozen=True, slots=True)
class TensorInUse:
    """A storage in use at the peak, described by its largest tensor."""

    value: int
    """Index among the method's values."""
    values: int
    """Number of tensors that share the storage."""
    dtype: str
    """Element type, such as ``float32``."""
    shape: tuple[int, ...]
    """Shape in elements. Dynamic sizes are upper bounds."""
    nbytes: int
    """Size of the storage in bytes."""
    instruction: int | None
    """Position of the last instruction that wrote the storage before the peak; None if no instruction did."""
    origin: str
    """Writer of the bytes: ``aten::mm.out``, ``input 0``, ``an input`` or ``an earlier call``.

    ``an input``: the tensor shares an input's bytes. ``an earlier call``: state, which keeps its content between calls.
    """
    name: str | None
    """Name in the module; None if the file does not state the name."""
    module: str | None
    """Path of the module that computed the bytes, such as ``layers.0``; None if this is unknown.

    Empty for the model itself. For an output of a delegate, it is the module of the op that computes it. Modules and
    source lines come from the build's files next to the program.
    """
    source: str | None
    """Line of the model's code that wrote the bytes, such as ``model.py:20``; None if this is unknown."""
    until: int | None = None
    """Position of the last instruction that uses the storage; None if the last user is no instruction."""
    last_user: str = ""
    """``aten::mm.out``, ``the caller``, ``a later call``; ``the inputs are filled`` for an input that nothing uses."""
    last_module: str | None = None
    """Path of the module of the last user; None if this is unknown."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of a planned buffer: the largest number of bytes in use, and the first instant with that number."""

    buffer: int
    """Memory id of the buffer."""
    device: str
    """Device such as ``cpu`` or ``cuda:0``."""
    nbytes: int
    """Number of bytes in use.

    Padding for alignment does not count. Bytes that a delegate reads past the end of a buffer do not count either. Both
    branches of a condition count, although only one of them runs. In the file, the branches may share bytes.
    """
    instant: int
    """First instant at the peak: 0 fills the inputs, ``n + 1`` runs instruction ``n``, the last reads the outputs."""
    instruction: int | None
    """Position of the instruction; None while the caller fills the inputs or reads the outputs."""
    during: str
    """Operation at the peak: ``aten::mm.out``, ``filling the inputs`` or ``reading the outputs``."""
    module: str | None
    """Path of the module that the instruction computes; None if this is unknown. Empty for the model itself."""
    source: str | None
    """Line of the model's code for the instruction, such as ``model.py:20``; None if this is unknown."""
    tensors: tuple[TensorInUse, ...]
    """Tensors in use, the largest first."""


@dataclass(frozen=True, slots=True)
class OutputInPlace:
    """An output that overwrites an operand of its instruction."""

    instruction: int
    """Position of the instruction."""
    operator: str
    """Operator such as ``aten::add.out``, or the name of a delegate."""
    output: int
    """Index of the output among the method's values."""
    operand: int
    """Index of the overwritten operand among the method's values."""
    nbytes: int
    """Size of the output in bytes."""


@dataclass(frozen=True, slots=True)
class CopyCalls:
    """Calls of one operator. Each call only copies between tensors in the same memory."""

    operator: str
    """Name of the operator, such as ``aten::view_copy.out``."""
    kind: CopyKind
    calls: int
    nbytes: int
    """Number of bytes that the calls copy if each call runs once."""


@dataclass(frozen=True, slots=True)
class Transfers:
    """Largest number of bytes that one call of a method copies between the host and devices.

    The figures are for the path through the method that copies the most bytes. A loop counts as one iteration.
    """

    h2d_bytes: int
    """Bytes copied from the host to devices."""
    d2h_bytes: int
    """Bytes copied from devices to the host."""
    loops: bool = False
    """True if a loop contains some of the counted copies. Each further iteration repeats these copies."""

    @property
    def total(self) -> int:
        """Return the number of bytes copied in both directions together."""
        return self.h2d_bytes + self.d2h_bytes

    def __str__(self) -> str:
        rounds = ", some of them again in each iteration of a loop" if self.loops else ""
        return f"{self.h2d_bytes:,} bytes to devices, {self.d2h_bytes:,} bytes back{rounds}"


@dataclass(frozen=True, slots=True)
class CompileSpecInfo:
    """A setting with which a delegate was compiled."""

    key: str
    size: int
    """Size of the value in bytes."""
    text: str | None
    """Value as text; None if the value is not printable UTF-8."""

    def __str__(self) -> str:
        return f"{self.key}={f'({self.size:,} bytes)' if self.text is None else self.text}"


@dataclass(frozen=True, slots=True)
class DelegateInfo:
    """A part of a method that a backend runs."""

    id: str
    """Name of the backend, such as ``XnnpackBackend``."""
    calls: int
    """Number of instructions that call the delegate."""
    device: str
    """Device of the delegate's arguments, from the compile specs. ``?`` if the compile specs name an invalid device."""
    blob_bytes: int
    """Size of the blob in bytes."""
    segment: int | None
    """Index of the segment that contains the blob; None if the blob is inside the flatbuffer."""
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
    """Peak of each buffer, except buffers that contain only state."""
    inplace: tuple[OutputInPlace, ...]
    """Outputs that overwrite an operand."""
    memory_unknown: str | None
    """Reason why lower bounds, state, peaks and outputs in place are unknown; None if they are known."""
    instructions: int
    operators: dict[str, int]
    """Maps the name of an operator to the number of instructions that call it, in alphabetical order.

    The number is 0 for an operator that the method lists but does not call. The runtime must have this operator, too.
    """
    delegates: tuple[DelegateInfo, ...]
    transfers: Transfers
    """Bytes copied between the host and devices."""
    copies: tuple[CopyCalls, ...]
    """Copies between tensors in the same memory, in descending order of bytes."""
    describes_end: bool = False
    """True if the method returns a constant that describes a quantized input or output, such as a scale."""
    objects: int = 0
    """Bytes of the runtime's objects in the method's pool, with pointers of 8 bytes. Delegates may need more."""
    objects32: int = 0
    """The same with pointers of 4 bytes, as on a microcontroller."""


@dataclass(frozen=True, slots=True)
class ConstantInfo:
    """Data of a constant or of an initial value. If tensors share the data, the fields describe the largest tensor."""

    name: str | None
    """Name in the module; None if the file does not state the name."""
    kind: ConstantKind
    index: int
    """Index of the data among the file's constants or initial values. Meaningless for data in a data file."""
    dtype: str
    """Element type, such as ``float32``."""
    shape: tuple[int, ...]
    """Shape in elements."""
    nbytes: int
    method: str
    value: int
    """Index among the method's values."""
    instruction: int | None
    """Position of the first instruction with this tensor as an argument; None if there is no such instruction."""
    operator: str | None
    """Name of the operator or delegate that ``instruction`` calls; None if there is no such instruction."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment: data after the flatbuffer."""

    index: int
    offset: int
    """Offset in bytes from the start of the first segment."""
    size: int
    """Size in bytes."""
    holds: tuple[str, ...]
    """Users of the segment: ``constants``, ``initial_state``, ``delegates``, ``named_data``. Empty if unused."""


@dataclass(frozen=True, slots=True)
class NamedDataInfo:
    """Data that delegates look up by name."""

    key: str
    segment: int
    size: int
    """Size in bytes."""


@dataclass(frozen=True, slots=True)
class Sections:
    """Sizes of a file's parts in bytes, by purpose. Their sum is the size of the file."""

    flatbuffer: int
    """Size of the flatbuffer in bytes. This includes the header and data inside the flatbuffer."""
    constants: int
    initial_state: int
    delegates: int
    named_data: int
    other: int
    """Padding, and segments that nothing uses."""

    def parts(self) -> dict[str, int]:
        """Return the number of bytes per purpose, such as ``initial state``. Leave out empty purposes."""
        named = {name.replace("_", " "): size for name, size in asdict(self).items() if size}
        return {"padding and unused" if name == "other" else name: size for name, size in named.items()}


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """A ``.pte`` file."""

    format: int
    file: str
    size: int
    """Size of the file in bytes."""
    schema_version: int
    header_bytes: int | None
    """Length of the extended header; None for a file without an extended header."""
    methods: tuple[MethodInfo, ...]
    memory: dict[str, int]
    """Planned bytes per device. Methods share buffers, so each buffer counts once, with its largest size."""
    buffers: tuple[BufferInfo, ...]
    """Planned buffers in the order of memory ids, with their largest sizes in any method and without lower bounds."""
    weights_bytes: int
    """Bytes of constants in segments and in the flatbuffer. Constants in delegates or data files do not count."""
    constants: tuple[ConstantInfo, ...]
    sections: Sections
    segments: tuple[SegmentInfo, ...]
    named_data: tuple[NamedDataInfo, ...]
    external_data: tuple[str, ...]
    """Names of data in ``.ptd`` files: data of tensors, and data of delegates whose blobs state the names."""
    data_files: dict[str, int]
    """Maps the name of a data file next to the program to the file's size in bytes. Empty if no build is known."""
    unknown_fields: tuple[str, ...]
    """Fields of the file that this version of etdev does not know."""

    def method(self, name: str) -> MethodInfo:
        """Return a method by name. Raises :class:`KeyError` if the program has no such method."""
        return {method.name: method for method in self.methods}[name]

    def to_json(self) -> str:
        """Return the versioned document of ``etdev inspect --output json``."""
        return json.dumps(asdict(self), indent=2)
