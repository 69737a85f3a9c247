"""Removal of copies whose output holds the bytes of their input in another shape.

1. Both sizes are static and the input has an address: the output becomes an alias of it, and the instruction is
   removed.
2. The input is a constant: the output becomes the same constant.
3. The input's address is known at run time only (it is the caller's, or one of several after a branch), or sizes are
   dynamic: ``et_view`` replaces the copy. It moves no bytes, and sets the sizes as the copy would.
4. The output always has the shape of its input (``alias_copy``, ``clone``): its users use the input instead.

The pass leaves a copy if the input's bytes may be written again while the output is still read. It also leaves a copy
if another instruction writes the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from etdev.decisions import Action, Elision
from etdev.linker.edit import frees, renumbered, with_instructions, with_operator
from etdev.linker.elide.runs import CLONES, IDENTITIES, Numbers, runs
from etdev.linker.elide.writers import Writers, any_between
from etdev.linker.joined import Refused
from etdev.linker.options import LinkOptions
from etdev.linker.work import Changed, Method, Work
from etdev.program import model as m
from etdev.program.analysis.effects import ET_VIEW, outputs
from etdev.program.analysis.storage import MethodMemory

_SAME_SHAPE = frozenset({"aten::alias_copy.out", "aten::detach_copy.out", "aten::lift_fresh_copy.out"})
_NEW_SHAPE = frozenset(
    {"aten::view_copy.out", "aten::unsqueeze_copy.out", "aten::squeeze_copy.dim_out", "aten::squeeze_copy.dims_out"}
)
_VIEW_COPY = "aten::view_copy.out"
_LEFT = "the caller has it on a device"
_KEEPS_SHAPE = _SAME_SHAPE | CLONES.keys()


def elide_views(method: Method, work: Work, options: LinkOptions) -> Changed:
    """Remove the views of a method, which has to be an object program's, where only aliases share bytes."""
    if "views" not in options.elide:
        return Changed(method)
    found, numbers = _Views(method, options.merged_views), Numbers(method.plan)
    for position, call, name in method.kernels():
        if _is_view(method.plan, call, name, numbers):
            found.consider(position, call, name)
    return found.result()


def _is_view(plan: m.ExecutionPlan, call: m.KernelCall, name: str, numbers: Numbers) -> bool:
    """Return whether the output has all bytes of the input, in the same order."""
    if name in _SAME_SHAPE | _NEW_SHAPE:
        return _has_form(plan, call, name)
    if name in CLONES and _is_clone(plan, call):
        return True
    try:
        return name in IDENTITIES and len(runs(plan, call, name, numbers)) == 1
    except Refused:
        return False


def _is_clone(plan: m.ExecutionPlan, call: m.KernelCall) -> bool:
    """Return whether a copy that may change the element type and the order of dimensions changes neither."""
    source, out = plan.values[call.args[0]], plan.values[call.args[-1]]
    if not isinstance(source, m.Tensor) or not isinstance(out, m.Tensor) or call.args[-2] != call.args[-1]:
        return False
    return (source.scalar_type, source.dim_order) == (out.scalar_type, out.dim_order)


def _has_form(plan: m.ExecutionPlan, call: m.KernelCall, name: str) -> bool:
    """Check that a call has the arguments of such a copy. A file may contain anything."""
    kinds = [type(plan.values[index]) for index in call.args]
    sizes = [m.IntList] if name == _VIEW_COPY else kinds[1:-2]
    return kinds == [m.Tensor, *sizes, m.Tensor, m.Tensor] and call.args[-2] == call.args[-1]


@dataclass(slots=True)
class _Group:
    """Facts about the bytes of one storage, or of several merged ones."""

    start: int
    end: int
    writes: tuple[int, ...]
    """Instants, in order."""


