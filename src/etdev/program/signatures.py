"""Signatures of operators: the kinds of values that a kernel takes and returns.

The runtime's kernels take their arguments by position. They abort the process if an argument has a wrong kind. The
reader checks each call against its operator's signature. So linker, validator and interpreter can rely on the kinds. An
operator without a signature may take any values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from etdev.program import model as m
from etdev.program.signature_table import SIGNATURES


class RunTimeNumber:
    """Kind of an absent value that a caller or an instruction replaces with a number.

    In the file, such a value is a :class:`~etdev.program.model.Null`.
    """


KINDS = MappingProxyType(
    {
        "Tensor": frozenset({m.Tensor}),
        "Tensor[]": frozenset({m.TensorList}),
        "Tensor?[]": frozenset({m.OptionalTensorList}),
        "int": frozenset({m.Int, RunTimeNumber}),
        "int[]": frozenset({m.IntList}),
        "bool": frozenset({m.Bool, RunTimeNumber}),
        "bool[]": frozenset({m.BoolList}),
        "float": frozenset({m.Double, RunTimeNumber}),
        "float[]": frozenset({m.DoubleList}),
        "Scalar": frozenset({m.Int, m.Bool, m.Double, RunTimeNumber}),
        "str": frozenset({m.String}),
    }
)
"""Maps a type in a signature to the kinds of values that it accepts. Source: ``EValue::to`` of executorch's runtime."""
_NUMBERS = frozenset({"int", "bool", "float", "Scalar"})
_SELF = "self"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A position in a kernel call: an argument or an output."""

    name: str
    """Name of the argument. Empty for an output."""
    kind: str
    """Type of the value in the signature, such as ``Tensor?[]``."""
    accepts: frozenset[type]
    """Accepted kinds of values."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The values of a kernel call, in the order of ``KernelCall.args``."""

    operator: str
    """Name of the operator, such as ``aten::add.out``."""
    parameters: tuple[Parameter, ...]
    """Arguments, then outputs, then the returned number if there is one."""
    outputs: int
    """Number of outputs at the end of ``parameters``. Each is a tensor or a list of tensors."""
    returns: int
    """1 if a call ends with one more value that repeats its outputs or its first argument, otherwise 0."""

    accepts: tuple[frozenset[type], ...]
    """Accepted kinds of values, by position in the call."""


def operator_name(operator: m.Operator) -> str:
    """Return the full name, such as ``aten::add.out``. The name of a default overload has no suffix."""
    return f"{operator.name}.{operator.overload}" if operator.overload else operator.name


@cache
def find_signature(operator: str) -> Signature | None:
    """Return the signature of an operator such as ``aten::add.out``, or None if the table lacks the operator."""
    line = _lines().get(operator)
    return None if line is None else _parse(operator, line)


@cache
def _lines() -> dict[str, str]:
    lines = (line.partition("(") for line in SIGNATURES.strip().splitlines())
    return {name: rest for name, _, rest in lines}


def _parse(operator: str, line: str) -> Signature:
    given, _, returned = line.partition(") ->")
    parameters = [_parameter(*item.split(" ")) for item in given.split(", ") if item]
    results = [item for item in returned.strip().split(", ") if item]
    count = 0
    last: tuple[frozenset[type], ...] = ()
    if results == [_SELF]:
        last = (parameters[0].accepts,)
    else:
        parameters += [_parameter(item) for item in results]
        if results and results[0] not in _NUMBERS:
            count = len(results)
            last = (parameters[-1].accepts if count == 1 else KINDS["Tensor[]"],)
    accepted = (*(parameter.accepts for parameter in parameters), *last)
    return Signature(operator, tuple(parameters), count, len(last), accepted)


def _parameter(kind: str, name: str = "") -> Parameter:
    accepted = KINDS[kind.removesuffix("?")]
    return Parameter(name, kind, accepted | {m.Null} if kind.endswith("?") else accepted)
