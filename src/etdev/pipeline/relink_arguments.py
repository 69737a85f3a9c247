"""Checks of a relink's arguments, and parsing of memory banks in the form ``name:id:size[:alignment]``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from etdev.config.types import MAX_ALIGNMENT, Alignment, ByteSize, SafeName
from etdev.errors import UsageError
from etdev.linker.banks import Banks
from etdev.linker.planners import planner_names
from etdev.planner.banks import COST_RATIO, Bank
from etdev.program.analysis.inplace import DEFAULT

_WHERE = "--bank"
_FORM = "name:id:size[:alignment]"
_NAME: TypeAdapter[str] = TypeAdapter(SafeName)
_SIZE: TypeAdapter[int] = TypeAdapter(ByteSize)
_ALIGNMENT: TypeAdapter[int] = TypeAdapter(Alignment)
_LARGEST_ID = 64

ORDERS = ("auto", "as-is")
"""Values of the argument ``order``."""
TABLES = {"default": DEFAULT, "none": {}}
"""Maps each value of the argument ``inplace`` to a table of kernels that may write over an operand."""


def check_arguments(planner: str, alignment: int | None, inplace: str, order: str) -> None:
    """Raise :class:`~etdev.errors.UsageError` for an invalid argument. ``alignment`` is in bytes."""
    if planner not in planner_names():
        own = (
            "relink does not run code of other packages or projects; use `etdev build` with such a planner"
            if ":" in planner
            else None
        )
        known = ", ".join(sorted(planner_names()))
        raise UsageError(f"there is no planner {planner!r}", where="--planner", hint=own or f"one of: {known}")
    if alignment is not None and (
        not isinstance(alignment, int) or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1)
    ):
        raise UsageError(
            f"{alignment!r} bytes is not an alignment",
            where="--alignment",
            hint=f"use a power of two up to {MAX_ALIGNMENT}: 16, 64, 128",
        )
    if inplace not in TABLES:
        raise UsageError(
            f"there is no list of in-place operators with the name {inplace!r}",
            where="--inplace",
            hint=f"use one of: {', '.join(TABLES)}; to list operators of your own, use `etdev build`",
        )
    if order not in ORDERS:
        raise UsageError(f"{order!r} is not an order", where="--order", hint=f"use one of: {', '.join(ORDERS)}")


def parse_banks(texts: Sequence[str], alignment: int) -> Banks | None:
    """Return the banks that ``texts`` describe, in order of preference; None if there are none.

    ``alignment`` is the minimum alignment of each bank in bytes. For the planner, an access to a bank costs 4 times
    as much as an access to the bank before it. The ids must be 1, 2, 3 and so on, in any order.

    Raises :class:`~etdev.errors.UsageError` for an invalid text, and for a name or an id that occurs twice.
    """
    found = [_parse(text, alignment) for text in texts]
    if not found:
        return None
    banks = tuple(
        Bank(name, size, align, Fraction(COST_RATIO**rank)) for rank, (name, _, size, align) in enumerate(found)
    )
    ids = tuple(number for _, number, _, _ in found)
    names = [repr(bank.name) for bank in banks]
    for kind, values in (("name", names), ("memory id", [str(number) for number in ids])):
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise UsageError(f"two banks have the {kind} {twice}", where=_WHERE, hint="change one of them")
    if set(ids) != set(range(1, len(ids) + 1)):
        raise UsageError(
            f"the memory ids of the banks are not consecutive numbers from 1: {', '.join(map(str, sorted(ids)))}",
            where=_WHERE,
            hint=f"number the banks from 1 to {len(ids)}, in any order",
        )
    return Banks(banks, ids)


def _parse(text: str, alignment: int) -> tuple[str, int, int, int]:
    """Return the name, the id, the size in bytes and the alignment in bytes of one bank."""
    parts = text.split(":")
    if len(parts) not in (3, 4):
        raise UsageError(f"{text!r} is not of the form {_FORM}", where=_WHERE, hint="for example: sram:1:256KiB:32")
    name = _valid(_NAME, parts[0], text, "name", "use letters, digits, `-` and `_`")
    if not parts[1].isascii() or not parts[1].isdigit() or not 1 <= int(parts[1]) <= _LARGEST_ID:
        raise UsageError(
            f"{parts[1]!r} in {text!r} is not a memory id", where=_WHERE, hint=f"use a number from 1 to {_LARGEST_ID}"
        )
    size = int(parts[2]) if parts[2].isascii() and parts[2].isdigit() else parts[2]
    nbytes = _valid(_SIZE, size, text, "size", "use a number of bytes or a size such as 256KiB")
    if len(parts) == 3:
        return name, int(parts[1]), nbytes, alignment
    given = int(parts[3]) if parts[3].isascii() and parts[3].isdigit() else parts[3]
    least = _valid(_ALIGNMENT, given, text, "alignment", "use a power of two: 16, 32, 64")
    if least < alignment:
        raise UsageError(
            f"the alignment of {text!r} is less than {alignment}, the alignment of all tensors",
            where=_WHERE,
            hint=f"use at least {alignment}, or lower `--alignment`",
        )
    return name, int(parts[1]), nbytes, least


_T = TypeVar("_T")


def _valid(kind: TypeAdapter[_T], value: object, text: str, what: str, hint: str) -> _T:
    try:
        return kind.validate_python(value)
    except ValidationError:
        raise UsageError(f"{value!r} in {text!r} is not a valid {what}", where=_WHERE, hint=hint) from None
