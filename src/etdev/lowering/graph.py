"""Editor of lowered graphs. It replaces ops by new ops."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from etdev.lowering.occupancy import Occupancy, Workspace

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Graph, GraphModule, Node


Tiling = Literal["auto", "off", "always"]

INSTRUCTION_BYTES = 320
"""Average number of bytes of an instruction and its values in linked files."""
_BATCH_NORM = "_native_batch_norm_legit_no_training.default"
_LAYER_NORM = "native_layer_norm.default"


@dataclass(frozen=True, slots=True)
class FormSettings:
    """Settings for applying forms to a method."""

    names: frozenset[str]
    """Forms to apply."""
    tiling: Tiling = "always"
    """Extent of tiling. ``auto`` weighs memory against instructions, and ``always`` minimizes memory.

    ``off`` tiles an op only if the whole op would exceed the limit.
    """
    limit: int | None = None
    """Maximum number of bytes in use. None means the estimated peak of the stock lowering."""
    room: int | None = None
    """Number of bytes that the method should fit into, or None. With a number, ``auto`` tiles until the method
    fits, if possible, regardless of the number of instructions."""


class Editor:
    """Editor of one graph of a lowered method: the top graph, or the graph of a branch or of a loop's body.

    Ops are named as in the edge dialect, but without the namespace: ``linear.default``.
    """

    def __init__(
        self,
        program: ExportedProgram,
        module: GraphModule,
        settings: FormSettings,
        known: dict[Hashable, Any] | None = None,
    ) -> None:
        self._program = program
        self._is_top = module is program.graph_module
        self._renames = partial(_rename_outputs, program, module) if self._is_top else nullcontext
        self._at: Node | None = None
        self.graph: Graph = module.graph
        """Graph that is edited."""
        self.settings = settings
        self.known: dict[Hashable, Any] = {} if known is None else known
        """Cache for results of tiling searches, results of ops on fake tensors, and transposed weights.

        Editors of equal programs may share it.
        """
        # Fake tensors of different modes cannot be mixed, and each mode needs its own results.
        mode = next((node.meta["val"].fake_mode for node in self.graph.nodes if _is_fake(node.meta.get("val"))), None)
        self._results: dict[Hashable, Any] = self.known.setdefault(("results", mode), {})
        """Results of ops on fake tensors, by op and arguments. Those of :meth:`_move` are stored by dtype and shape."""
        self.limit: int = self.occupancy().peak() if settings.limit is None else settings.limit
        """Maximum number of bytes in use. The default is the estimated peak of the stock lowering after the link."""
        self.is_tiled = False
        """True if some op was tiled although the whole op would fit in the limit."""
        self.left: tuple[int, ...] = ()
        """One estimate for each convolution that keeps a slow kernel because no tiling fits the limit.

        The estimate is the peak in bytes if this convolution used a faster kernel.
        """

    def copy(self) -> Editor:
        """Return an editor of a copy of the graph, for trying changes."""
        from torch.fx import Graph

        graph = Graph()
        graph.output(graph.graph_copy(self.graph, {}))
        return self.on(graph)

    def on(self, graph: Graph) -> Editor:
        """Return an editor of another graph of the same method, such as a copy. The method's graph does not change."""
        other = copy(self)
        other.graph = graph
        other._renames = nullcontext
        return other

    def calls(self, *ops: str) -> list[Node]:
        """Return the calls of these ops, in order."""
        targets = {edge(op) for op in ops}
        return [node for node in self.graph.nodes if node.op == "call_function" and node.target in targets]

    @contextmanager
    def before(self, node: Node, line: Node | None = None) -> Iterator[None]:
        """Inside the block, insert new ops before ``node``.

        The new ops get the source line of ``line`` if that node is given; otherwise the source line of ``node``.
        """
        self._at = line or node
        try:
            with self.graph.inserting_before(node):
                yield
        finally:
            self._at = None

    def call(self, op: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Insert an op and return its node. ``op`` is the op's name, or the target of another node."""
        node = self._insert(op, args, kwargs)
        key = node.target, _key_of(args), _key_of(tuple(kwargs.items()))
        if None in key or key not in self._results:
            self._results[key] = _result_of(node)
        node.meta["val"] = self._results[key]
        return node

    def _insert(self, op: str | Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Node:
        assert self._at is not None
        node = self.graph.call_function(edge(op) if isinstance(op, str) else op, args, dict(kwargs))
        node.meta = {key: value for key, value in self._at.meta.items() if key not in ("val", "tensor_meta", "spec")}
        return node

    def _move(self, op: str, shape: Sequence[int], node: Node, *args: Any) -> Node:
        """Insert an op that moves elements of ``node`` to a contiguous tensor of this shape.

        The new node is the same as from :meth:`call`. This method is faster, because it rarely runs the op on fake
        tensors.
        """
        tensor = node.meta["val"]
        if tensor.requires_grad or not is_laid_out(tensor) or not all(isinstance(size, int) for size in shape):
            return self.call(op, node, *args)
        moved = self._insert(op, (node, *args), {})
        key = tensor.dtype, tuple(shape)
        if key not in self._results:
            self._results[key] = tensor.new_empty(tuple(shape))
        moved.meta["val"] = self._results[key]
        return moved

    def view(self, node: Node, shape: Sequence[int]) -> Node:
        """Insert a view of a node in another shape. If the node already has that shape, return the node itself."""
        if list(node.meta["val"].shape) == list(shape):
            return node
        return self._move("view_copy.default", shape, node, [*shape])

    def slice(self, node: Node, axis: int, begin: int, end: int) -> Node:
        """Insert a slice of a node, with its elements from ``begin`` to ``end`` along an axis; ``end`` is excluded."""
        shape = [*node.meta["val"].shape]
        shape[axis] = end - begin
        return self._move("slice_copy.Tensor", shape, node, axis, begin, end)

    def window(self, node: Node, sizes: Sequence[int], strides: Sequence[int], offset: int = 0) -> Node:
        """Insert an ``as_strided_copy`` of a node, with these sizes and strides.

        Strides and offset are in elements.
        """
        where = (offset,) if offset else ()
        return self._move("as_strided_copy.default", sizes, node, [*sizes], [*strides], *where)

    def replace(self, old: Node, new: Node) -> None:
        """Let all users of ``old`` use ``new`` instead. Then remove ``old`` and all ops that became unused."""
        self.redirect(old, new, ())
        self._drop(old)

    def redirect(self, old: Node, new: Node, apart: Container[Node]) -> None:
        """Let the users of ``old`` use ``new`` instead. Skip ``new`` itself and the nodes in ``apart``."""
        with self._renames():
            old.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new and user not in apart)

    def _drop(self, node: Node) -> None:
        sources = node.all_input_nodes
        self.graph.erase_node(node)
        for source in sources:
            if source.op == "call_function" and not source.users:
                self._drop(source)

    def is_constant(self, node: Node) -> bool:
        """Return whether a node is a parameter or a constant of the model's code.

        Return False in a branch or a loop's body, because their graphs do not contain this information.
        """
        return self._is_top and node.op == "placeholder" and node.name in self._constants()

    def occupancy(self, before: Occupancy | None = None, workspace: Workspace | None = None) -> Occupancy:
        """Return the estimate of the memory in use during each op after the link.

        ``before`` is an estimate of the same graph before a tiling. It makes this function faster. ``workspace``
        returns the bytes that an op needs besides its inputs and its output; None means that no op needs any.
        """
        signature = self._program.graph_signature
        constants = {*self._constants(), *signature.inputs_to_buffers}
        # Inputs of a branch or a loop's body have their memory in the enclosing graph.
        given = (node.name for node in self.graph.nodes if node.op == "placeholder" and not self._is_top)
        return Occupancy(self.graph, constants.union(given), before=before, workspace=workspace)

    def transpose_constant(self, node: Node) -> bool:
        """Replace a constant matrix by its transpose. If the matrix has other uses, return False and change nothing."""
        import torch

        names = self._constants()
        if not self.is_constant(node) or len(node.users) != 1:
            return False
        store = self._store(names[node.name])
        value = store[names[node.name]]
        others = (name for name in names if name != node.name)
        if any(self._store(names[other])[names[other]].data_ptr() == value.data_ptr() for other in others):
            return False
        # The copies of a program to which the forms are applied share tensors, so they can share transposes.
        key = "transposed", value.data_ptr(), value.dtype, tuple(value.shape), value.stride()
        if key not in self.known:
            self.known[key] = value.detach().t().contiguous()
        turned = self.known[key]
        is_parameter = node.name in self._program.graph_signature.inputs_to_parameters
        store[names[node.name]] = torch.nn.Parameter(turned, requires_grad=False) if is_parameter else turned
        node.meta["val"] = node.meta["val"].t().contiguous()
        return True

    def _constants(self) -> dict[str, str]:
        """Map the placeholder of each constant to the name of its tensor.

        Buffers are left out, because other methods may change them.
        """
        signature = self._program.graph_signature
        return {**signature.inputs_to_parameters, **signature.inputs_to_lifted_tensor_constants}

    def _store(self, name: str) -> dict[str, torch.Tensor]:
        state: dict[str, torch.Tensor] = self._program.state_dict
        return state if name in state else self._program.constants


def _result_of(node: Node) -> Any:
    """Return the fake result of an op.

    Most ops are called. Norms would take ten times as long as other ops, and their results are known.
    """
    from torch.fx import Node
    from torch.utils._pytree import tree_map_only

    values, named = tree_map_only(Node, lambda item: item.meta["val"], (node.args, node.kwargs))
    target: Any = node.target
    sources = node.all_input_nodes
    if target not in (edge(_BATCH_NORM), edge(_LAYER_NORM)) or not is_plain(*sources):
        return target(*values, **named)
    if any(value(source).requires_grad for source in sources):
        return target(*values, **named)
    tensor = values[0]
    normed = tensor.new_empty_strided(tensor.shape, tensor.stride())
    if target is edge(_BATCH_NORM):
        return normed, tensor.new_empty(0), tensor.new_empty(0)
    kept = tensor.dim() - len(values[1])
    means = (*tensor.shape[:kept], *[1] * (tensor.dim() - kept))
    return normed, tensor.new_empty(means), tensor.new_empty(means)


def _is_fake(value: Any) -> bool:
    from torch._subclasses import FakeTensor

    return isinstance(value, FakeTensor)


def _key_of(argument: Any) -> Hashable:
    """Return the part of a cache key that identifies an argument of an op; None if the argument cannot be in a key.

    For a node, this part consists of the dtype and layout of the node's tensor.
    """
    import torch
    from torch.fx import Node

    if isinstance(argument, Node):
        found = argument.meta["val"]
        if not isinstance(found, torch.Tensor):
            return None
        layout = *found.shape, *found.stride(), found.storage_offset()
        return (found.dtype, layout, found.requires_grad) if all(isinstance(size, int) for size in layout) else None
    if isinstance(argument, (list, tuple)):
        keys = tuple(map(_key_of, argument))
        return None if None in keys else keys
    if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return None
    # 1, 1.0 and True are equal, but ops tell them apart.
    return type(argument), argument


def _rename_outputs(program: ExportedProgram, module: GraphModule) -> AbstractContextManager[None]:
    """Return a context manager. Inside its block, replacing an output also renames it in the method's signature."""
    return module._set_replace_hook(program.graph_signature.get_replace_hook())


@cache
def edge(op: str) -> Any:
    """Return an ATen op of the edge dialect by its name, such as ``linear.default``."""
    from executorch.exir.dialects._ops import ops

    name, overload = op.split(".")
    return getattr(getattr(ops.edge.aten, name), overload)


def arguments(node: Node) -> tuple[Any, ...]:
    """Return the positional arguments of a node."""
    return node.args


def value(node: Node) -> torch.Tensor:
    """Return the fake tensor in a node's metadata. It has the element type and the sizes of the node's output."""
    found: torch.Tensor = node.meta["val"]
    return found


def is_plain(*nodes: Node) -> bool:
    """Return whether all nodes are contiguous float32 tensors with static sizes."""
    import torch

    found = [node.meta.get("val") for node in nodes]
    return all(isinstance(item, torch.Tensor) and item.dtype is torch.float32 and is_laid_out(item) for item in found)


def is_laid_out(tensor: Any) -> bool:
    """Return whether a value is a contiguous tensor with static sizes and at least one element."""
    static = all(isinstance(size, int) and size > 0 for size in tensor.shape)
    return static and tensor.is_contiguous()
