"""Conditions that a kernel call must meet before its output may reuse the bytes of an operand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from etdev.linker.merged import Refused, Storages
from etdev.linker.shapes import Shapes
from etdev.program import model as m
from etdev.program.analysis.effects import arguments, operator_name, tensors
from etdev.program.analysis.inplace import Donor


class Operands:
    """Finder of operands whose bytes an output may reuse. It takes all merges of storages so far into account."""

    def __init__(self, storages: Storages, table: Mapping[str, Sequence[Donor]]) -> None:
        self._storages, self._table = storages, table
        self._plan, self._flow = storages.plan, storages.memory.reaching.flow
        self._shapes = Shapes(self._plan, self._flow)

    def donors(self, call: m.KernelCall, output: int) -> list[int]:
        """Return the indices of the arguments that the kernel may overwrite with this output."""
        name = operator_name(self._plan.operators[call.op_index])
        count = len(arguments(self._plan, call.args))
        return [
            donor.argument for donor in self._table.get(name, ()) if donor.output == output and donor.argument < count
        ]

    def place(self, position: int, argument: int, out: int, positions: Collection[int]) -> int:
        """Return the value at whose address the operand is located, if this output may overwrite the operand.

        ``positions`` are the indices of all arguments that the kernel may overwrite with the output. Raises
        :class:`~etdev.linker.merged.Refused` if the output may not overwrite this operand.
        """
        call = self._flow.instructions[position]
        assert isinstance(call, m.KernelCall)
        given = arguments(self._plan, call.args)
        place = self._require_like(position, given[argument], out)
        self._require_alone(position, given, place, [item for item in positions if given[item] == given[argument]])
        return place

    def _require_like(self, position: int, donor: int, out: int) -> int:
        """Return the value at whose address the operand is located.

        Raise ``Refused`` unless the operand has the element type and shape of the output.
        """
        theirs, mine = self._plan.values[donor], self._plan.values[out]
        if not isinstance(theirs, m.Tensor) or not isinstance(mine, m.Tensor):
            raise Refused("is not a tensor")
        if theirs.is_constant:
            raise Refused("is a constant")
        place = self._storages.place_when_read(position, donor)
        if mine.scalar_type is not theirs.scalar_type:
            raise Refused("has another element type")
        if not self._shapes.equal(donor, out):
            raise Refused("has another shape, or may have one at run time")
        if mine.dim_order != theirs.dim_order:
            raise Refused("has its dimensions in another order in memory")
        return place

    def _require_alone(self, position: int, given: Sequence[int], place: int, same: Collection[int]) -> None:
        """Raise ``Refused`` if an argument outside ``same`` shares the storage of the operand."""
        taken = self._storages.storage_at(place)
        for argument, value in enumerate(given):
            for tensor in tensors(self._plan, (value,)) if argument not in same else ():
                if any(self._storages.storage_at(other) is taken for other in self._storages.places(position, tensor)):
                    raise Refused(f"shares bytes with argument {argument}")
