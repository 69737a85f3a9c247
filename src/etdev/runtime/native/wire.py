"""Messages between this process and the native host, in the layout of ``host/wire.h``.

A frame is a header (magic, version, kind, length) and a payload. All numbers are little-endian. Messages contain no
pickles.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO

from etdev.errors import MissingRequirementError, UsageError
from etdev.program.model import ScalarType
from etdev.runtime.child import Crash, read_exactly
from etdev.runtime.dim_orders import from_memory_order
from etdev.runtime.hostmem import host_bytes
from etdev.runtime.interpreter.layout import scalar_type_of, torch_dtype

if TYPE_CHECKING:
    import torch

_HEADER = struct.Struct("<IHHQ")
_MAGIC = 0x484E5445
VERSION = 4
"""Version of the protocol, equal to ``kVersion`` in ``host/wire.h``."""


class Kind(IntEnum):
    """Kind of a frame."""

    HELLO = 1
    LOAD = 2
    OPEN = 3
    CALL = 4
    UNLOAD = 5
    REGISTER_TWICE = 6
    FAULTS = 7
    LIBRARY = 8
    ANSWER = 100
    ERROR = 101
    CRASH = 102


class _Value(IntEnum):
    NONE = 0
    TENSOR = 1
    INT = 2
    DOUBLE = 3
    BOOL = 4
    STRING = 5


class Request:
    """Payload of a request. Its fields have the order in which they were added."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._parts: list[bytes | memoryview] = []

    def add(self, form: str, *numbers: float) -> None:
        """Add numbers in the ``struct`` format ``form``."""
        self._parts.append(struct.pack(f"<{form}", *numbers))

    def text(self, value: str) -> None:
        """Add a string, which may be a path with bytes that are not UTF-8."""
        content = value.encode(errors="surrogateescape")
        self.add("I", len(content))
        self._parts.append(content)

    def texts(self, values: Sequence[str]) -> None:
        """Add a list of strings."""
        self.add("I", len(values))
        for value in values:
            self.text(value)

    def inputs(self, method: str, values: Sequence[Any]) -> None:
        """Add the inputs of a method: tensors, numbers, strings and None.

        Raises :class:`~etdev.errors.UsageError` for a value of another type, or for an int of more than 64 bits. The
        error names the input.
        """
        self.add("I", len(values))
        for position, value in enumerate(values):
            self._value(value, f"input {position} of method {method!r}")

    def _value(self, value: Any, called: str) -> None:
        if hasattr(value, "data_ptr"):
            self._tensor(value, called)
        elif value is None:
            self.add("B", _Value.NONE)
        elif isinstance(value, bool):
            self.add("BB", _Value.BOOL, value)
        elif isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise UsageError(
                    f"{called} is {value}, which is not an integer of 64 bits",
                    hint="pass a number from -2^63 to 2^63 - 1",
                )
            self.add("Bq", _Value.INT, value)
        elif isinstance(value, float):
            self.add("Bd", _Value.DOUBLE, value)
        elif isinstance(value, str):
            self.add("B", _Value.STRING)
            self.text(value)
        else:
            raise UsageError(
                f"{called} is a {type(value).__name__}, which no program takes",
                hint="pass a tensor, a number, a string or None",
            )

    def _tensor(self, tensor: torch.Tensor, called: str) -> None:
        if any(size >> 31 for size in tensor.shape):
            raise UsageError(
                f"{called} has the sizes {list(tensor.shape)}, but the runtime takes only sizes up to 2^31 - 1",
                hint="pass a smaller tensor",
            )
        tensor = tensor.detach().contiguous()
        self.add("Bb", _Value.TENSOR, scalar_type_of(tensor.dtype))
        self.add(f"I{tensor.dim()}i", tensor.dim(), *tensor.shape)
        self.add("Q", tensor.nbytes)
        self._parts.append(host_bytes(tensor))

    def send(self, stream: BinaryIO) -> None:
        """Write the frame."""
        stream.write(_HEADER.pack(_MAGIC, VERSION, self.kind, sum(map(len, self._parts))))
        stream.writelines(self._parts)
        stream.flush()


