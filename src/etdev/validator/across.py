"""Checks of state across methods: no method changes another method's state, and all methods agree on shared state.

Some loaders allocate separate buffers for each method. Others allocate buffers that all methods of a program share. The
proof of a single method holds for both kinds of loader. The checks in this module are for shared buffers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from etdev.program import model as m
from etdev.validator.agree import Assumed
from etdev.validator.method import MethodValidation
from etdev.validator.report import Violation


@dataclass(frozen=True, slots=True)
class _Kept:
    """Bytes of a method that must keep their content between calls."""

    method: MethodValidation
    bytes: Assumed
    name: str | None
    """Name of the state if other methods share this state; otherwise None."""
    offset: int
    """Offset of the first byte from the start of the state called ``name``."""


def check_across(
    methods: Collection[MethodValidation], shared: Collection[str], *, foreign: bool
) -> Iterator[Violation]:
    """Yield a violation for each method that changes the state of another method.

    ``shared`` contains the names of the state that methods share. If ``foreign`` is True, the program was built
    elsewhere, and its methods share buffers 2 and above. In that case, ``shared`` is unused.
    """
    kept = [item for method in methods for item in _kept(method, shared)]
    for other in methods:
        for item in kept:
            if item.method is not other:
                violation = _foreign(other, item) if foreign else _own(other, item)
                if violation is not None:
                    yield violation


def _kept(method: MethodValidation, shared: Collection[str]) -> Iterator[_Kept]:
    names = named_state(method.plans[0], shared)
    for assumed in method.outcome.assumed:
        name, offset = None, 0
        for candidate, (space, start, end) in names.items():
            if space == assumed.before_space and start <= assumed.before < end:
                name, offset = candidate, assumed.before - start
        yield _Kept(method, assumed, name, offset)


def named_state(plan: m.ExecutionPlan, names: Collection[str]) -> Mapping[str, tuple[int, int, int]]:
    """Map the name of each state in ``names`` to ``(buffer, first byte, end byte)``. The end is exclusive."""
    found = {}
    for _, tensor in plan.tensors():
        name, place = tensor.name, tensor.allocation_info
        if name is not None and place is not None and name in names:
            start = place.memory_offset
            found[name] = place.memory_id, start, start + tensor.nbytes
    return found


def _own(other: MethodValidation, item: _Kept) -> Violation | None:
    """Return a violation if ``other``, a method of an object program, changes the state ``item`` of another method.

    Methods of an object program have separate memory and share state by name.
    """
    theirs = item.bytes
    if item.name is not None:
        place = named_state(other.plans[0], (item.name,)).get(item.name)
        if place is not None:
            shared = Assumed(place[0], place[1] + item.offset, theirs.after_space, theirs.after, theirs.length)
            return None if other.leaves_same(shared) else _changes(other, item, "changes")
    return None if other.leaves_alone(1, theirs.after_space, theirs.after, theirs.length) else _changes(other, item)


def _foreign(other: MethodValidation, item: _Kept) -> Violation | None:
    """Return a violation if ``other``, a method of a foreign program, changes the state ``item`` of another method.

    Methods of a foreign program share the addresses in buffers 2 and above.
    """
    theirs = item.bytes
    if theirs.before_space > 1:
        return None if other.leaves_same(theirs) else _changes(other, item, "changes")
    if other.leaves_alone(1, theirs.after_space, theirs.after, theirs.length):
        return None
    # The program before the link may also overwrite this state. In that case, the link is not at fault.
    if not other.leaves_alone(0, theirs.before_space, theirs.before, theirs.length):
        return None
    return _changes(other, item)


def _changes(other: MethodValidation, item: _Kept, what: str = "overwrites") -> Violation:
    theirs = item.bytes
    start, end = theirs.after, theirs.after + theirs.length
    state = (
        f"the state of method {item.method.plans[1].name!r} at bytes {start} to {end} of buffer {theirs.after_space}"
    )
    left = ", unlike before the link," if what == "changes" else ""
    name = other.plans[1].name
    message = f"method {name!r}: it {what} {state}{left} if a loader gives all methods the same buffers"
    return Violation("state", name, message, buffer=theirs.after_space, start=start, end=end)
