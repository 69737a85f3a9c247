"""Programs with mistakes: each mutation knows the structure of a program, and changes it in an odd way.

Unlike random bytes, most of these files can be decoded. Many pass the reader, too: their calls match the signatures,
but make no sense.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from etdev.devices import TARGET_DEVICE
from etdev.program import model as m
from etdev.program.signature_table import SIGNATURES
from etdev.program.signatures import RunTimeNumber, find_signature

_T = TypeVar("_T")

_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 100, -1, -2, -3, -100, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))
_SIZES = (0, 1, 2, 3, 4, 6, 8, 16, 64, 1 << 20, -1)
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e300, float("inf"), float("nan"))
_OPERATORS = tuple(line.partition("(")[0] for line in SIGNATURES.strip().splitlines())
_DEVICES = (b"cpu", b"cuda:0", b"cuda:1", b"cuda:9999", b"gpu", b"")


_NAMES = (
    *("", "\n", "\x1b[2J", "a\x00b", "\x7f", "\x85", "\u202e", "\u2028", "\r\n error: ", "x" * 4000),
    *("</script><b>", "../../x"),
)
"""Names that a terminal, a page or a file system could misunderstand."""


def mutated(program: m.Program, chance: random.Random, most: int = 3) -> m.Program:
    """Return the program with one to three changes, but at most ``most`` of them."""
    for _ in range(min(chance.choice((1, 1, 1, 2, 3)), most)):
        if not chance.randrange(12):
            program = chance.choice((_renamed, _other_data))(program, chance)
            continue
        index = chance.randrange(len(program.execution_plan))
        plan = _Draft(program.execution_plan[index], chance)
        chance.choices([kind for kind, _ in _KINDS], [weight for _, weight in _KINDS])[0](plan)
        plans = [*program.execution_plan]
        plans[index] = plan.result()
        program = replace(program, execution_plan=tuple(plans))
    return program


def _renamed(program: m.Program, chance: random.Random) -> m.Program:
    """Give one thing that has a name another name."""
    name = chance.choice(_NAMES)
    at = chance.randrange(len(program.execution_plan))
    plan = program.execution_plan[at]
    match chance.randrange(7):
        case 0:
            plan = replace(plan, name=name)
        case 1 if plan.operators:
            plan = replace(plan, operators=(*plan.operators[:-1], m.Operator(name, chance.choice(("", "out", name)))))
        case 2 if plan.delegates:
            plan = replace(plan, delegates=(replace(plan.delegates[0], id=name), *plan.delegates[1:]))
        case 3 if plan.delegates:
            spec = m.CompileSpec(name, name.encode())
            plan = replace(plan, delegates=(replace(plan.delegates[0], compile_specs=(spec,)), *plan.delegates[1:]))
        case 4 if program.named_data:
            named = replace(chance.choice(program.named_data), key=name)
            return replace(program, named_data=(*program.named_data[1:], named))
        case 5:
            plan = replace(plan, values=(*plan.values, m.String(name)))
        case _:
            tensors = [index for index, value in enumerate(plan.values) if isinstance(value, m.Tensor)]
            if not tensors:
                return program
            index = chance.choice(tensors)
            info = m.ExtraTensorInfo(fully_qualified_name=name, location=chance.choice(list(m.TensorDataLocation)))
            values = list(plan.values)
            values[index] = replace(values[index], extra_tensor_info=info)  # type: ignore[type-var]
            plan = replace(plan, values=tuple(values))
    return replace(program, execution_plan=(*program.execution_plan[:at], plan, *program.execution_plan[at + 1 :]))


def _other_data(program: m.Program, chance: random.Random) -> m.Program:
    """Change which bytes are the data of something."""
    constants, segments = program.constant_segment, len(program.segments)
    match chance.randrange(4):
        case 0 if constants is not None:
            offsets = [*constants.offsets]
            offsets.insert(chance.randint(0, len(offsets)), chance.choice((0, 1, 8, 16, 1 << 20, 1 << 62)))
            return replace(program, constant_segment=replace(constants, offsets=tuple(offsets)))
        case 1 if constants is not None:
            return replace(program, constant_segment=replace(constants, segment_index=chance.randint(0, segments)))
        case 2 if program.named_data:
            named = replace(chance.choice(program.named_data), segment_index=chance.randint(0, segments))
            return replace(program, named_data=(*program.named_data, named))
        case _:
            return replace(program, mutable_data_segments=(m.SubsegmentOffsets(chance.randint(0, segments), (0, 4)),))


class _Draft:
    """Method that is being changed."""

    def __init__(self, plan: m.ExecutionPlan, chance: random.Random) -> None:
        self.plan, self.chance = plan, chance
        self.values = list(plan.values)
        self.operators = list(plan.operators)
        self.chains = [list(chain.instructions) for chain in plan.chains]
        self.changes: dict[str, object] = {}

    def result(self) -> m.ExecutionPlan:
        """Return the method with all changes."""
        chains = tuple(
            replace(chain, instructions=tuple(calls), stacktrace=())
            for chain, calls in zip(self.plan.chains, self.chains, strict=True)
        )
        return replace(
            self.plan,
            values=tuple(self.values),
            operators=tuple(self.operators),
            chains=chains,
            **self.changes,  # type: ignore[arg-type]
        )

    # Choices

    def value(self) -> int:
        """Return a value index; rarely one out of range."""
        if not self.chance.randrange(60):
            return self.chance.choice((len(self.values), 1 << 20))
        return self.chance.randrange(len(self.values)) if self.values else 0

    def place(self) -> tuple[list[m.Instruction], int] | None:
        """Return the instructions of a chain and the position of one of them."""
        calls = self.chance.choice(self.chains)
        return (calls, self.chance.randrange(len(calls))) if calls else None

    def fitting(self, accepted: frozenset[type]) -> int:
        """Return a value of an accepted kind, old or new."""
        old = [index for index, value in enumerate(self.values) if type(value) in accepted]
        if old and self.chance.randrange(4):
            return self.chance.choice(old)
        kinds = sorted(accepted - {RunTimeNumber}, key=lambda kind: kind.__name__)
        return self.add(self.new(self.chance.choice(kinds)))

    def add(self, value: m.Value) -> int:
        """Add a value, and return its index."""
        self.values.append(value)
        return len(self.values) - 1

    def new(self, kind: type) -> m.Value:
        """Return a random value of a kind."""
        chance = self.chance
        if kind is m.Tensor:
            return self.tensor()
        if kind is m.Int:
            return m.Int(chance.choice(_INTEGERS))
        if kind is m.Bool:
            return m.Bool(chance.choice((True, False)))
        if kind is m.Double:
            return m.Double(chance.choice(_FLOATS))
        if kind is m.String:
            return m.String(chance.choice(("", "floor", "trunc", "none")))
        if kind is m.IntList:
            return m.IntList(tuple(self.fitting(frozenset({m.Int})) for _ in range(chance.randrange(5))))
        if kind is m.DoubleList:
            return m.DoubleList(tuple(chance.choices(_FLOATS, k=chance.randrange(3))))
        if kind is m.BoolList:
            return m.BoolList(tuple(chance.choices((True, False), k=chance.randrange(4))))
        if kind in (m.TensorList, m.OptionalTensorList):
            items = tuple(self.fitting(frozenset({m.Tensor})) for _ in range(chance.randrange(4)))
            absent = (-1,) if kind is m.OptionalTensorList and chance.randrange(2) else ()
            return kind((*absent, *items))
        return m.Null()

    def tensor(self) -> m.Value:
        """Return a tensor like an old one with one change, or a small one at its own place."""
        old = [value for value in self.values if isinstance(value, m.Tensor)]
        return self.changed_tensor(self.chance.choice(old)) if old else m.Tensor(m.ScalarType.FLOAT, (), ())

    def changed_tensor(self, tensor: m.Tensor) -> m.Tensor:
        """Return a tensor with one field changed."""
        chance, sizes = self.chance, list(tensor.sizes)
        changes: dict[str, object] = {}
        match chance.randrange(11):
            case 0 if sizes:
                sizes[chance.randrange(len(sizes))] = chance.choice(_SIZES)
                changes["sizes"] = tuple(sizes)
            case 1:
                sizes.insert(chance.randint(0, len(sizes)), 1)
                changes.update(sizes=tuple(sizes), dim_order=tuple(range(len(sizes))))
            case 2 if sizes:
                sizes.pop()
                changes.update(sizes=tuple(sizes), dim_order=tuple(range(len(sizes))))
            case 3:
                changes["scalar_type"] = chance.choice(list(m.ScalarType))
            case 4:
                changes["dim_order"] = tuple(chance.sample(tensor.dim_order, len(tensor.dim_order)))
            case 5 | 6:
                changes["shape_dynamism"] = chance.choice(list(m.TensorShapeDynamism))
            case 7:
                changes["data_buffer_idx"] = chance.choice((0, 1, 2, tensor.data_buffer_idx))
            case 8:
                changes["allocation_info"] = None
            case 9:
                index = chance.choice((0, 1, 127, -1, -128))
                changes["extra_tensor_info"] = m.ExtraTensorInfo(
                    device_type=chance.choice(list(m.DeviceType)), device_index=index
                )
            case _:
                place = m.AllocationDetails(chance.choice((1, 1, 1, 2)), chance.choice((0, 4, 16, 64, 256)))
                changes["allocation_info"] = place
        return replace(tensor, **changes)  # type: ignore[arg-type]

    def call(self, name: str) -> m.KernelCall:
        """Return a call of an operator whose arguments match its signature, but may make no sense."""
        signature = find_signature(name)
        assert signature is not None
        args = [self.fitting(parameter.accepts) for parameter in signature.parameters]
        if signature.returns:
            args.append(self.returned(signature.outputs, args))
        base, _, overload = name.partition(".")
        operator = m.Operator(base, overload)
        if operator not in self.operators:
            self.operators.append(operator)
        return m.KernelCall(self.operators.index(operator), tuple(args))

    def returned(self, outputs: int, args: list[int]) -> int:
        """Return the value that repeats the outputs of a call."""
        if not outputs:
            return args[0]
        if outputs > 1:
            return self.add(m.TensorList(tuple(args[-outputs:])))
        return args[-1]


# Mutations


def _other_argument(draft: _Draft) -> None:
    """Pass another value, or another number of values."""
    if (place := draft.place()) is None:
        return
    calls, at = place
    call, chance = calls[at], draft.chance
    if not isinstance(call, m.KernelCall | m.DelegateCall) or not call.args:
        return
    args = list(call.args)
    number = chance.randrange(len(args))
    match chance.randrange(6):
        case 0:
            del args[number]
        case 1:
            args.insert(number, draft.value())
        case 2:
            other = chance.randrange(len(args))
            args[number], args[other] = args[other], args[number]
        case 3 if 0 <= args[number] < len(draft.values):
            args[number] = draft.fitting(frozenset({type(draft.values[args[number]])}))
        case _:
            args[number] = draft.value()
    calls[at] = replace(call, args=tuple(args))


def _other_output(draft: _Draft) -> None:
    """Write an output elsewhere, consistently."""
    if (place := draft.place()) is None:
        return
    calls, at = place
    call = calls[at]
    if isinstance(call, m.KernelCall) and len(call.args) > 1 and call.args[-1] == call.args[-2]:
        out = draft.fitting(frozenset({m.Tensor}))
        calls[at] = replace(call, args=(*call.args[:-2], out, out))


def _new_call(draft: _Draft) -> None:
    """Insert a call of any operator, or replace an instruction by it."""
    calls = draft.chance.choice(draft.chains)
    call = draft.call(draft.chance.choice(_OPERATORS))
    at = draft.chance.randint(0, len(calls))
    calls[at : at + draft.chance.randrange(2)] = [call]


def _other_operator(draft: _Draft) -> None:
    """Name another operator."""
    if draft.operators:
        base, _, overload = draft.chance.choice((*_OPERATORS, "my::op.out", "aten::nothing.out")).partition(".")
        draft.operators[draft.chance.randrange(len(draft.operators))] = m.Operator(base, overload)


def _order(draft: _Draft) -> None:
    """Drop, repeat or move an instruction."""
    if (place := draft.place()) is None:
        return
    calls, at = place
    match draft.chance.randrange(3):
        case 0:
            del calls[at]
        case 1:
            calls.insert(draft.chance.randint(0, len(calls)), calls[at])
        case _:
            calls.insert(draft.chance.randrange(len(calls)), calls.pop(at))


def _flow(draft: _Draft) -> None:
    """Insert a jump, a move or a release, or change one."""
    chance, calls = draft.chance, draft.chance.choice(draft.chains)
    to = chance.randint(0, len(calls))
    numbers = frozenset({m.Int, m.Bool, m.Double, m.Null})
    match chance.randrange(4):
        case 0:
            call: m.Instruction = m.JumpFalseCall(draft.fitting(frozenset({m.Bool})), to)
        case 1:
            kinds = chance.choice((frozenset({m.Tensor}), numbers))
            call = m.MoveCall(draft.fitting(kinds), draft.fitting(kinds))
        case 2:
            call = m.MoveCall(draft.value(), draft.value())
        case _:
            call = m.FreeCall(draft.value())
    at = chance.randint(0, len(calls))
    calls[at : at + chance.randrange(2)] = [call]


def _other_jump(draft: _Draft) -> None:
    """Change the condition or the destination of a jump, or an end of a move."""
    for calls in draft.chains:
        jumps = [at for at, call in enumerate(calls) if isinstance(call, m.JumpFalseCall | m.MoveCall)]
        if jumps:
            at = draft.chance.choice(jumps)
            call = calls[at]
            if isinstance(call, m.JumpFalseCall):
                calls[at] = replace(call, destination_instruction=draft.chance.randint(0, len(calls)))
            elif isinstance(call, m.MoveCall):
                calls[at] = replace(call, **{draft.chance.choice(("move_from", "move_to")): draft.value()})


def _other_value(draft: _Draft) -> None:
    """Change a value without changing its kind."""
    if not draft.values:
        return
    at = draft.chance.randrange(len(draft.values))
    value = draft.values[at]
    if isinstance(value, m.Tensor):
        draft.values[at] = draft.changed_tensor(value)
    elif isinstance(value, m.IntList | m.TensorList | m.OptionalTensorList):
        draft.values[at] = replace(value, items=_other_items(draft, value.items))
    else:
        draft.values[at] = draft.new(type(value))


def _other_items(draft: _Draft, items: tuple[int, ...]) -> tuple[int, ...]:
    match draft.chance.randrange(4):
        case 0:
            return items[:-1]
        case 1:
            return (*items, *items[:1])
        case 2:
            return (*items, draft.value())
        case _:
            return tuple(draft.chance.sample(items, len(items)))


def _other_kind(draft: _Draft) -> None:
    """Replace a value by one of another kind."""
    if draft.values:
        kinds = (m.Null, m.Int, m.Bool, m.Double, m.String, m.IntList, m.TensorList, m.Tensor)
        draft.values[draft.chance.randrange(len(draft.values))] = draft.new(draft.chance.choice(kinds))


def _ends(draft: _Draft) -> None:
    """Change the inputs or outputs of the method."""
    name = draft.chance.choice(("inputs", "outputs"))
    items: Sequence[int] = getattr(draft.plan, name)
    match draft.chance.randrange(3):
        case 0:
            draft.changes[name] = tuple(items[1:])
        case 1:
            draft.changes[name] = (*items, *items[:1])
        case _:
            draft.changes[name] = (*items, draft.value())


def _memory(draft: _Draft) -> None:
    """Change the buffers, or their devices."""
    plan, chance = draft.plan, draft.chance
    if chance.randrange(2) and plan.non_const_buffer_sizes:
        sizes = list(plan.non_const_buffer_sizes)
        sizes[chance.randrange(len(sizes))] = chance.choice((0, 16, 1 << 12, 1 << 50, -1))
        draft.changes["non_const_buffer_sizes"] = tuple(sizes)
    else:
        entry = m.NonConstBufferDevice(
            chance.choice((0, 1, 1, 2)), chance.choice(list(m.DeviceType)), chance.choice((0, 1, -1, 127))
        )
        draft.changes["non_const_buffer_device"] = (*plan.non_const_buffer_device[:1], entry)


def _delegates(draft: _Draft) -> None:
    """Change the device of a delegate, or which delegate a call runs."""
    plan, chance = draft.plan, draft.chance
    if plan.delegates:
        delegates = list(plan.delegates)
        at = chance.randrange(len(delegates))
        specs = (m.CompileSpec(TARGET_DEVICE, chance.choice(_DEVICES)),)
        delegates[at] = replace(delegates[at], compile_specs=specs)
        draft.changes["delegates"] = tuple(delegates)


_KINDS: tuple[tuple[Callable[[_Draft], None], int], ...] = (
    (_other_argument, 8),
    (_other_output, 3),
    (_new_call, 8),
    (_other_operator, 3),
    (_order, 4),
    (_flow, 5),
    (_other_jump, 2),
    (_other_value, 8),
    (_other_kind, 3),
    (_ends, 3),
    (_memory, 2),
    (_delegates, 2),
)
"""Mutations with their weights."""
