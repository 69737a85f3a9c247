"""Value types that several tables of the config share."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, AllowInfNan, BeforeValidator, Field, WithJsonSchema

from etdev.devices import DeviceNameError, DeviceType, parse_device, valid_names

T = TypeVar("T")
Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in the config file, stored as a tuple because configs are immutable."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Description of a type's valid values, for messages (``expected <phrase>``) and for the reference."""

    phrase: str
    also: frozenset[str] = frozenset()
    """Further kinds of raw value that are accepted, in addition to the kind of the annotated type.

    :func:`etdev.config.describe.notation.kind` defines the names of kinds.
    """
    example: str | None = None
    """A valid value that messages show as an example; None if messages show no example."""
    meant: Callable[[str], str | None] | None = None
    """Function that takes an invalid text and returns a hint with its probable meaning."""


_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SIZE = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-z]+)")
UNITS = ", ".join(_UNITS)


def refuse_negative(value: int | str) -> int | str:
    """Return the value. Raise an error if it is a negative integer."""
    if isinstance(value, int) and value < 0:
        raise ValueError("negative")
    return value


def refuse_bad_reference(value: str) -> str:
    """Return the value. Raise an error if it is ``git:`` followed by an invalid commit reference."""
    reference = value.removeprefix(GIT_PREFIX)
    if value.startswith(GIT_PREFIX) and not re.fullmatch(r"[^\s:\-][^\s:]*", reference):
        raise ValueError("not a valid commit reference")
    return value


def parse_byte_size(value: object) -> object:
    """Convert a size such as ``"64KiB"`` to a number of bytes.

    Return a value of any other type unchanged. Pydantic accepts an integer as a number of bytes.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None or match["unit"] not in _UNITS:
        raise ValueError(f"not a size; the units are {UNITS}")
    whole, _, fraction = match["number"].partition(".")
    scale = 10 ** len(fraction)
    size, rest = divmod(int(whole + fraction) * _UNITS[match["unit"]], scale)
    if rest:
        raise ValueError("not a whole number of bytes")
    return size


def meant_size(text: str) -> str | None:
    """Return a hint that corrects the unknown unit of a size; None if the text is not a size.

    ``64KB`` and ``64k`` have two possible meanings, so the hint shows both.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    begins = match["unit"][0].casefold()
    is_one = match["unit"].casefold() in (begins, f"{begins}b", f"{begins}ib")
    units = [unit for unit in _UNITS if is_one and unit != "B" and unit[0].casefold() == begins]
    units = ["B"] if match["unit"] == "b" else sorted(units, key=lambda unit: -_UNITS[unit])
    written = [f'"{match["number"]}{unit}"' for unit in units]
    return f"write {' or '.join(written)}" if written else None


ByteSize = Annotated[
    int,
    BeforeValidator(parse_byte_size),
    Field(ge=0, le=2**63 - 1),
    Expected(
        f'a size such as "64KiB" (units: {UNITS}) or a whole number of bytes',
        also=frozenset({"text"}),
        meant=meant_size,
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\d+(\.\d+)?\s*(B|kB|MB|GB|KiB|MiB|GiB)$"},
            ]
        }
    ),
]
"""A number of bytes, written as a whole number or with a unit."""


_SECONDS = {
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
}
_DURATION = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[A-Za-zµ]+)")
TIME_UNITS = ", ".join(_SECONDS)


def parse_duration(value: object) -> object:
    """Convert a duration such as ``"12ms"`` to seconds.

    Return other types unchanged. Pydantic accepts numbers as seconds, and rejects the rest.
    """
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None or match["unit"] not in _SECONDS:
        raise ValueError(f"not a duration; the units are {TIME_UNITS}")
    return float(Fraction(match["number"]) * _SECONDS[match["unit"]])


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    AllowInfNan(False),
    Field(gt=0, le=86_400),
    Expected(f'a duration such as "12ms" (units: {TIME_UNITS}) or a number of seconds', also=frozenset({"text"})),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 86_400},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(us|µs|ms|s|min)\s*$"},
            ]
        }
    ),
]
"""Seconds, written as a number or with a unit."""

