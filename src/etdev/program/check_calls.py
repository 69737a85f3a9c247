"""Checks of instructions: operands exist, and kernel calls fit their operators' signatures."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cached_property

from etdev.program import model as m
from etdev.program.devices import D2H_COPY, H2D_COPY
from etdev.program.flaw import FlawError
from etdev.program.indices import check_index, check_value_indices
from etdev.program.signatures import KINDS, RunTimeNumber, Signature, find_signature, operator_name

_DEVICE_COPIES = frozenset({f"{H2D_COPY}.out", f"{D2H_COPY}.out"})
_MOVED_NUMBERS = KINDS["Scalar"] | {m.Null}
_WORDS = {
    m.Null: "absent",
    m.Int: "an integer",
    m.Bool: "a truth value",
    m.Double: "a float",
    m.Tensor: "a tensor",
    m.String: "a string",
    m.IntList: "a list of integers",
    m.DoubleList: "a list of floats",
    m.BoolList: "a list of truth values",
    m.TensorList: "a list of tensors",
    m.OptionalTensorList: "a list of optional tensors",
}
_TYPES = {
    "Tensor": "a tensor",
    "Tensor[]": "a list of tensors",
    "Tensor?[]": "a list of optional tensors",
    "int": "an integer",
    "int[]": "a list of integers",
    "bool": "a truth value",
    "bool[]": "a list of truth values",
    "float": "a float",
    "float[]": "a list of floats",
    "Scalar": "a number",
    "str": "a string",
}


class Kinds:
    """Kinds of a method's values. A kind is a class of :mod:`etdev.program.model`, such as ``Tensor``."""

    def __init__(self, plan: m.ExecutionPlan) -> None:
        self._plan = plan
        self.of: list[type] = [type(value) for value in plan.values]
        """Kind of each value, by value index."""

    def fits(self, value: int, accepted: frozenset[type]) -> bool:
        """Return whether a value is of an accepted kind, or becomes an accepted number at run time."""
        kind = self.of[value]
        return kind in accepted or (kind is m.Null and RunTimeNumber in accepted and value in self._set)

    def is_moved(self, value: int) -> bool:
        """Return whether a move may replace the value by another value at run time."""
        return value in self._moved

    @cached_property
    def _moved(self) -> frozenset[int]:
        calls = self._plan.instructions
        return frozenset(call.move_to for call in calls if isinstance(call, m.MoveCall))

    @cached_property
    def _set(self) -> frozenset[int]:
        """Return the values that a caller or an instruction may set.

        If a number is set at run time, emission writes it as an absent value (:class:`~etdev.program.model.Null`).
        """
        found = set(self._plan.inputs)
        for chain in self._plan.chains:
            for call in chain.instructions:
                match call:
                    case m.KernelCall():
                        found.update(call.args[-1:])
                    case m.DelegateCall():
                        found.update(call.args)
                    case m.MoveCall():
                        found.add(call.move_to)
        return frozenset(found)

    def words(self, value: int) -> str:
        """Return the kind of a value as words for an error message."""
        return _WORDS[self.of[value]]


def check_calls(plan: m.ExecutionPlan) -> None:
    """Raise :class:`FlawError` for the first instruction or list of integers that refers to a wrong value."""
    kinds = Kinds(plan)
    for number, chain in enumerate(plan.chains):
        check_value_indices(chain.inputs, plan, "chains", f"[{number}]", "inputs")
        check_value_indices(chain.outputs, plan, "chains", f"[{number}]", "outputs")
    # Check indices first, since the other checks rely on them.
    _each_call(plan, lambda chain, call: _check_indices(plan, chain, call))
    _each_call(plan, lambda _, call: _check_move(kinds, call))
    for index, value in enumerate(plan.values):
        if isinstance(value, m.IntList):
            _check_integers(kinds, index, value)


