"""Dependencies between the instructions of a straight region: the pairs whose order matters.

The order of two instructions matters if both access the same thing, and at least one of them writes it. The linker
considers these things:

1. bytes of planned memory: tensors that share bytes before the link, or after a link in the present order, count as the
   same bytes, so that a new order lets them share these bytes too;
2. each value: a number, or the sizes and the pointer of a tensor;
3. memory that the linker does not plan, including all tensors whose address is known only at run time, and the host's
   memory of inputs and outputs that the caller keeps on devices (this counts as one thing, because the caller may pass
   the same memory twice);
4. all tensors that are the source or the target of a move (they count as one thing);
5. effects outside of the arguments, such as random numbers, state of a delegate, or an unknown operator's effects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeAlias

from etdev.linker.work import Method
from etdev.program import model as m
from etdev.program.analysis.effects import COPY_INDEX, ET_VIEW, OUT_NAMESPACES, Effects, outputs
from etdev.program.analysis.storage import MethodMemory
from etdev.program.delegates import STATELESS, arguments_of

_UNPLANNED = "unplanned memory"
_MOVED = "tensors that moves refer to"
_EFFECTS = "effects"
_RANDOM = frozenset(
    f"aten::{name}"
    for name in (
        "_cudnn_init_dropout_state",
        "_cudnn_rnn",
        "_fill_mem_eff_dropout_mask",
        "_flash_attention_forward_no_dropout_inplace",
        "_fused_dropout",
        "_lstm_mps",
        "_sample_dirichlet",
        "_standard_gamma",
        "_triton_scaled_dot_attention",
        "alpha_dropout",
        "bernoulli",
        "binomial",
        "cauchy",
        "dropout",
        "exponential",
        "feature_alpha_dropout",
        "feature_dropout",
        "geometric",
        "log_normal",
        "miopen_rnn",
        "multinomial",
        "native_dropout",
        "normal",
        "poisson",
        "rand",
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "random",
        "randperm",
        "rrelu",
        "rrelu_with_noise",
        "uniform",
    )
)
"""Operators with random results. Names of operators that work in place are listed without their final underscore."""
_NUMBERS = m.Int | m.Bool | m.Double
_NUMBERS_ONLY = frozenset({"aten::sym_size", "aten::sym_numel", "aten::sym_stride", "aten::_local_scalar_dense"})
"""Operators whose only result is a number."""

Span: TypeAlias = tuple[int, int]
"""Range of bytes, as ``(first byte, end byte)``; the end is exclusive. A number has the range ``(0, 1)``."""
_WHOLE: Span = (0, 1)


_Access: TypeAlias = tuple[Hashable, Span]
"""A key for an accessed thing, and the accessed bytes. The module's description lists the kinds of things."""


