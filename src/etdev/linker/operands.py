"""Operands whose bytes an output may reuse, considering a single call and not its context."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from etdev.linker.joined import Refused, Storages
from etdev.linker.shapes import Shapes
from etdev.program import model as m
from etdev.program.analysis.effects import arguments, operator_name, tensors
from etdev.program.analysis.inplace import Donor


class Operands:
    """The operands of a method's instructions, at the current places in ``storages``."""

    def __init__(self, storages: Storages, table: Mapping[str, Sequence[Donor]]) -> None:
        self._storages, self._table = storages, table
        self._plan, self._flow = storages.plan, storages.memory.reaching.flow
        self._shapes = Shapes(self._plan, self._flow)

    def donors(self, call: m.KernelCall, output: int) -> list[int]:
        """Return the positions of the arguments that the kernel may write this output over."""
        name = operator_name(self._plan.operators[call.op_index])
        count = len(arguments(self._plan, call.args))
        return [
            donor.argument for donor in self._table.get(name, ()) if donor.output == output and donor.argument < count
        ]

    def place(self, position: int, argument: int, out: int, positions: Collection[int]) -> int:
        """Return the value in whose place the operand is, if this output may be written over it.

        ``positions`` are those of all arguments that allow it. Raises :class:`~etdev.linker.joined.Refused` otherwise.
        """
        call = self._flow.instructions[position]
        assert isinstance(call, m.KernelCall)
        given = arguments(self._plan, call.args)
        place = self._like(position, given[argument], out)
        self._require_alone(position, given, place, [item for item in positions if given[item] == given[argument]])
        return place

    def _like(self, position: int, donor: int, out: int) -> int:
        """Return the value in whose place the operand is. Raise an error unless it is a tensor like the output."""
        theirs, mine = self._plan.values[donor], self._plan.values[out]
        if not isinstance(theirs, m.Tensor) or not isinstance(mine, m.Tensor):
            raise Refused("is no tensor")
        if theirs.is_constant:
            raise Refused("is a constant")
        place = self._storages.place_read(position, donor)
        if mine.scalar_type is not theirs.scalar_type:
            raise Refused("has another element type")
        if not self._shapes.equal(donor, out):
            raise Refused("has another shape, or may have at run time")
        if mine.dim_order != theirs.dim_order:
            raise Refused("has its dimensions in another order in memory")
        return place

    def _require_alone(self, position: int, given: Sequence[int], place: int, same: Collection[int]) -> None:
        """Raise an error if another argument shares the operand's storage, except the operand itself."""
        taken = self._storages.at(place)
        for argument, value in enumerate(given):
            for tensor in tensors(self._plan, (value,)) if argument not in same else ():
                if any(self._storages.at(other) is taken for other in self._storages.places(position, tensor)):
                    raise Refused(f"is argument {argument}, too")
