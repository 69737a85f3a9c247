"""Values and kernel calls of a method that is emitted directly, without ExecuTorch's emitter.

Values have the order of ExecuTorch's emitter (``exir/emit/_emitter.py``, equal in executorch 1.4.1 and 1.5.1). A kernel
call first adds its outputs, then each argument that does not have a value yet. Calls do not share equal literals: each
call adds its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from etdev.pipeline.stages.emit.virtual_addresses import MEMORY_ID, next_address
from etdev.pipeline.stages.memory_orders import dim_order
from etdev.program import model as m

if TYPE_CHECKING:
    import torch
    from torch.fx import Node


class NotPlainError(Exception):
    """Error for a graph that only ExecuTorch's emitter can emit. The message names the reason."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """The out variant of an op."""

    operator: m.Operator
    arguments: tuple[Any, ...]
    """Arguments of the schema."""
    outputs: tuple[str, ...]
    """Names of the output arguments."""
    fills_list: bool
    """True if the only output argument is a list of tensors."""


class Values:
    """The value table of a method, and the instructions that use the values."""

    def __init__(self) -> None:
        self.values: list[m.Value] = []
        self.operators: dict[m.Operator, int] = {}
        """Maps each operator to its index."""
        self.instructions: list[m.Instruction] = []
        self.end = 0
        """Number of bytes of planned memory so far."""

    def add(self, value: m.Value) -> int:
        """Add a value and return its index."""
        self.values.append(value)
        return len(self.values) - 1

    def add_planned(self, tensor: torch.Tensor, *, requires_grad: bool = False) -> int:
        """Add a tensor at an address of its own, and return its index."""
        found = describe(tensor, requires_grad=requires_grad)
        place = m.AllocationDetails(MEMORY_ID, self.end)
        self.end = next_address(self.end, found.nbytes)
        return self.add(replace(found, allocation_info=place))

    def call(self, node: Node, known: dict[Node, Any]) -> int | list[int]:
        """Add the kernel call of an op, and return the index of its output, or the indices of its outputs.

        ``known`` maps the earlier nodes to their indices. Raises :class:`NotPlainError`.
        """
        kernel = _kernel_of(node.target)
        results = node.meta["val"]
        results = list(results) if isinstance(results, tuple | list) else [results]
        if len(results) != len(kernel.outputs) and not kernel.fills_list:
            raise NotPlainError(f"{node.name} has {len(results)} results")
        outputs = [self.add_planned(result) for result in results]
        made = {} if kernel.fills_list else dict(zip(kernel.outputs, outputs, strict=True))
        args: list[int] = []
        for position, argument in enumerate(kernel.arguments):
            if argument.name in made:
                args.append(made[argument.name])
                continue
            if kernel.fills_list and argument.name in kernel.outputs:
                args.append(self.add(m.TensorList(tuple(outputs))))
                continue
            given = argument.default_value
            if argument.name in node.kwargs:
                given = node.kwargs[argument.name]
            elif not argument.kwarg_only and position < len(node.args):
                given = node.args[position]
            args.append(self._argument(given, argument.type, known))
        is_list = kernel.fills_list or len(outputs) > 1
        if is_list:
            args.append(self.add(m.TensorList(tuple(outputs))))
        else:
            args += outputs
        index = self.operators.setdefault(kernel.operator, len(self.operators))
        self.instructions.append(m.KernelCall(index, tuple(args)))
        return outputs if is_list else outputs[0]

    def _argument(self, given: Any, kind: Any, known: dict[Node, Any]) -> int:
        import torch
        from torch.fx import Node

        if isinstance(given, Node):
            return _index_of(given, known)
        if given is None and isinstance(kind, torch.TensorType):
            return self.add(m.Tensor(m.ScalarType.BYTE, (0,), (0,)))
        if isinstance(kind, torch.OptionalType):
            kind = kind.getElementType()
        if isinstance(given, list | tuple):
            return self._list(given, kind, known)
        return self.add(_plain_value(given))

    def _list(self, given: Sequence[Any], kind: Any, known: dict[Node, Any]) -> int:
        import torch

        element = kind.getElementType() if isinstance(kind, torch.ListType) else None
        if isinstance(element, torch.IntType):
            return self.add(m.IntList(tuple(self.add(_int_value(item)) for item in given)))
        if isinstance(element, torch.FloatType):
            return self.add(m.DoubleList(tuple(map(float, given))))
        if isinstance(element, torch.BoolType):
            return self.add(m.BoolList(tuple(map(bool, given))))
        if isinstance(element, torch.TensorType):
            return self.add(m.TensorList(tuple(_index_of(item, known) for item in given)))
        if isinstance(element, torch.OptionalType) and isinstance(element.getElementType(), torch.TensorType):
            found = (-1 if item is None else _index_of(item, known) for item in given)
            return self.add(m.OptionalTensorList(tuple(found)))
        raise NotPlainError(f"only ExecuTorch emits an argument of type {kind}")