_PERCENT = re.compile(r"\d{1,9}(\.\d{1,9})?\s*%")


def parse_growth(value: object) -> object:
    """Return a percentage such as ``"2%"`` unchanged; convert a size to bytes like :func:`parse_byte_size`."""
    if isinstance(value, str) and value.strip().endswith("%"):
        if _PERCENT.fullmatch(value.strip()) is None:
            raise ValueError("not a percentage")
        return value.strip()
    return parse_byte_size(value)


def allowed_growth(growth: int | str, before: int) -> int:
    """Return the number of bytes by which a figure of ``before`` bytes may grow; a percentage is rounded down."""
    if isinstance(growth, int):
        return growth
    return int(Fraction(growth.removesuffix("%").strip()) * before / 100)


Growth = Annotated[
    int | str,
    BeforeValidator(parse_growth),
    AfterValidator(refuse_negative),
    Expected(
        f'a percentage such as "2%", a size such as "64KiB" (units: {UNITS}) or a whole number of bytes',
        also=frozenset({"text", "integer"}),
        meant=meant_size,
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\s*\d+(\.\d+)?\s*(%|B|kB|MB|GB|KiB|MiB|GiB)\s*$"},
            ]
        }
    ),
]
"""Allowed growth: bytes, or text with a percentage of the earlier size."""

GIT_PREFIX = "git:"
"""Prefix of ``baseline.from`` for a baseline in the git history: ``git:REF``."""

BaselineSource = Annotated[
    str,
    Field(min_length=1),
    AfterValidator(refuse_bad_reference),
    Expected('"git:REF", or the path of a .pte file or of a folder'),
]
"""Source of the baseline's figures: a ``.pte`` file, a folder, or ``git:REF``."""


