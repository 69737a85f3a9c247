"""Removal of copies whose output has the bytes of their input, possibly in another shape.

1. If the input has an address and all sizes are static, the output becomes an alias of the input. The copy is removed.
2. If the input is a constant, the output becomes the same constant.
3. If sizes are dynamic or the address of the input is not fixed, ``et_view`` replaces the copy. ``et_view`` moves no
   bytes, and sets the sizes as the copy would. Memory of the caller has no fixed address. A value that differs between
   branches has no fixed address either.
4. If the output always has the shape of the input (``alias_copy``, ``clone``), users of the output use the input.

The pass keeps a copy if the input's bytes may be written again while the output is still read. The pass also keeps a
copy if another instruction writes the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from etdev.decisions import Action, Elision
from etdev.linker.edit import frees, renumbered, with_instructions, with_operator
from etdev.linker.elide.runs import Numbers
from etdev.linker.elide.view_copies import KEEPS_SHAPE, VIEW_COPY, is_view, may_be_view
from etdev.linker.elide.writers import Writers, any_between
from etdev.linker.merged import Refused
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import ET_VIEW, outputs
from etdev.program.analysis.storage import MethodMemory

_LEFT = "the caller has its input or output on a device"


def elide_views(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Remove copies that only change the shape. Tensors of the method may share bytes only if they are aliases."""
    if "views" not in options.elide:
        return Changed(method)
    found, numbers = _Views(method, options.merged_views), Numbers(method.plan)
    for position, call, name in method.kernels():
        if is_view(method.plan, call, name, numbers):
            found.consider(position, call, name)
        elif may_be_view(method.plan, call, name):
            found.keep(position, call, name, "its sizes are known only at run time")
    return found.result()


@dataclass(slots=True)
class _Group:
    """Bytes of one storage or of several merged storages: their lifetime, and the writes to them."""

    start: int
    end: int
    writes: tuple[int, ...]
    """Instants of the writes, in ascending order."""