def check_signatures(plan: m.ExecutionPlan) -> None:
    """Raise :class:`FlawError` for the first instruction that has a value of the wrong kind.

    A kernel call must match its operator's signature. The condition of a jump must be a truth value. Run
    :func:`check_calls` first.
    """
    kinds = Kinds(plan)
    signatures = [find_signature(operator_name(operator)) for operator in plan.operators]

    def check(_: m.Chain, call: m.Instruction) -> None:
        if isinstance(call, m.KernelCall) and (signature := signatures[call.op_index]) is not None:
            _check_kernel(plan, kinds, signature, call.args)
        elif isinstance(call, m.JumpFalseCall):
            _check_condition(plan, kinds, call.cond_value_index)

    _each_call(plan, check)


def _each_call(plan: m.ExecutionPlan, check: Callable[[m.Chain, m.Instruction], None]) -> None:
    """Run a check on each instruction. If the check raises a flaw, add the instruction's path to the flaw."""
    for number, chain in enumerate(plan.chains):
        for index, call in enumerate(chain.instructions):
            try:
                check(chain, call)
            except FlawError as flaw:
                raise flaw.within("chains", f"[{number}]", "instructions", f"[{index}]") from None


def _check_indices(plan: m.ExecutionPlan, chain: m.Chain, call: m.Instruction) -> None:
    match call:
        case m.KernelCall():
            check_index(call.op_index, plan.operators, "operators", "kernel_call", "op_index")
            check_value_indices(call.args, plan, "kernel_call", "args")
        case m.DelegateCall():
            check_index(call.delegate_index, plan.delegates, "delegates", "delegate_call", "delegate_index")
            check_value_indices(call.args, plan, "delegate_call", "args")
        case m.MoveCall():
            check_index(call.move_from, plan.values, "values", "move_call", "move_from")
            check_index(call.move_to, plan.values, "values", "move_call", "move_to")
        case m.JumpFalseCall():
            check_index(call.cond_value_index, plan.values, "values", "jump_false_call", "cond_value_index")
            to, end = call.destination_instruction, len(chain.instructions)
            if not 0 <= to <= end:
                raise FlawError(
                    f"the jump goes to instruction {to}, but the chain has {end} instructions",
                    "jump_false_call",
                    "destination_instruction",
                )
        case m.FreeCall():
            check_index(call.value_index, plan.values, "values", "free_call", "value_index")


def _check_move(kinds: Kinds, call: m.Instruction) -> None:
    if isinstance(call, m.MoveCall):
        moved = {kinds.of[call.move_from], kinds.of[call.move_to]}
        if moved != {m.Tensor} and not moved <= _MOVED_NUMBERS:
            raise FlawError(
                f"the move sets value {call.move_to} ({kinds.words(call.move_to)}) to value {call.move_from} "
                f"({kinds.words(call.move_from)}); expected two tensors or two numbers",
                "move_call",
                "move_from",
            )


def _check_integers(kinds: Kinds, index: int, value: m.IntList) -> None:
    for number, item in enumerate(value.items):
        if not kinds.fits(item, KINDS["int"]):
            path = ("values", f"[{index}]", "int_list", "items", f"[{number}]")
            raise FlawError(f"expected an integer, but value {item} is {kinds.words(item)}", *path)


# Kernels


def _check_kernel(plan: m.ExecutionPlan, kinds: Kinds, signature: Signature, args: tuple[int, ...]) -> None:
    accepted, of = signature.accepts, kinds.of
    if len(args) != len(accepted):
        raise FlawError(
            f"{signature.operator} takes {len(accepted)} values, outputs included, but the call has {len(args)}",
            "kernel_call",
            "args",
        )
    for number, value in enumerate(args):
        if of[value] not in accepted[number] and not kinds.fits(value, accepted[number]):
            message = f"{_expected(signature, number)}, but value {value} is {kinds.words(value)}"
            raise FlawError(message, "kernel_call", "args", f"[{number}]")
    if signature.returns and not _returns_outputs(plan, signature, args):
        what = "its outputs" if signature.outputs else "its first argument"
        message = f"{signature.operator} returns {what}, but the last value of the call, value {args[-1]}, differs"
        raise FlawError(message, "kernel_call", "args", f"[{len(args) - 1}]")
    _check_written(plan, kinds, signature, args)
    if signature.operator in _DEVICE_COPIES:
        _check_device_copy(plan, args)