@dataclass(slots=True)
class _Views:
    method: Method
    merged: bool
    plan: m.ExecutionPlan = field(init=False)
    memory: MethodMemory = field(init=False)
    decisions: list[Elision] = field(default_factory=list)
    _groups: list[_Group] = field(init=False)
    _group: dict[int, list[int]] = field(init=False)
    """Value → groups that it may be in, before any change."""
    _merged: dict[int, list[int]] = field(default_factory=dict)
    """Removed group → groups that now hold its values."""
    _members: dict[int, set[int]] = field(init=False)
    """Group → values that have their address in it."""
    _members_apart: dict[int, set[int]] = field(init=False)
    """Group → those of them that the caller leaves on devices."""
    _values: dict[int, m.Value] = field(default_factory=dict)
    """Changed values."""
    _new_values: list[m.Value] = field(default_factory=list)
    _views: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Position → arguments of the ``et_view`` that replaces the copy there."""
    _removed: set[int] = field(default_factory=set)
    _roving: set[int] = field(init=False)
    """Values whose address is known at run time only."""
    _instead: dict[int, int] = field(default_factory=dict)
    """Value → value that its users use instead."""
    _freed: dict[int, list[int]] = field(init=False)
    """Value → positions of the instructions that free it."""
    _origins: set[int] = field(init=False)
    """Values that moves and views make others refer to."""
    _writers: Writers = field(init=False)
    _inputs: frozenset[int] = field(init=False)
    """Inputs of the method."""
    _method_outputs: Counter[int] = field(init=False)
    """Outputs of the method."""
    _outputs: Counter[int] = field(init=False)
    """Outputs of the method, with all decisions applied."""

    def __post_init__(self) -> None:
        self.plan, self.memory = self.method.plan, self.method.memory
        self._groups = [_Group(item.start, item.end, item.writes) for item in self.memory.storages]
        self._group = {value: [index] for value, index in self.memory.of.items()}
        self._members = {index: set(item.values) for index, item in enumerate(self.memory.storages)}
        self._members_apart = {index: values & self.method.apart for index, values in self._members.items()}
        found = self.memory.reaching
        self._roving = set(found.references)
        for value in found.references:
            self._group[value] = []
        for use in found.uses:
            if use.value in found.references and self.memory.of[use.place] not in self._group[use.value]:
                self._group[use.value].append(self.memory.of[use.place])
        self._freed = frees(found.flow.instructions)
        self._origins = {pair[0] for effect in found.effects for pair in (effect.view, effect.move) if pair}
        self._writers = Writers(found, self.memory.of)
        self._outputs = Counter(self.plan.outputs)
        self._method_outputs = self._outputs.copy()
        self._inputs = frozenset(self.plan.inputs)

    def consider(self, position: int, call: m.KernelCall, name: str) -> None:
        """Decide about one copy."""
        (out,) = outputs(self.plan, call.args)
        of = self._instead.get(call.args[0], call.args[0])
        tensor = self._tensor(out)
        try:
            self._require_own(position, out)
            self._require_kept(position, of, out)
            action = self._elide(position, call, name, of, out)
        except Refused as reason:
            self.decisions.append(Elision(position, name, "kept", tensor.nbytes, str(reason)))
        else:
            self.decisions.append(Elision(position, name, action, tensor.nbytes))

    def result(self) -> Changed:
        """Return the method with all decisions applied."""
        values = [self._values.get(index, value) for index, value in enumerate(self.plan.values)]
        plan = replace(self.plan, values=(*values, *self._new_values))
        changed: dict[int, tuple[m.Instruction, ...]] = dict.fromkeys(self._removed, ())
        if self._views:
            plan, view = with_operator(plan, ET_VIEW, "default")
            changed.update((position, (m.KernelCall(view, args),)) for position, args in self._views.items())
        plan, moved = with_instructions(plan, changed)
        if self._instead:
            plan = renumbered(plan, range(len(plan.values)), lambda value: self._instead.get(value, value))
        return Changed(replace(self.method, plan=plan), moved, self.decisions)

    # Conditions

    def _require_own(self, position: int, out: int) -> None:
        """Raise an error unless the output and its bytes are written only here."""
        if not self._tensor(out).nbytes:
            raise Refused("it copies nothing")
        if out not in self.memory.of:
            raise Refused("the memory of its output is not planned")
        if self._writers.of(out) != [position]:
            raise Refused("its output is written elsewhere too")
        for index in self._lies_in(out):
            if self._groups[index].writes != (position + 1,):
                raise Refused("its output shares bytes with others that are written")
            if self.memory.storages[index].persistent:
                raise Refused("its output is state")
            if self._groups[index].start < position + 1:
                raise Refused("its output is used in the next round of a loop")

    def _require_kept(self, position: int, of: int, out: int) -> None:
        """Raise an error if the input may be written while the output is in use."""
        lies, own = self._lies_in(of), self._lies_in(out)
        if set(lies) & set(own):
            raise Refused("its input may be what its output was before")
        if len(lies) > 1 and not self.merged:
            raise Refused("all that its input may be would be in use for longer")
        use_end = max([position + 1, *(self._groups[index].end for index in own)])
        rewritten = any(any_between(self._groups[index].writes, position + 1, use_end) for index in lies)
        if rewritten or self._is_written_elsewhere(of, position, use_end - 1):
            raise Refused("its input is written again while its output is in use")

    def _is_written_elsewhere(self, of: int, after: int, before: int) -> bool:
        """Return whether the input may be written or set between two positions, other than by writes of its groups.

        Its memory is then not planned, or not always the same.
        """
        if of in self._roving:
            return self._writers.any_roving(after, before, unplanned=True)
        if of in self.memory.of:
            return False
        return any_between(self._writers.of(of), after, before) or self._writers.any_roving(
            after, before, unplanned=False
        )

    def _apart_around(self, of: int, out: int) -> frozenset[int]:
        """Return the tensors in the bytes of these two that the caller leaves on devices."""
        groups = {*self._lies_in(of), *self._lies_in(out)}
        return (self.method.apart & {of, out}).union(*(self._members_apart[index] for index in groups))

    def _require_same_shape(self, of: int, out: int) -> None:
        """Raise an error if a tensor that the caller has on a device cannot share its bytes.

        Its memory on the device cannot hold a tensor of another shape, or another input or output on a device.
        """
        ends = self._apart_around(of, out)
        source, target = self._tensor(of), self._tensor(out)
        same = (source.sizes, source.dim_order) == (target.sizes, target.dim_order)
        pointed_to = self._origins.intersection((out, *self._aliases(out)))
        if len(ends) > 1 or (ends and (not same or pointed_to)):
            raise Refused(_LEFT)

    # Ways to remove a copy, best first

    def _elide(self, position: int, call: m.KernelCall, name: str, of: int, out: int) -> Action:
        source, target = self._tensor(of), self._tensor(out)
        if source.scalar_type is not target.scalar_type:
            raise Refused("its output has another element type")
        self._require_same_shape(of, out)
        plain = _is_plain(source) and _is_plain(target)
        if not plain and (source.sizes, source.dim_order) != (target.sizes, target.dim_order):
            raise Refused("its dimensions are in another order in memory")
        from_static, to_static = _is_static(source), _is_static(target)
        if to_static and source.nbytes != target.nbytes:
            raise Refused("its output has another size")
        fixed = from_static and to_static and of not in self._roving
        if fixed and source.is_constant and not source.is_external:
            return self._as_constant(position, out, source)
        if fixed and source.allocation_info is not None and out in self.memory.of and out not in self._roving:
            if position in self.method.copies and self._may_stand_for(position, of, out):
                self._replace(out, of)
            return self._as_alias(position, of, out)
        # A static output of a dynamic input fixes the sizes, which its readers rely on.
        if name in _KEEPS_SHAPE and (from_static or not to_static) and self._may_stand_for(position, of, out):
            return self._as_same(position, of, out)
        return self._as_view(position, call, name, of, out)

    def _as_constant(self, position: int, out: int, source: m.Tensor) -> Action:
        if self._method_outputs[out]:
            raise Refused("its output is an output of the method, its input a constant")
        self._require_no_aliases(out)
        self._values[out] = replace(
            self._tensor(out), data_buffer_idx=source.data_buffer_idx, allocation_info=None, extra_tensor_info=None
        )
        self._removed.update((position, *self._freed.get(out, ())))
        self._merge(out, ())
        return "constant"

    def _as_alias(self, position: int, of: int, out: int) -> Action:
        source, target = self._address(of), self._address(out)
        end = target.memory_offset + self._tensor(out).nbytes
        followers = [out, *self._aliases(out)]
        for value in followers:
            begin = self._address(value).memory_offset
            if not target.memory_offset <= begin <= begin + self._tensor(value).nbytes <= end:
                raise Refused("its output is a part of another tensor")
        for value in followers:
            offset = source.memory_offset + self._address(value).memory_offset - target.memory_offset
            self._values[value] = replace(
                self._tensor(value), allocation_info=m.AllocationDetails(source.memory_id, offset)
            )
        self._removed.add(position)
        for index in self._lies_in(of):
            self._members[index].update(followers)
            self._members_apart[index].update(self.method.apart.intersection(followers))
        self._merge(out, self._lies_in(of))
        return "alias"

    def _as_same(self, position: int, of: int, out: int) -> Action:
        self._require_no_aliases(out)
        self._replace(out, of)
        self._removed.add(position)
        self._merge(out, self._lies_in(of))
        return "same value"

    def _as_view(self, position: int, call: m.KernelCall, name: str, of: int, out: int) -> Action:
        self._require_no_aliases(out)
        if self._apart_around(of, out):
            raise Refused(_LEFT)
        if name == _VIEW_COPY:
            sizes = call.args[1]
        elif _is_static(self._tensor(out)):
            sizes = self._sizes(self._tensor(out).sizes)
        else:
            raise Refused("its sizes are known at run time only")
        self._views[position] = (of, sizes, out)
        self._roving.add(out)
        self._writers.add_view(position)
        self._merge(out, self._lies_in(of))
        return "view"

    def _may_stand_for(self, position: int, of: int, out: int) -> bool:
        """Return whether all users of ``out`` can use ``of``.

        A caller distinguishes outputs by tensor. A list needs its items before it in the value table.
        """
        if of in self._roving or out in self._roving or of > out or not self._freed.keys().isdisjoint((of, out)):
            return False
        if self._writers.may_follow(of, position):
            return False  # The input would get another size; the copy keeps the earlier one.
        return not self._method_outputs[out] or not (
            of in self._inputs or self._outputs[of] or self._tensor(of).is_constant
        )

    def _replace(self, out: int, of: int) -> None:
        """Let all users of ``out`` use ``of``."""
        self._instead[out] = of
        count = self._method_outputs[out]
        self._outputs[out] -= count
        self._outputs[of] += count

    def _aliases(self, out: int) -> list[int]:
        """Return other values with their address in the bytes that only this value's copy writes."""
        return sorted({value for index in self._lies_in(out) for value in self._members[index]} - {out})

    def _require_no_aliases(self, out: int) -> None:
        if self._aliases(out):
            raise Refused("its output has aliases at fixed addresses")

    def _address(self, value: int) -> m.AllocationDetails:
        place = self._tensor(value).allocation_info
        assert place is not None
        return place

    def _lies_in(self, value: int) -> list[int]:
        """Return the groups that a value may be in."""
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
        """Merge the groups of ``out`` into other groups, whose lifetimes grow to cover those of ``out``."""
        for index in self._lies_in(out):
            for other in groups:
                self._groups[other].end = max(self._groups[other].end, self._groups[index].end)
            self._merged[index] = list(groups)

    def _sizes(self, sizes: Iterable[int]) -> int:
        """Add a list of constant sizes; return its value index."""
        first = len(self.plan.values) + len(self._new_values)
        numbers = [m.Int(size) for size in sizes]
        self._new_values += [*numbers, m.IntList(tuple(range(first, first + len(numbers))))]
        return first + len(numbers)

    def _tensor(self, index: int) -> m.Tensor:
        tensor = self._values.get(index, self.plan.values[index])
        assert isinstance(tensor, m.Tensor)
        return tensor


def _is_static(tensor: m.Tensor) -> bool:
    """Return whether the sizes of a tensor never change."""
    return tensor.shape_dynamism is m.TensorShapeDynamism.STATIC


def _is_plain(tensor: m.Tensor) -> bool:
    """Return whether the dimensions of a tensor are in order in memory."""
    return tensor.dim_order == tuple(range(len(tensor.sizes)))