@dataclass(slots=True)
class _Views:
    method: Method
    merged: bool
    plan: m.ExecutionPlan = field(init=False)
    memory: MethodMemory = field(init=False)
    decisions: list[Elision] = field(default_factory=list)
    _groups: list[_Group] = field(init=False)
    _group: dict[int, list[int]] = field(init=False)
    """Maps each value to the groups whose bytes the value may use before the pass changes anything."""
    _merged: dict[int, list[int]] = field(default_factory=dict)
    """Maps each merged group to the groups that now hold its bytes."""
    _members: dict[int, set[int]] = field(init=False)
    """Maps each group to the values that have an address in that group."""
    _device_members: dict[int, set[int]] = field(init=False)
    """Maps each group to its values that are inputs or outputs on a device."""
    _values: dict[int, m.Value] = field(default_factory=dict)
    """Maps a value index to the value that replaces the original value."""
    _new_values: list[m.Value] = field(default_factory=list)
    _views: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Maps the position of a copy to the arguments of the ``et_view`` that replaces the copy."""
    _removed: set[int] = field(default_factory=set)
    _unfixed: set[int] = field(init=False)
    """Values whose address is set by moves or views at run time."""
    _replacements: dict[int, int] = field(default_factory=dict)
    """Maps each replaced value to the value that its users use instead."""
    _freed: dict[int, list[int]] = field(init=False)
    """Maps each freed value to the positions of the instructions that free it."""
    _referred_to: set[int] = field(init=False)
    """Values that are the source of a move or a view."""
    _writers: Writers = field(init=False)
    _inputs: frozenset[int] = field(init=False)
    """Inputs of the method."""
    _method_outputs: Counter[int] = field(init=False)
    """Outputs of the original method."""
    _outputs: Counter[int] = field(init=False)
    """Outputs of the method after all decisions so far."""

    def __post_init__(self) -> None:
        self.plan, self.memory = self.method.plan, self.method.memory
        self._groups = [_Group(item.start, item.end, item.writes) for item in self.memory.storages]
        self._group = {value: [index] for value, index in self.memory.of.items()}
        self._members = {index: set(item.values) for index, item in enumerate(self.memory.storages)}
        self._device_members = {
            index: values & self.method.caller_device_values for index, values in self._members.items()
        }
        found = self.memory.reaching
        self._unfixed = set(found.references)
        for value in found.references:
            self._group[value] = []
        for use in found.uses:
            if use.value in found.references and self.memory.of[use.place] not in self._group[use.value]:
                self._group[use.value].append(self.memory.of[use.place])
        self._freed = frees(found.flow.instructions)
        self._referred_to = {pair[0] for effect in found.effects for pair in (effect.view, effect.move) if pair}
        self._writers = Writers(found, self.memory.of)
        self._outputs = Counter(self.plan.outputs)
        self._method_outputs = self._outputs.copy()
        self._inputs = frozenset(self.plan.inputs)

    def consider(self, position: int, call: m.KernelCall, name: str) -> None:
        """Decide whether and how to remove this copy. Record the decision."""
        (out,) = outputs(self.plan, call.args)
        source = self._replacements.get(call.args[0], call.args[0])
        tensor = self._tensor(out)
        try:
            self._require_own(position, out)
            self._require_kept(position, source, out)
            action = self._elide(position, call, name, source, out)
        except Refused as reason:
            self.keep(position, call, name, str(reason))
        else:
            self.decisions.append(Elision(position, name, action, tensor.nbytes))

    def keep(self, position: int, call: m.KernelCall, name: str, reason: str) -> None:
        """Record that this copy stays."""
        (out,) = outputs(self.plan, call.args)
        self.decisions.append(Elision(position, name, "kept", self._tensor(out).nbytes, reason))

    def result(self) -> Changed:
        """Return the method with all decisions applied."""
        values = [self._values.get(index, value) for index, value in enumerate(self.plan.values)]
        plan = replace(self.plan, values=(*values, *self._new_values))
        changed: dict[int, tuple[m.Instruction, ...]] = dict.fromkeys(self._removed, ())
        if self._views:
            plan, view = with_operator(plan, ET_VIEW, "default")
            changed.update((position, (m.KernelCall(view, args),)) for position, args in self._views.items())
        plan, moved = with_instructions(plan, changed)
        if self._replacements:
            plan = renumbered(plan, range(len(plan.values)), lambda value: self._replacements.get(value, value))
        return Changed(replace(self.method, plan=plan), moved, self.decisions)

    # Conditions

    def _require_own(self, position: int, out: int) -> None:
        """Raise ``Refused`` unless this instruction alone writes the output and the output's bytes."""
        if not self._tensor(out).nbytes:
            raise Refused("its output is empty")
        if out not in self.memory.of:
            raise Refused("the memory of its output is not planned")
        if self._writers.of(out) != [position]:
            raise Refused("another instruction writes its output too")
        for index in self._groups_of(out):
            if self._groups[index].writes != (position + 1,):
                raise Refused("other instructions write the bytes of its output")
            if self.memory.storages[index].persistent:
                raise Refused("its output is state")
            if self._groups[index].start < position + 1:
                raise Refused("its output is used in the next iteration of a loop")

    def _require_kept(self, position: int, source: int, out: int) -> None:
        """Raise ``Refused`` if the input may be written again while the output is in use."""
        groups, own_groups = self._groups_of(source), self._groups_of(out)
        if set(groups) & set(own_groups):
            raise Refused("its input may share bytes with its output")
        if len(groups) > 1 and not self.merged:
            raise Refused("all tensors that may be its input would be in use for longer")
        use_end = max([position + 1, *(self._groups[index].end for index in own_groups)])
        rewritten = any(any_between(self._groups[index].writes, position + 1, use_end) for index in groups)
        if rewritten or self._is_written_elsewhere(source, position, use_end - 1):
            raise Refused("its input is written again while its output is in use")

    def _is_written_elsewhere(self, source: int, after: int, before: int) -> bool:
        """Return whether an instruction between two positions may write an input that belongs to no group.

        Such an input is in unplanned memory, or has no fixed address.
        """
        if source in self._unfixed:
            return self._writers.any_unfixed(after, before, unplanned=True)
        if source in self.memory.of:
            return False
        return any_between(self._writers.of(source), after, before) or self._writers.any_unfixed(
            after, before, unplanned=False
        )

    def _device_values_near(self, source: int, out: int) -> frozenset[int]:
        """Return the inputs and outputs on devices that share bytes with ``source`` or ``out``, these two included."""
        groups = {*self._groups_of(source), *self._groups_of(out)}
        return (self.method.caller_device_values & {source, out}).union(
            *(self._device_members[index] for index in groups)
        )

    def _require_same_shape(self, source: int, out: int) -> None:
        """Raise ``Refused`` if an input or output on a device would share its bytes with an unsuitable tensor.

        A tensor is unsuitable if it has another shape, or if it is another input or output on a device.
        """
        ends = self._device_values_near(source, out)
        source_tensor, target_tensor = self._tensor(source), self._tensor(out)
        same = (source_tensor.sizes, source_tensor.dim_order) == (target_tensor.sizes, target_tensor.dim_order)
        pointed_to = self._referred_to.intersection((out, *self._aliases(out)))
        if len(ends) > 1 or (ends and (not same or pointed_to)):
            raise Refused(_LEFT)

    # Ways to remove a copy, best first

    def _elide(self, position: int, call: m.KernelCall, name: str, source: int, out: int) -> Action:
        source_tensor, target_tensor = self._tensor(source), self._tensor(out)
        if source_tensor.scalar_type is not target_tensor.scalar_type:
            raise Refused("its output has another element type")
        self._require_same_shape(source, out)
        plain = source_tensor.is_in_order and target_tensor.is_in_order
        if not plain and (source_tensor.sizes, source_tensor.dim_order) != (
            target_tensor.sizes,
            target_tensor.dim_order,
        ):
            raise Refused("its dimensions are in another order in memory")
        from_static, to_static = source_tensor.is_static, target_tensor.is_static
        if to_static and source_tensor.nbytes != target_tensor.nbytes:
            raise Refused("its output has another size")
        fixed = from_static and to_static and source not in self._unfixed
        if fixed and source_tensor.is_constant and not source_tensor.is_external:
            return self._as_constant(position, out, source_tensor)
        if fixed and source_tensor.allocation_info is not None and out in self.memory.of and out not in self._unfixed:
            if position in self.method.copies and self._can_replace(position, source, out):
                self._replace(out, source)
            return self._as_alias(position, source, out)
        # A copy from a dynamic tensor to a static one fixes the sizes. Readers of the output rely on that.
        if name in KEEPS_SHAPE and (from_static or not to_static) and self._can_replace(position, source, out):
            return self._as_same(position, source, out)
        return self._as_view(position, call, name, source, out)

    def _as_constant(self, position: int, out: int, source_tensor: m.Tensor) -> Action:
        if self._method_outputs[out]:
            raise Refused("its output is an output of the method, and its input is a constant")
        self._require_no_aliases(out)
        self._values[out] = replace(
            self._tensor(out),
            data_buffer_idx=source_tensor.data_buffer_idx,
            allocation_info=None,
            extra_tensor_info=None,
        )
        self._removed.update((position, *self._freed.get(out, ())))
        self._merge(out, ())
        return "constant"

    def _as_alias(self, position: int, source: int, out: int) -> Action:
        source_place, target_place = self._address(source), self._address(out)
        end = target_place.memory_offset + self._tensor(out).nbytes
        followers = [out, *self._aliases(out)]
        for value in followers:
            begin = self._address(value).memory_offset
            if not target_place.memory_offset <= begin <= begin + self._tensor(value).nbytes <= end:
                raise Refused("its output is a part of another tensor")
        for value in followers:
            offset = source_place.memory_offset + self._address(value).memory_offset - target_place.memory_offset
            self._values[value] = replace(
                self._tensor(value), allocation_info=m.AllocationDetails(source_place.memory_id, offset)
            )
        self._removed.add(position)
        for index in self._groups_of(source):
            self._members[index].update(followers)
            self._device_members[index].update(self.method.caller_device_values.intersection(followers))
        self._merge(out, self._groups_of(source))
        return "alias"

    def _as_same(self, position: int, source: int, out: int) -> Action:
        self._require_no_aliases(out)
        self._replace(out, source)
        self._removed.add(position)
        self._merge(out, self._groups_of(source))
        return "same value"

    def _as_view(self, position: int, call: m.KernelCall, name: str, source: int, out: int) -> Action:
        self._require_no_aliases(out)
        if self._device_values_near(source, out):
            raise Refused(_LEFT)
        if name == VIEW_COPY:
            sizes = call.args[1]
        elif self._tensor(out).is_static:
            sizes = self._sizes(self._tensor(out).sizes)
        else:
            raise Refused("its sizes are known only at run time")
        self._views[position] = (source, sizes, out)
        self._unfixed.add(out)
        self._writers.add_view(position)
        self._merge(out, self._groups_of(source))
        return "view"

    def _can_replace(self, position: int, source: int, out: int) -> bool:
        """Return whether all users of ``out`` can use ``source`` instead.

        Return False if both values are outputs of the method, because a caller distinguishes outputs by tensor. Also
        return False if ``source`` has the higher number: items of a list must have lower numbers than the list.
        """
        if (
            source in self._unfixed
            or out in self._unfixed
            or source > out
            or not self._freed.keys().isdisjoint((source, out))
        ):
            return False
        if self._writers.may_follow(source, position):
            return False  # The input would get another size later, and the copy would keep the earlier one.
        return not self._method_outputs[out] or not (
            source in self._inputs or self._outputs[source] or self._tensor(source).is_constant
        )

    def _replace(self, out: int, source: int) -> None:
        """Record that all users of ``out`` use ``source`` instead."""
        self._replacements[out] = source
        count = self._method_outputs[out]
        self._outputs[out] -= count
        self._outputs[source] += count

    def _aliases(self, out: int) -> list[int]:
        """Return the other values that have an address in the bytes of ``out``."""
        return sorted({value for index in self._groups_of(out) for value in self._members[index]} - {out})

    def _require_no_aliases(self, out: int) -> None:
        if self._aliases(out):
            raise Refused("its output has aliases at fixed addresses")

    def _address(self, value: int) -> m.AllocationDetails:
        place = self._tensor(value).allocation_info
        assert place is not None
        return place

    def _groups_of(self, value: int) -> list[int]:
        """Return the groups whose bytes a value may use, after all merges so far."""
        found: dict[int, None] = {}
        waiting = list(self._group.get(value, []))
        while waiting:
            index = waiting.pop()
            if index in self._merged:
                waiting += self._merged[index]
            else:
                found[index] = None
        return list(found)

    def _merge(self, out: int, groups: Collection[int]) -> None:
        """Merge the groups of ``out`` into ``groups``. The lifetimes of ``groups`` grow to cover the merged groups."""
        for index in self._groups_of(out):
            for other in groups:
                self._groups[other].end = max(self._groups[other].end, self._groups[index].end)
            self._merged[index] = list(groups)

    def _sizes(self, sizes: Iterable[int]) -> int:
        """Add a list of constant sizes to the method; return the value index of the list."""
        first = len(self.plan.values) + len(self._new_values)
        numbers = [m.Int(size) for size in sizes]
        self._new_values += [*numbers, m.IntList(tuple(range(first, first + len(numbers))))]
        return first + len(numbers)

    def _tensor(self, index: int) -> m.Tensor:
        tensor = self._values.get(index, self.plan.values[index])
        assert isinstance(tensor, m.Tensor)
        return tensor
