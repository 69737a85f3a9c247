"""Changing a lowered graph: new ops in the place of old ones."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from etdev.backends.portable.occupancy import Occupancy

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, GraphModule, Node


Tiling = Literal["auto", "off", "always"]

INSTRUCTION_BYTES = 320
"""Bytes of the file that an instruction with its values takes, on average, in linked files."""


@dataclass(frozen=True, slots=True)
class FormSettings:
    """Settings of one application of the forms to a method."""

    names: frozenset[str]
    """Forms to apply."""
    tiling: Tiling = "always"
    """``auto`` weighs memory against instructions, ``always`` takes the least memory, ``off`` splits only what would
    exceed the limit as a whole."""
    limit: int | None = None
    """Bytes that the method may need at a time; None: as many as the stock lowering by estimate."""


class Editor:
    """Edits one graph of a lowered method: the top one, a branch or a loop's body.

    Ops are named as in the edge dialect, without its namespace: ``linear.default``.
    """

    def __init__(self, program: ExportedProgram, module: GraphModule, settings: FormSettings) -> None:
        self._program = program
        self._is_top = module is program.graph_module
        self._renames = partial(_rename_outputs, program, module) if self._is_top else nullcontext
        self._at: Node | None = None
        self.graph: Graph = module.graph
        """What is edited."""
        self.settings = settings
        self.limit: int = self.occupancy().peak() if settings.limit is None else settings.limit
        """Bytes that the graph may need at a time: what the stock lowering needs once it is linked."""
        self.is_tiled = False
        """True if an op is split that would fit as a whole."""
        self.left = 0
        """Convolutions that keep the slow kernel because nothing else fits into the limit."""

    def copy(self) -> Editor:
        """An editor of a copy of the graph, to try out what becomes of it."""
        from torch.fx import Graph

        other = copy(self)
        other.graph = Graph()
        places: dict[Node, Node] = {}
        results = other.graph.graph_copy(self.graph, places)
        other.graph.output(results)
        other._renames = nullcontext
        return other

    def calls(self, *ops: str) -> list[Node]:
        """The calls of these ops, in order."""
        targets = {edge(op) for op in ops}
        return [node for node in self.graph.nodes if node.op == "call_function" and node.target in targets]

    @contextmanager
    def before(self, node: Node, line: Node | None = None) -> Iterator[None]:
        """Put what is called in the block before ``node``, as if it came from the line of the model that ``line`` or
        else ``node`` comes from."""
        self._at = line or node
        try:
            with self.graph.inserting_before(node):
                yield
        finally:
            self._at = None

    def call(self, op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Call an op, given by name or by what a node of it has as its target."""
        from torch.fx import Node
        from torch.utils._pytree import tree_map_only

        assert self._at is not None
        target = edge(op) if isinstance(op, str) else op
        node = self.graph.call_function(target, args, kwargs)
        node.meta = {key: value for key, value in self._at.meta.items() if key not in ("val", "tensor_meta", "spec")}
        values, named = tree_map_only(Node, lambda item: item.meta["val"], (args, kwargs))
        node.meta["val"] = target(*values, **named)
        return node

    def view(self, node: Node, shape: Sequence[int]) -> Node:
        """The same bytes in another shape; the node itself if it has that shape."""
        return node if list(node.meta["val"].shape) == list(shape) else self.call("view_copy.default", node, [*shape])

    def window(self, node: Node, sizes: Sequence[int], strides: Sequence[int], offset: int = 0) -> Node:
        """A copy of the elements at ``offset`` plus every sum of multiples of the strides, all counted in elements."""
        where = (offset,) if offset else ()
        return self.call("as_strided_copy.default", node, [*sizes], [*strides], *where)

    def replace(self, old: Node, new: Node) -> None:
        """Let everyone who uses ``old`` use ``new``; drop ``old`` and what nobody else used."""
        self.redirect(old, new, ())
        self._drop(old)

    def redirect(self, old: Node, new: Node, apart: Container[Node]) -> None:
        """Let everyone who uses ``old`` use ``new``, but for ``new`` itself and those apart."""
        with self._renames():
            old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new and user not in apart)

    def _drop(self, node: Node) -> None:
        sources = node.all_input_nodes
        self.graph.erase_node(node)
        for source in sources:
            if source.op == "call_function" and not source.users:
                self._drop(source)

    def is_constant(self, node: Node) -> bool:
        """Is it a parameter, or a tensor that the model's code states? In a branch or a loop's body nobody knows."""
        return self._is_top and node.op == "placeholder" and node.name in self._constants()

    def occupancy(self) -> Occupancy:
        """How much memory is in use while each op runs, as the linker will have it."""
        signature = self._program.graph_signature
        constants = {*self._constants(), *signature.inputs_to_buffers}
        # What a branch or a loop's body is given, lies in the memory of the graph around it.
        given = (node.name for node in self.graph.nodes if node.op == "placeholder" and not self._is_top)
        return Occupancy(self.graph, constants.union(given))

    def transpose_constant(self, node: Node) -> bool:
        """Store a constant of two dimensions transposed. Nothing happens, and the answer is no, if others use it."""
        import torch

        names = self._constants()
        if not self.is_constant(node) or len(node.users) != 1:
            return False
        store = self._store(names[node.name])
        value = store[names[node.name]]
        others = (name for name in names if name != node.name)
        if any(self._store(names[other])[names[other]].data_ptr() == value.data_ptr() for other in others):
            return False
        turned = value.detach().t().contiguous()
        is_parameter = node.name in self._program.graph_signature.inputs_to_parameters
        store[names[node.name]] = torch.nn.Parameter(turned, requires_grad=False) if is_parameter else turned
        node.meta["val"] = node.meta["val"].t().contiguous()
        return True

    def _constants(self) -> dict[str, str]:
        """Placeholder → the tensor's name. Buffers are not among them: other methods may change them."""
        signature = self._program.graph_signature
        return {**signature.inputs_to_parameters, **signature.inputs_to_lifted_tensor_constants}

    def _store(self, name: str) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self._program.state_dict
        return state if name in state else self._program.constants


def _rename_outputs(program: ExportedProgram, module: GraphModule) -> AbstractContextManager[None]:
    """The method's signature names its outputs: let it follow them."""
    return module._set_replace_hook(program.graph_signature.get_replace_hook())


def edge(op: str) -> Any:
    """An ATen op of the edge dialect: ``linear.default``."""
    from executorch.exir.dialects._ops import ops

    name, overload = op.split(".")
    return getattr(getattr(ops.edge.aten, name), overload)


def arguments(node: Node) -> tuple[Any, ...]:
    """What an op is called with, by position."""
    return node.args


def value(node: Node) -> torch.Tensor:
    """What is known of a node's tensor."""
    found: torch.Tensor = node.meta["val"]
    return found


def is_plain(*nodes: Node) -> bool:
    """Have all of them float32 elements, sizes that never change, and their elements in the order of the sizes?"""
    import torch

    found = [node.meta.get("val") for node in nodes]
    return all(isinstance(item, torch.Tensor) and item.dtype is torch.float32 and is_laid_out(item) for item in found)


def is_laid_out(tensor: Any) -> bool:
    """Do the sizes never change, is there an element at all, and do the elements lie in the order of the sizes?"""
    static = all(isinstance(size, int) and size > 0 for size in tensor.shape)
    return static and tensor.is_contiguous()