def describe(tensor: Any, *, requires_grad: bool = False) -> m.Tensor:
    """Convert a tensor of fixed sizes to a value without data and address; raises NotPlainError."""
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        raise NotPlainError(f"a value is a {type(tensor).__name__}")
    sizes, strides = tuple(tensor.shape), tuple(tensor.stride())
    if not all(isinstance(item, int) for item in (*sizes, *strides)) or 0 in strides:
        raise NotPlainError("a tensor has dynamic sizes, or a stride of 0")
    return m.Tensor(scalar_type(tensor.dtype), sizes, dim_order(strides), requires_grad=requires_grad)


@cache
def scalar_type(dtype: torch.dtype) -> m.ScalarType:
    """Return the element type that the file format uses for a dtype; raises NotPlainError."""
    from executorch.exir.tensor import scalar_type_enum

    try:
        return m.ScalarType(int(scalar_type_enum(dtype)))
    except (KeyError, ValueError):
        raise NotPlainError(f"a tensor has the type {dtype}") from None


def _plain_value(given: Any) -> m.Value:
    """Convert an argument, except tensors and lists, to a value; raises NotPlainError."""
    import torch

    match given:
        case None:
            return m.Null()
        case float():
            return m.Double(given)
        case bool():
            return m.Bool(given)
        case int():
            return m.Int(given)
        case str():
            return m.String(given)
        case torch.dtype():
            return m.Int(scalar_type(given))
        case torch.layout() | torch.memory_format():
            from executorch.exir.tensor import layout_enum, memory_format_enum

            table: Any = layout_enum if isinstance(given, torch.layout) else memory_format_enum
            try:
                return m.Int(table(given))
            except KeyError:
                pass
    raise NotPlainError(f"only ExecuTorch emits an argument such as {given!r}")


def _int_value(item: Any) -> m.Value:
    if not isinstance(item, int):
        raise NotPlainError(f"a list of integers contains {item!r}")
    return _plain_value(item)


def _index_of(node: Any, known: dict[Node, Any]) -> int:
    found = known.get(node)
    if not isinstance(found, int):
        raise NotPlainError(f"an argument is {node!r}")
    return found


@cache
def _kernel_of(target: Any) -> _Kernel:
    """Return the out variant of an op; raises NotPlainError if the op has none or changes an argument."""
    import torch
    from executorch.exir.operator.convert import get_out_args_from_opoverload, is_out_variant

    schema = getattr(target, "_schema", None)
    if schema is None or any(argument.alias_info is not None for argument in schema.arguments):
        raise NotPlainError(f"{target} is not an op, or changes an argument")
    if is_out_variant(schema.name, schema.overload_name):
        raise NotPlainError(f"{target} is an out variant")
    variant = _out_variant(target)
    outputs = [argument for argument in variant._schema.arguments if argument.is_out]
    fills_list = len(outputs) == 1 and isinstance(outputs[0].type, torch.ListType)
    if not variant._schema.returns and not fills_list:
        raise NotPlainError(f"the out variant of {target} has no results")
    name = variant._overloadname
    return _Kernel(
        m.Operator(variant._overloadpacket._qualified_op_name, "" if name == "default" else name),
        tuple(variant._schema.arguments),
        tuple(get_out_args_from_opoverload(variant)),
        fills_list,
    )


def _out_variant(target: Any) -> Any:
    from executorch.exir.dialects._ops import ops
    from executorch.exir.dialects.edge._ops import EdgeOpOverload
    from executorch.exir.operator.convert import to_out_variant
    from torch._ops import OpOverload

    try:
        if isinstance(target, EdgeOpOverload):
            return target.to_out_variant()
        if isinstance(target, OpOverload) and target.namespace not in ops.backend._dir:
            return to_out_variant(target)[0]
    except (AssertionError, RuntimeError) as error:
        # An assertion fails if torch's code generator cannot parse the schema, e.g. a list of bools as a default.
        raise NotPlainError(f"{target} has no out variant that is known") from error
    raise NotPlainError(f"{target} is an op of another dialect")