def parse_base64_table(value: object) -> object:
    """Return the bytes in ``{ base64 = "..." }``; return any other value unchanged.

    This notation for binary data works in both TOML and YAML.
    """
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"base64"} or not isinstance(value["base64"], str):
        raise ValueError('a table must have the form { base64 = "..." }')
    try:
        return base64.b64decode(value["base64"], validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


CompileSpecValue = Annotated[
    int | str | bytes,
    BeforeValidator(parse_base64_table),
    Expected(
        'a whole number, text, or bytes written as { base64 = "…" }',
        also=frozenset({"table"}),
    ),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer"},
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"base64": {"type": "string", "contentEncoding": "base64"}},
                    "required": ["base64"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""Value of one compile spec; bytes are written as ``{ base64 = "…" }``, in YAML also as ``!!binary``."""

Text = Annotated[str, Field(min_length=1), Expected("text that is not empty")]

DestinationUri = Annotated[
    str,
    Field(min_length=1),
    Expected("a URI such as file:///PATH, sftp://HOST/PATH, s3://BUCKET/PREFIX or adb:/PATH"),
    WithJsonSchema({"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9+.-]*:"}),
]
"""Destination of a deployment.

:mod:`etdev.config.checks.operation` validates the URI. Messages never contain the URI, because it may contain a secret.
"""

EnvironmentName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128),
    Expected("the name of an environment variable"),
]

Number = Annotated[float, AllowInfNan(False), Expected("a finite number")]


Share = Annotated[float, AllowInfNan(False), Field(ge=0, le=1), Expected("a number")]
"""Fraction of a whole, from 0 to 1."""

PositiveShare = Annotated[float, AllowInfNan(False), Field(gt=0, le=1), Expected("a number")]
"""Fraction of a whole, above 0 and at most 1."""


def refuse_non_integer(value: object) -> object:
    """Return the value; raise an error if it is not an ``int``.

    ``Literal[1]`` compares with ``==``, so it would accept ``true`` and ``1.0``.
    """
    if type(value) is not int:
        raise ValueError("not a whole number")
    return value


FormatVersion = Annotated[Literal[1], BeforeValidator(refuse_non_integer)]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_DOTTED = rf"{_NAME}(\.{_NAME})*"

Identifier = Annotated[
    str,
    Field(pattern=rf"^{_NAME}$", max_length=128),
    Expected("a name of letters, digits and `_` that does not begin with a digit"),
]
"""A Python identifier: the name of a method, an input or a dimension."""

SafeName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=128),
    Expected("a name of letters, digits, `.`, `_` and `-` that begins with a letter or digit"),
]
"""A name that is a valid file name on every system."""

_DATA_FILE = r"^[A-Za-z0-9][A-Za-z0-9._-]*\.ptd$"
_MOST_OF_A_NAME = 128

DataFileName = Annotated[
    str,
    Field(pattern=_DATA_FILE, max_length=_MOST_OF_A_NAME),
    Expected('a plain file name that ends with ".ptd", such as "weights.ptd"'),
]
"""Name of a data file, in the folder of the program."""


def is_data_file_name(name: str) -> bool:
    """Return True if a data file may have this name."""
    return len(name) <= _MOST_OF_A_NAME and re.fullmatch(_DATA_FILE, name) is not None


ModuleName = Annotated[str, Field(pattern=rf"^{_DOTTED}$"), Expected('a module name such as "my_ops"')]
"""Dotted name of a Python module."""

Entry = Annotated[str, Field(pattern=rf"^{_DOTTED}:{_DOTTED}$"), Expected('"module:callable"')]
"""Reference to a Python object: ``module:callable``.

Python first searches for the module in the folder of the config file that contains this value. Then it searches the
usual locations.
"""

OperatorName = Annotated[
    str,
    Field(
        pattern=rf"^(?:{_NAME}::{_NAME}(?:\.{_NAME})?|(?:torch\.ops\.)?{_NAME}(?:\.{_NAME}){{0,2}})$", max_length=256
    ),
    Expected('an operator such as "aten::relu.out"'),
]
"""Name of an operator, in a notation that :func:`etdev.program.analysis.inplace.parse_operator` accepts."""

CommitHash = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$"), Expected("a full commit hash, 40 hexadecimal digits")]

MAX_ALIGNMENT = 2**14


def refuse_other_than_power_of_two(value: int) -> int:
    """Return the value; raise an error if it is not a power of two (1, 2, 4, …)."""
    if value & (value - 1):
        raise ValueError("not a power of two")
    return value


Alignment = Annotated[
    int,
    Field(ge=1, le=MAX_ALIGNMENT),
    AfterValidator(refuse_other_than_power_of_two),
    Expected(f"a power of two from 1 to {MAX_ALIGNMENT}"),
    WithJsonSchema({"enum": [2**power for power in range(MAX_ALIGNMENT.bit_length())]}),
]
"""Alignment in bytes. Addresses are multiples of this number."""

Position = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$"), Expected('a position such as "0"')]
"""Position of an output of a method, counted from 0. The type is text, because keys of TOML tables are text."""


def canonical_device(value: str) -> str:
    """Return the canonical name of a device, such as ``cuda:0`` for ``cuda`` and ``CUDA:0``."""
    try:
        return str(parse_device(value))
    except DeviceNameError as error:
        raise ValueError(error.message) from error


def _device_pattern() -> str:
    """Return a JSON Schema pattern for device names.

    It matches all names that :func:`~etdev.devices.parse_device` accepts, except names with spaces.
    """
    kinds = ["".join(f"[{letter}{letter.lower()}]" for letter in kind.name) for kind in DeviceType if kind]
    digits = "|".join(["0*[0-9]{1,2}", "0*1[01][0-9]", "0*12[0-7]"])
    return f"^([Cc][Pp][Uu](:0+)?|({'|'.join(kinds)})(:({digits}))?)$"


DeviceName = Annotated[
    str,
    AfterValidator(canonical_device),
    Expected(f"a device ({valid_names()})", example="cpu"),
    WithJsonSchema({"type": "string", "pattern": _device_pattern()}),
]
"""Canonical name of a device with memory, such as ``cuda:0``."""
