"""Mapping from each instruction of an emitted method to its node in the graph.

ExecuTorch's own maps cover only kernel and delegate calls outside branches and loop bodies. Inside a body, ExecuTorch
counts positions from the start of the body, so these positions are not unique. This module visits the graph in the same
order as ExecuTorch's emitter (``exir/emit/_emitter.py``, equal in executorch 1.4.1 and 1.5.1). It checks that every
instruction matches its node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from etdev.pipeline.stages.emit.graphs import lowered_module
from etdev.program.model import (
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
)

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

_Kind = TypeVar("_Kind", bound=Instruction)


@dataclass(frozen=True, slots=True)
class Origin:
    """The graph and the node that an instruction comes from."""

    module: GraphModule
    """The method's graph, or a branch or loop body in it."""
    node: Node
    """The node that the instruction comes from.

    Jumps, moves and the counter of a branch or loop belong to the ``cond``, ``map`` or ``scan`` node.
    """
    whole: bool
    """True if the instruction is a kernel call or a delegate call. The node of such a call has no other instruction."""


class MismatchError(Exception):
    """Error for instructions that do not match their graph."""


def match_instructions(graph_module: GraphModule, plan: ExecutionPlan) -> list[Origin]:
    """Return the graph and node of each instruction of a method; raises :class:`MismatchError`."""
    if len(plan.chains) != 1:
        raise MismatchError(f"there are {len(plan.chains)} chains of instructions, expected one")
    walk = _Walk(plan)
    walk.graph(graph_module)
    walk.expect_end()
    return walk.origins