class Hazards:
    """Accesses of all instructions of a method."""

    def __init__(self, method: Method, linked: MethodMemory) -> None:
        """Collect the accesses. ``linked`` has the storages after a link of the method in its present order."""
        self._plan, self._reaching = method.plan, method.memory.reaching
        self._memories = (method.memory, linked)
        self._reads: dict[int, list[int]] = defaultdict(list)
        """Maps the position of an instruction to the values at whose addresses the instruction reads."""
        self._writes: dict[int, list[int]] = defaultdict(list)
        for use in self._reaching.uses:
            self._reads[use.position].append(use.place)
        for write in self._reaching.writes:
            self._writes[write.position].append(write.place)
        self._unplanned: dict[int, list[int]] = defaultdict(list)
        for position, value in self._reaching.elsewhere:
            self._unplanned[position].append(value)
        self._elsewhere = self._reaching.references | method.caller_device_values
        self._moved = {
            value
            for call in self._reaching.flow.instructions
            if isinstance(call, m.MoveCall)
            for value in (call.move_from, call.move_to)
            if isinstance(self._plan.values[value], m.Tensor)
        }
        flow = zip(self._reaching.flow.instructions, self._reaching.effects, strict=True)
        self._variable = {value for call, effects in flow for value in self._written(call, effects)}
        """Values that some instruction sets or resizes. All other values never change."""

    def before(self, start: int, end: int) -> tuple[tuple[int, ...], ...]:
        """For each instruction in ``range(start, end)``, return the instructions that must run before it.

        In the result, the instruction at ``start`` has the number 0. Instructions before ``start`` are left out.
        """
        history: dict[Hashable, _History] = defaultdict(_History)
        found = []
        for step, position in enumerate(range(start, end)):
            earlier: set[int] = set()
            reads, writes = self._accesses(position)
            for thing, span in reads:
                history[thing].read(span, step, earlier)
            for thing, span in writes:
                history[thing].write(span, step, earlier)
            earlier.discard(step)
            found.append(tuple(sorted(earlier)))
        return tuple(found)

    def _accesses(self, position: int) -> tuple[set[_Access], set[_Access]]:
        """Return the reads and the writes of an instruction."""
        call, effects = self._reaching.flow.instructions[position], self._reaching.effects[position]
        reads = set(self._in_memory(self._reads.get(position, ())))
        writes = set(self._in_memory(self._writes.get(position, ())))
        written = set(self._written(call, effects))
        values = {*self._expanded(arguments_of(call)), *written} & self._variable
        reads.update((value, _WHOLE) for value in values)
        writes.update((value, _WHOLE) for value in written)
        if values & self._moved:
            (writes if written & self._moved else reads).add((_MOVED, _WHOLE))
        references = self._elsewhere.intersection(effects.reads)
        if references or any(not self._is_constant(value) for value in self._unplanned.get(position, ())):
            reads.add((_UNPLANNED, _WHOLE))
        tensors = (*effects.writes, *effects.updates, *effects.fills)
        if any(value not in self._reaching.places or value in self._elsewhere for value in tensors):
            writes.add((_UNPLANNED, _WHOLE))
        effect = self._effect(call)
        if effect is not None:
            writes.add((effect, _WHOLE))
        return reads, writes

    def _in_memory(self, places: Iterable[int]) -> Iterator[_Access]:
        for place in places:
            for number, memory in enumerate(self._memories):
                found = memory.reaching.places.get(place)
                if found is not None:
                    yield (number, memory.of[place]), (found.start, found.end)

    def _written(self, call: m.Instruction, effects: Effects) -> Iterator[int]:
        """Yield the values that an instruction sets or resizes."""
        yield from (*effects.writes, *effects.updates, *effects.fills, *self._numbers_set(call))
        if effects.view:
            yield effects.view[1]
        if isinstance(call, m.FreeCall):
            yield call.value_index

    def _expanded(self, values: Iterable[int]) -> Iterator[int]:
        """Yield the values, and the items of values that are lists."""
        for value in values:
            if value >= 0:
                yield value
                found = self._plan.values[value]
                if isinstance(found, m.IntList | m.TensorList | m.OptionalTensorList):
                    yield from (item for item in found.items if item >= 0)

    def _numbers_set(self, call: m.Instruction) -> Iterator[int]:
        """Yield the numbers that an instruction may set."""
        args: tuple[int, ...] = ()
        if isinstance(call, m.DelegateCall):
            args = call.args
        elif isinstance(call, m.KernelCall):
            namespace = self._plan.operators[call.op_index].name.partition("::")[0]
            known = namespace in OUT_NAMESPACES or namespace == "executorch_prim"
            args = call.args[-1:] if known else call.args
        yield from (value for value in args if isinstance(self._plan.values[value], _NUMBERS))

    def _is_constant(self, value: int) -> bool:
        tensor = self._plan.values[value]
        return isinstance(tensor, m.Tensor) and tensor.is_constant and value not in self._reaching.references

    def _effect(self, call: m.Instruction) -> Hashable | None:
        """Return a key for an instruction's effects outside of its arguments; None if it has no such effects.

        Instructions with the same key keep their order.
        """
        if isinstance(call, m.DelegateCall):
            known = self._plan.delegates[call.delegate_index].id in STATELESS
            return (_EFFECTS, call.delegate_index) if known else _EFFECTS
        if not isinstance(call, m.KernelCall):
            return None
        name = self._plan.operators[call.op_index].name
        namespace = name.partition("::")[0]
        if namespace == "executorch_prim":
            tensors = any(isinstance(self._plan.values[value], m.Tensor) for value in call.args if value >= 0)
            return _EFFECTS if name == COPY_INDEX or (tensors and name != ET_VIEW) else None
        in_place = name.endswith("_") and len(call.args) > 1 and call.args[0] == call.args[-1]
        writes_known = in_place or name in _NUMBERS_ONLY or outputs(self._plan, call.args)
        return (
            None if namespace in OUT_NAMESPACES and name.removesuffix("_") not in _RANDOM and writes_known else _EFFECTS
        )


class _History:
    """Accesses so far to one of the things that the module's description lists."""

    def __init__(self) -> None:
        self._reads: list[tuple[Span, int]] = []
        self._writes: list[tuple[Span, int]] = []

    def read(self, span: Span, step: int, earlier: set[int]) -> None:
        """Record a read by ``step``. Extend ``earlier`` by the steps that must come before this read."""
        earlier.update(other for found, other in self._writes if _overlap(found, span))
        self._reads.append((span, step))

    def write(self, span: Span, step: int, earlier: set[int]) -> None:
        """Record a write by ``step``. Extend ``earlier`` by the steps that must come before this write.

        Forget earlier accesses to the written bytes. Later accesses to these bytes come after the write anyway.
        """
        for accesses in (self._reads, self._writes):
            earlier.update(other for found, other in accesses if _overlap(found, span))
            accesses[:] = [item for item in accesses if item[1] == step or not _inside(item[0], span)]
        self._writes.append((span, step))


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _inside(one: Span, other: Span) -> bool:
    return other[0] <= one[0] and one[1] <= other[1]