def _check_written(plan: m.ExecutionPlan, kinds: Kinds, signature: Signature, args: tuple[int, ...]) -> None:
    """Raise :class:`FlawError` if a kernel writes a constant, which is read-only memory of the file.

    A value that a move may replace is allowed, because the kernel may write to another tensor at run time.
    """
    end = len(signature.parameters)
    for number in range(end - signature.outputs, end) if signature.outputs else range(signature.returns):
        for index in _listed(plan, args[number]):
            tensor = plan.values[index]
            if isinstance(tensor, m.Tensor) and tensor.is_constant and not kinds.is_moved(index):
                message = f"{signature.operator} writes value {index}, which is a constant"
                raise FlawError(message, "kernel_call", "args", f"[{number}]")


def _check_device_copy(plan: m.ExecutionPlan, args: tuple[int, ...]) -> None:
    """Raise :class:`FlawError` if the two tensors of a copy between host and device differ.

    The copy moves bytes unchanged, so both tensors must have the same element type and shape.
    """
    source, out = (plan.values[index] for index in args[:2])
    assert isinstance(source, m.Tensor)
    assert isinstance(out, m.Tensor)
    for field in ("scalar_type", "sizes", "dim_order", "shape_dynamism"):
        one, other = getattr(source, field), getattr(out, field)
        if one != other:
            message = (
                f"value {args[1]}, a copy of value {args[0]}, has the {field} {_shown(other)} instead of {_shown(one)}"
            )
            raise FlawError(message, "kernel_call", "args", "[1]")


def _listed(plan: m.ExecutionPlan, value: int) -> tuple[int, ...]:
    """Return the value indices of an output's tensors: the items of a list, or the value itself."""
    found = plan.values[value]
    return found.items if isinstance(found, m.TensorList) else (value,)


def _shown(item: object) -> str:
    return item.name if isinstance(item, IntEnum) else str(item)


def _returns_outputs(plan: m.ExecutionPlan, signature: Signature, args: tuple[int, ...]) -> bool:
    """Return True if the last value of a call is the return value that the signature requires.

    The return value must repeat the outputs. Without outputs, it must be the first argument, which the call changes.
    """
    count = signature.outputs
    if not count:
        return args[-1] == args[0]
    returned = plan.values[args[-1]]
    if not isinstance(returned, m.TensorList):
        return args[-1] == args[-2]
    listed = plan.values[args[-2]]
    return returned.items == (listed.items if isinstance(listed, m.TensorList) else args[-1 - count : -1])


def _check_condition(plan: m.ExecutionPlan, kinds: Kinds, value: int) -> None:
    condition = plan.values[value]
    if isinstance(condition, m.Tensor):
        fits, kind = condition.scalar_type is m.ScalarType.BOOL, f"a tensor of {condition.scalar_type.name}"
    else:
        fits, kind = kinds.fits(value, KINDS["bool"]), kinds.words(value)
    if not fits:
        message = f"a condition must be a truth value or a tensor of BOOL, but value {value} is {kind}"
        raise FlawError(message, "jump_false_call", "cond_value_index")


def _expected(signature: Signature, number: int) -> str:
    """Describe in words the value that an operator expects at position ``number`` of a call."""
    if number == len(signature.parameters):
        return f"{signature.operator} must have its outputs as the last value of a call"
    parameter = signature.parameters[number]
    kind = _TYPES[parameter.kind.removesuffix("?")] + (" or none," * parameter.kind.endswith("?"))
    return f"{signature.operator} takes {kind} as " + (f"`{parameter.name}`" if parameter.name else "output")