class _Walk:
    """A cursor in the list of instructions that advances while the graph's nodes are matched."""

    def __init__(self, plan: ExecutionPlan) -> None:
        import operator

        import torch
        from executorch.exir import memory
        from executorch.exir.delegate import executorch_call_delegate

        self.origins: list[Origin] = []
        self._plan = plan
        self._instructions = plan.chains[0].instructions
        self._delegates = 0
        self._emitters: dict[Any, Callable[[GraphModule, Node], None]] = {
            operator.getitem: self._nothing,
            memory.alloc: self._nothing,
            memory.free: self._free,
            torch.ops.higher_order.cond: self._cond,
            torch.ops.higher_order.map_impl: self._map,
            torch.ops.higher_order.scan: self._scan,
            executorch_call_delegate: self._delegate,
        }

    def graph(self, module: GraphModule) -> None:
        """Match the instructions of a graph, except those that move the graph's results."""
        for node in module.graph.nodes:
            if node.op == "call_function":
                self._emitters.get(node.target, self._kernel)(module, node)

    def expect_end(self) -> None:
        """Raise an error if there are instructions after the current position."""
        if len(self.origins) < len(self._instructions):
            raise MismatchError(f"instruction {len(self.origins)} comes after the end of the graph")

    def _nothing(self, module: GraphModule, node: Node) -> None:
        pass

    def _free(self, module: GraphModule, node: Node) -> None:
        self._take(FreeCall, module, node)

    def _kernel(self, module: GraphModule, node: Node) -> None:
        packet: Any = getattr(node.target, "_overloadpacket", None)
        if packet is None:
            raise MismatchError(f"etdev does not support the emission of {node.target} ({node.name})")
        overload = node.target._overloadname  # type: ignore[union-attr]
        self._call(module, node, packet._qualified_op_name, "" if overload == "default" else overload, whole=True)

    def _delegate(self, module: GraphModule, node: Node) -> None:
        index = len(self.origins)
        call = self._take(DelegateCall, module, node, whole=True)
        if call.delegate_index != self._delegates:
            raise MismatchError(
                f"instruction {index} calls delegate {call.delegate_index} instead of {self._delegates}"
            )
        self._delegates += 1
        backend = lowered_module(module, node).backend_id  # type: ignore[union-attr]
        if self._plan.delegates[call.delegate_index].id != backend:
            raise MismatchError(f"instruction {index} does not call the backend {backend!r} ({node.name})")
        spec = node.meta["spec"]
        arguments = len(node.args) - 1 + (len(spec) if isinstance(spec, (list, tuple)) else 1)
        if len(call.args) != arguments:
            raise MismatchError(
                f"instruction {index} has {len(call.args)} arguments instead of {arguments} ({node.name})"
            )

    def _cond(self, module: GraphModule, node: Node) -> None:
        """Match a conditional: a jump to the false branch, the true branch, a jump to the end, the false branch."""
        jump = self._take(JumpFalseCall, module, node)
        self._branch(module, node, 1, jump.destination_instruction - 1)
        jump = self._take(JumpFalseCall, module, node)
        self._branch(module, node, 2, jump.destination_instruction)

    def _branch(self, module: GraphModule, node: Node, position: int, end: int) -> None:
        """Match a branch, which ends with moves of its results to the values that both branches set."""
        self.graph(_body(module, node, position))
        while len(self.origins) < end:
            self._take(MoveCall, module, node)
        if len(self.origins) > end:
            raise MismatchError(f"a branch of {node.name} ends at instruction {len(self.origins)} instead of {end}")

    def _map(self, module: GraphModule, node: Node) -> None:
        """Match a loop over one mapped argument: select a slice, run the body, append the result to the output."""
        self._call(module, node, "aten::sym_size", "int")
        start = len(self.origins)
        self._call(module, node, "aten::select_copy", "int_out")
        self.graph(_body(module, node, 0))
        self._call(module, node, "executorch_prim::et_copy_index", "tensor")
        self._iterate(module, node, start)

    def _scan(self, module: GraphModule, node: Node) -> None:
        """Match a scan: a loop over slices of tensors. Each iteration also carries values to the next iteration.

        Before the loop and after each iteration, the carried values are copied to the inputs of the next iteration.
        """
        carried, sliced = (len(node.args[position]) for position in (1, 2))  # type: ignore[arg-type]
        self._call(module, node, "aten::sym_size", "int")
        for _ in range(carried):
            self._call(module, node, "aten::copy_")
        start = len(self.origins)
        for _ in range(sliced):
            self._call(module, node, "aten::select_copy", "int_out")
        self.graph(_body(module, node, 0))
        for _ in range(carried):
            self._call(module, node, "aten::copy_")
        for _ in range(len(node.meta["spec"]) - carried):
            self._call(module, node, "executorch_prim::et_copy_index", "tensor")
        self._iterate(module, node, start)

    def _iterate(self, module: GraphModule, node: Node, start: int) -> None:
        """Match the end of a loop: count, jump back unless done, reset the counter for the method's next call."""
        self._call(module, node, "executorch_prim::add", "Scalar")
        self._call(module, node, "executorch_prim::eq", "Scalar")
        jump = self._take(JumpFalseCall, module, node)
        if jump.destination_instruction != start:
            raise MismatchError(
                f"{node.name} jumps back to instruction {jump.destination_instruction} instead of {start}"
            )
        self._call(module, node, "executorch_prim::sub", "Scalar")

    def _call(self, module: GraphModule, node: Node, name: str, overload: str = "", *, whole: bool = False) -> None:
        index = len(self.origins)
        call = self._take(KernelCall, module, node, whole=whole)
        found = self._plan.operators[call.op_index]
        if (found.name, found.overload) != (name, overload):
            raise MismatchError(
                f"instruction {index} calls {found.name}.{found.overload} instead of {name}.{overload} ({node.name})"
            )

    def _take(self, kind: type[_Kind], module: GraphModule, node: Node, *, whole: bool = False) -> _Kind:
        index = len(self.origins)
        if index == len(self._instructions):
            raise MismatchError(f"the instructions end before {node.name}")
        instruction = self._instructions[index]
        if not isinstance(instruction, kind):
            raise MismatchError(f"instruction {index} is a {type(instruction).__name__} instead of a {kind.__name__}")
        self.origins.append(Origin(module, node, whole))
        return instruction


def _body(module: GraphModule, node: Node, position: int) -> GraphModule:
    return getattr(module, str(node.args[position].target))  # type: ignore[union-attr, no-any-return]
