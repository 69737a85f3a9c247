"""Facts about a method that are known before execution: locations of tensors, and effects of instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from etdev.program import model as m
from etdev.validator.semantics import operators as ops
from etdev.validator.semantics.operators import Act

CONSTANT = 0
"""Space that represents all constants. The start of a place in this space is the value index of the constant."""
UNLIMITED = 1 << 62
"""Size in bytes of a tensor without an upper bound."""

Place: TypeAlias = tuple[int, int]
"""Location of a tensor, as ``(space, start)`` with ``start`` in bytes.

A *space* is a separate range of addresses. A space from 1 on is a planned buffer. A space below 0 is memory of the
caller or of a single tensor. Space 0 is :data:`CONSTANT`.
"""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """Facts that the file states about a tensor."""

    value: int
    kind: tuple[object, ...]
    """Element type and order of dimensions in memory. The order is None if it is the default order."""
    sizes: tuple[int, ...]
    """Sizes in elements. For a dynamic tensor, these are upper bounds."""
    itemsize: int
    nbytes: int
    """Number of bytes at the largest sizes."""
    dynamic: bool
    plain: bool
    """True if the dimensions are in default order in memory."""
    place: Place | None
    """Initial location, or None if the file states no address."""
    planned: bool

    @property
    def end(self) -> int:
        """Return the end byte of the tensor in its space, exclusive."""
        assert self.place is not None
        return self.place[1] + self.nbytes


@dataclass(frozen=True, slots=True)
class Clash:
    """An operand and an output of an instruction, or two outputs, that may share bytes."""

    operand: int
    """Value index of the operand."""
    argument: int
    """Position of the argument that is, or contains, the operand. -1 if ``operand`` is an output."""
    out: int
    """Value index of the output."""
    output: int
    """Index of the output, from 0."""


@dataclass(frozen=True, slots=True)
class Code:
    """An instruction, and the values that it reads, writes and changes."""

    position: int
    act: Act
    name: str
    """Name of the operator, such as ``aten::add.out``. For a delegate call, the delegate's id."""
    reads: tuple[int, ...] = ()
    """Value indices of the operands."""
    writes: tuple[int, ...] = ()
    """Value indices of the outputs. Most kinds of instructions write all bytes of their outputs."""
    updates: tuple[int, ...] = ()
    """Value indices of the other tensors whose bytes the instruction changes."""
    sets: tuple[int, ...] = ()
    """Value indices of the numbers that the instruction sets."""
    pure: bool = True
    """True if equal operands lead to equal results, and the instruction has no other effects."""
    call: m.Instruction | None = None
    clashes: tuple[Clash, ...] = ()

    @property
    def args(self) -> tuple[int, ...]:
        """Return the value indices of all arguments."""
        return self.call.args if isinstance(self.call, m.KernelCall | m.DelegateCall) else ()


