"""Weights and other data of a program, for comparison with another program."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from etdev.inspection.provenance import Provenance
from etdev.inspection.report.sections import named_constants
from etdev.page.model import WeightChange
from etdev.program import Program, flat_tensor
from etdev.program import model as m
from etdev.program.blob import Blob
from etdev.program.constants import constant_data
from etdev.program.info import ProgramInfo


@dataclass(frozen=True, slots=True)
class Weight:
    """Data of a program."""

    kind: str
    """Kind: ``constant``, ``delegate``, ``named data`` or ``external weight``."""
    name: str
    named: bool
    """False if ``name`` only states an index. The same index in another program may be other data."""
    size: int
    digest: bytes


def weights(program: Program, info: ProgramInfo, known: Provenance) -> tuple[Weight, ...]:
    """Return the constants, delegates, named data and known external weights of a program.

    Raises :class:`~etdev.errors.ProgramError` if a data file is malformed.
    """
    return (*_constants(program, info, known), *_delegates(program), *_named_data(program), *_external(known))


def weight_changes(a: Iterable[Weight], b: Iterable[Weight]) -> tuple[WeightChange, ...]:
    """Return the data that differs between two programs, the largest first.

    Data with the same kind and name in the two programs is compared. All other data counts as added or removed, unless
    the other program has the same bytes under another name.
    """
    first, second = list(a), list(b)
    names = [{(one.kind, one.name): one for one in of if one.named} for of in (first, second)]
    both = names[0].keys() & names[1].keys()
    changed = [
        WeightChange(name, kind, names[0][kind, name].size, names[1][kind, name].size)
        for kind, name in both
        if names[0][kind, name].digest != names[1][kind, name].digest
    ]
    alone = [
        [one for one in weights if not (one.named and (one.kind, one.name) in both)] for weights in (first, second)
    ]
    equal = Counter(one.digest for one in alone[0]) & Counter(one.digest for one in alone[1])
    removed = [WeightChange(one.name, one.kind, one.size, None) for one in _without(alone[0], equal)]
    added = [WeightChange(one.name, one.kind, None, one.size) for one in _without(alone[1], equal)]
    return tuple(
        sorted((*changed, *removed, *added), key=lambda one: (-max(one.a or 0, one.b or 0), one.kind, one.name))
    )


def _without(weights: Iterable[Weight], equal: Counter[bytes]) -> Iterator[Weight]:
    left = Counter(equal)
    for one in weights:
        if left[one.digest]:
            left[one.digest] -= 1
        else:
            yield one


def _constants(program: Program, info: ProgramInfo, known: Provenance) -> Iterator[Weight]:
    for name, named, item in named_constants(program, info, known, "constant"):
        tensor = program.method(item.method).values[item.value]
        data = constant_data(program, tensor) if isinstance(tensor, m.Tensor) else None
        if data is None and item.index < len(program.constant_buffer):
            data = program.constant_buffer[item.index]
        if data is not None:
            yield Weight("constant", name, named, item.nbytes, _digest(data))


def _delegates(program: Program) -> Iterator[Weight]:
    for plan in program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            data = program.delegate_data(delegate)
            yield Weight("delegate", f"{delegate.id} {index} of {plan.name}", True, len(data), _digest(data))


def _named_data(program: Program) -> Iterator[Weight]:
    for item in program.named_data:
        data = program.segments[item.segment_index].data
        yield Weight("named data", item.key, True, len(data), _digest(data))


def _external(known: Provenance) -> Iterator[Weight]:
    for file in known.data:
        content = flat_tensor.read(file)
        for item in content.named_data:
            data = content.segments[item.segment_index].data
            yield Weight("external weight", item.key, True, len(data), _digest(data))


def _digest(data: Blob) -> bytes:
    found = hashlib.sha256()
    for piece in data.pieces():
        found.update(piece)
    return found.digest()