class Answer:
    """Payload of an answer, whose fields are read in order."""

    def __init__(self, payload: bytearray) -> None:
        self._payload, self._at = memoryview(payload), 0

    def take(self, form: str) -> tuple[Any, ...]:
        """Read the next numbers, in the ``struct`` format ``form``."""
        size = struct.calcsize(f"<{form}")
        return struct.unpack(f"<{form}", self._bytes(size))

    def number(self, form: str) -> Any:
        """Read the next number, in the ``struct`` format ``form``."""
        return self.take(form)[0]

    def text(self) -> str:
        """Read the next string."""
        return bytes(self._bytes(self.number("I"))).decode(errors="replace")

    def texts(self) -> tuple[str, ...]:
        """Read the next list of strings."""
        return tuple(self.text() for _ in range(self.number("I")))

    def values(self) -> tuple[Any, ...]:
        """Read the next list of tensors, numbers, strings and None."""
        return tuple(self._value() for _ in range(self.number("I")))

    def _value(self) -> Any:
        match _Value(self.number("B")):
            case _Value.NONE:
                return None
            case _Value.INT:
                return self.number("q")
            case _Value.DOUBLE:
                return self.number("d")
            case _Value.BOOL:
                return bool(self.number("B"))
            case _Value.STRING:
                return self.text()
            case _Value.TENSOR:
                return self._tensor()

    def _tensor(self) -> torch.Tensor:
        import torch

        dtype = torch_dtype(ScalarType(self.number("b")))
        dimensions = [self.take("iB") for _ in range(self.number("I"))]
        shape, order = [size for size, _ in dimensions], tuple(number for _, number in dimensions)
        content = self._bytes(self.number("Q"))
        if not content:
            return torch.empty(shape, dtype=dtype)
        return from_memory_order(torch.frombuffer(bytearray(content), dtype=dtype).reshape(shape), order)

    def _bytes(self, size: int) -> memoryview:
        found = self._payload[self._at : self._at + size]
        self._at += size
        return found


class RefusedError(Exception):
    """Error that the host returns as its answer."""


def receive(stream: BinaryIO, name: Callable[[str, int], str | None]) -> Answer:
    """Read one answer.

    ``name`` returns the name of a method's instruction, or None, for the description of a crash. ExecuTorch reports
    kernels and delegates only, so the description has the last one of these.

    Raises :class:`RefusedError` if the answer is an error. Raises :class:`~etdev.runtime.child.Crash` if the host
    reports its own crash, and :class:`EOFError` if the host has closed the stream. Raises
    :class:`~etdev.errors.MissingRequirementError` for a host of another version.
    """
    magic, version, number, length = _HEADER.unpack(read_exactly(stream, _HEADER.size))
    if (magic, version) != (_MAGIC, VERSION):
        raise MissingRequirementError(
            "the native host uses another version of the protocol",
            hint="unset ETDEV_NATIVE_HOST, or compile the native host with this version of etdev",
        )
    answer = Answer(read_exactly(stream, length))
    match Kind(number):
        case Kind.ERROR:
            raise RefusedError(answer.text())
        case Kind.CRASH:
            raise Crash(_crash_text(answer, name))
    return answer


def _crash_text(answer: Answer, name: Callable[[str, int], str | None]) -> str:
    """Return the end of a crash's description: the text after "the process ended with signal SIGSEGV"."""
    answer.number("I")
    method, instruction, where = answer.text(), answer.number("q"), answer.text()
    parts = []
    if method:
        parts.append(f"in method {method!r}")
    if instruction >= 0:
        called = name(method, instruction)
        parts.append(f"at instruction {instruction}" + (f" ({called})" if called is not None else ""))
    text = f" {' '.join(parts)}" if parts else ""
    return text + (f": the host accessed {where}" if where else "")