@dataclass(slots=True)
class Facts:
    """Facts about a method, either before or after the link."""

    side: int
    """0 for the program before the link, 1 for the program after the link."""
    program: m.Program
    plan: m.ExecutionPlan
    delegate_inputs: Mapping[int, int]
    constants: Mapping[int, tuple[int, int]]
    """Maps the value index of a constant to ``(symbol of its data, offset of the constant in the data in bytes)``."""
    tensors: dict[int, TensorFacts] = field(init=False)
    code: tuple[Code, ...] = field(init=False)
    roving: frozenset[int] = field(init=False)
    """Values without a fixed location: all values in ``moved`` and ``viewed``."""
    moved: frozenset[int] = field(init=False)
    """Values that a ``MoveCall`` sets."""
    viewed: frozenset[int] = field(init=False)
    """Tensors that an ``et_view`` redirects to the bytes of another tensor."""
    variable: frozenset[int] = field(init=False)
    """Numbers that instructions set."""
    starts: tuple[int, ...] = field(init=False)
    """Position of the first instruction of each chain, then the total number of instructions."""

    _ends: dict[int, int] = field(init=False)
    """Maps the value index of an input or output to the space that represents the caller's memory for it."""

    def __post_init__(self) -> None:
        self._ends = {}
        for kind, indices in enumerate((self.plan.inputs, self.plan.outputs)):
            for number, index in enumerate(indices):
                self._ends.setdefault(index, -1 - 3 * number - kind)
        self.tensors = {index: self._tensor(index, tensor) for index, tensor in self.plan.tensors()}
        calls = self.plan.instructions
        code = [self._decode(position, call) for position, call in enumerate(calls)]
        self.moved = frozenset(call.move_to for call in calls if isinstance(call, m.MoveCall))
        views = {value for item in code if item.act is Act.VIEW for value in item.writes}
        if views & self.moved:  # The view changes the tensor that the value refers to then.
            views.update(call.move_from for call in calls if isinstance(call, m.MoveCall))
        self.viewed = frozenset(views)
        self.roving = self.moved | self.viewed
        self.variable = frozenset(
            value for item in code for value in item.sets if not isinstance(self.plan.values[value], m.Tensor)
        ) | frozenset(value for value in self.moved if value not in self.tensors)
        self.code = tuple(self._with_clashes(item) for item in code)
        starts = [0]
        for chain in self.plan.chains:
            starts.append(starts[-1] + len(chain.instructions))
        self.starts = tuple(starts)

    # Tensors

    def _tensor(self, index: int, tensor: m.Tensor) -> TensorFacts:
        unbounded = tensor.shape_dynamism is m.TensorShapeDynamism.DYNAMIC_UNBOUND
        return TensorFacts(
            value=index,
            kind=(tensor.scalar_type, None if tensor.is_in_order else tensor.dim_order),
            sizes=tensor.sizes,
            itemsize=tensor.scalar_type.itemsize,
            nbytes=UNLIMITED if unbounded else tensor.nbytes,
            dynamic=not tensor.is_static,
            plain=tensor.is_in_order,
            place=self._place(index, tensor, unbounded),
            planned=tensor.allocation_info is not None,
        )

    def _place(self, index: int, tensor: m.Tensor, unbounded: bool) -> Place | None:
        if index in self.constants:
            return CONSTANT, index
        if tensor.allocation_info is not None and not unbounded:
            return tensor.allocation_info.memory_id, tensor.allocation_info.memory_offset
        if index in self._ends:
            return self._ends[index], 0
        return (-3 - 3 * index, 0) if unbounded else None

    def list_tensors(self, values: Iterable[int]) -> Iterator[int]:
        """Yield the tensors among these values. For a list of tensors, yield the tensors in the list."""
        for index in values:
            value = self.plan.values[index]
            if isinstance(value, m.Tensor):
                yield index
            elif isinstance(value, m.TensorList | m.OptionalTensorList):
                yield from (item for item in value.items if item >= 0 and item in self.tensors)

    def dims(self, value: int) -> tuple[int, ...] | None:
        """Return the sizes of a static tensor, or None for a dynamic tensor."""
        tensor = self.tensors[value]
        return None if tensor.dynamic else tensor.sizes

    # Instructions

    def _decode(self, position: int, call: m.Instruction) -> Code:
        match call:
            case m.KernelCall():
                return self._kernel(position, call)
            case m.DelegateCall():
                return self._delegate(position, call)
            case m.MoveCall():
                return Code(position, Act.MOVE, "MoveCall", call=call)
            case m.JumpFalseCall():
                return Code(position, Act.JUMP, "JumpFalseCall", (call.cond_value_index,), call=call)
            case m.FreeCall():
                return Code(position, Act.FREE, "FreeCall", call=call)

    def _delegate(self, position: int, call: m.DelegateCall) -> Code:
        name = self.plan.delegates[call.delegate_index].id
        count = self.delegate_inputs.get(position)
        if count is None:
            return self._unknown(position, name, call, call.args, ())
        outs = tuple(self.list_tensors(call.args[count:]))
        numbers = tuple(value for value in call.args[count:] if self._is_number(value))
        return Code(position, Act.DELEGATE, name, call.args[:count], outs, sets=numbers, pure=False, call=call)

    def _kernel(self, position: int, call: m.KernelCall) -> Code:
        operator = self.plan.operators[call.op_index]
        name = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
        namespace = operator.name.partition("::")[0]
        if namespace == ops.PRIM:
            return self._prim(position, name, call)
        args, outs = self._split(call.args)
        if namespace not in ops.NAMESPACES:
            return self._unknown(position, name, call, args, outs)
        if name in ops.SIZES:
            return Code(position, Act.SIZE, name, call.args[:-1], sets=call.args[-1:], call=call)
        if name == ops.SCALAR:
            return Code(position, Act.NUMBER, name, call.args[:-1], sets=call.args[-1:], call=call)
        if operator.name.endswith("_") and not operator.name.endswith("__"):
            return self._in_place(position, name, call)
        if not outs:
            return self._unknown(position, name, call, call.args, ())
        if name == ops.EMPTY:
            return Code(position, Act.RESIZE, name, args, outs, call=call)
        scratch = ops.OVERWRITTEN.get(name, ())
        if scratch:
            overwritten = [args[item] for item in scratch if item < len(args)]
            outs = (*outs, *(value for value in self.list_tensors(overwritten) if value not in outs))
            args = tuple(value for item, value in enumerate(args) if item not in scratch)
        changed = (args[item] for item in ops.ALSO_CHANGED.get(name, ()) if item < len(args))
        pure = not ops.is_random(name)
        return Code(position, Act.COMPUTE, name, args, outs, tuple(self.list_tensors(changed)), (), pure, call)

    def _prim(self, position: int, name: str, call: m.KernelCall) -> Code:
        kinds = [isinstance(self.plan.values[value], m.Tensor) for value in call.args]
        if name == ops.ET_VIEW and len(kinds) == 3 and kinds[0] and kinds[2]:
            return Code(position, Act.VIEW, name, call.args[:2], call.args[2:], call=call)
        adds_row = name == ops.COPY_INDEX and len(kinds) >= 3 and all(kinds[:2])
        if adds_row and not self._begins_later(call.args[2]):
            return Code(position, Act.ADD_ROW, name, call.args[1:3], call.args[:1], call=call)
        if call.args and not any(kinds):
            return Code(position, Act.NUMBER, name, call.args[:-1], sets=call.args[-1:], call=call)
        return self._unknown(position, name, call, call.args, ())

    def _begins_later(self, index: int) -> bool:
        """Return whether a loop that counts its rows with this number keeps the first rows.

        Loops set the number after each row, and reset it at their end.
        """
        value = self.plan.values[index]
        return isinstance(value, m.Int) and value.int_val != 0

    def _in_place(self, position: int, name: str, call: m.KernelCall) -> Code:
        args = call.args
        if len(args) < 2 or args[0] != args[-1] or args[0] not in self.tensors:
            return self._unknown(position, name, call, args, ())
        if name == ops.COPY:
            return Code(position, Act.COMPUTE, name, args[1:-1], args[:1], call=call)
        return Code(position, Act.UPDATE, name, args[:-1], (), args[:1], (), not ops.is_random(name), call)

    def _unknown(self, position: int, name: str, call: m.Instruction, args: Sequence[int], outs: Sequence[int]) -> Code:
        """Decode a call of an unknown operator.

        The call may change every tensor and number among its arguments. It is assumed to write all bytes of its
        outputs.
        """
        changed = tuple(dict.fromkeys(self.list_tensors(args)))
        numbers = tuple(value for value in args if self._is_number(value))
        writes = tuple(value for value in outs if value not in changed)
        return Code(position, Act.UNKNOWN, name, tuple(args), writes, changed, numbers, pure=False, call=call)

    def _is_number(self, value: int) -> bool:
        return isinstance(self.plan.values[value], m.Int | m.Bool | m.Double)

    def _split(self, args: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split the arguments of a kernel call into the arguments before its outputs, and the outputs.

        A kernel call ends with its outputs, listed twice: as ``out`` arguments, and as results.
        """
        if len(args) < 2:
            return args, ()
        last, before = self.plan.values[args[-1]], self.plan.values[args[-2]]
        if isinstance(last, m.Tensor):
            return (args[:-2], args[-1:]) if args[-2] == args[-1] else (args, ())
        if isinstance(last, m.TensorList):
            if isinstance(before, m.TensorList) and before.items == last.items:
                return args[:-2], last.items
            count = len(last.items)
            if count and args[-1 - count : -1] == last.items:
                return args[: -1 - count], last.items
        return args, ()

    # Sharing bytes

    def _with_clashes(self, code: Code) -> Code:
        if code.act not in (Act.COMPUTE, Act.UPDATE, Act.DELEGATE, Act.ADD_ROW, Act.UNKNOWN):
            return code
        found = tuple(clash for clash in self._pairs(code) if self._may_share(clash.operand, clash.out))
        return replace(code, clashes=found) if found else code

    def _pairs(self, code: Code) -> Iterator[Clash]:
        outs = (*code.writes, *(value for value in code.updates if value not in code.writes))
        for output, out in enumerate(outs):
            # An unknown operator may change all that it reads, so its updates cover its operands.
            for argument, value in enumerate(code.reads if code.act is not Act.UNKNOWN else ()):
                if out in code.updates and value == out and (code.act is Act.COMPUTE or argument == 0):
                    continue  # Not a second tensor: this is the one that the instruction changes.
                for tensor in self.list_tensors((value,)):
                    yield Clash(tensor, argument, out, output)
            for other in outs[:output]:
                yield Clash(other, -1, out, output)

    def _may_share(self, one: int, other: int) -> bool:
        if one in self.roving or other in self.roving:
            return True
        return share(self.tensors[one], self.tensors[one].place, self.tensors[other], self.tensors[other].place)


def share(one: TensorFacts, at: Place | None, other: TensorFacts, other_at: Place | None) -> bool:
    """Return whether two tensors at these places can overlap. Each tensor counts at its largest size."""
    if at is None or other_at is None or at[0] != other_at[0] or at[0] == CONSTANT:
        return False
    return at[1] < other_at[1] + other.nbytes and other_at[1] < at[1] + one.nbytes
