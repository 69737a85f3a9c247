"""Functions that choose the nodes of a graph for delegates of the reference backend."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Set
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from etdev.backends.base import OptionError
from etdev.backends.reference.names import kernels, unknown_name
from etdev.backends.reference.options import ReferenceOptions
from etdev.backends.reference.weights import computed_weights
from etdev.program.analysis.inplace import parse_operator

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def wanted_kernels(options: ReferenceOptions) -> frozenset[str]:
    """Return the kernels for the operators in the config's ``ops``.

    Raises :class:`~etdev.backends.base.OptionError` for a name that has no kernel.
    """
    known = kernels()
    if options.ops == "all":
        return known
    wanted: set[str] = set()
    for number, text in enumerate(options.ops):
        found = parse_operator(text, known) or _kernel_of_overload(text, known)
        if not found:
            raise OptionError(unknown_name(text, number, known))
        wanted.update(found)
    return frozenset(wanted)


def _kernel_of_overload(text: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return the kernel for the name that an op has in a graph, such as ``aten.sum.dim_IntList``.

    The overload name of a kernel may differ from that of the op in the graph. Return ``()`` if there is no kernel.
    """
    import torch

    found: Any = torch.ops
    try:
        for part in text.removeprefix("torch.ops.").replace("::", ".").split("."):
            found = getattr(found, part)
        name = _out_variant(found)
    except AttributeError:
        return ()
    return (name,) if name in known else ()


@cache
def _out_variant(op: Any) -> str | None:
    """Return the name of the out variant of an ATen op, or None if the op has no out variant.

    The out variant is the kernel that writes its result to memory of the caller.
    """
    from executorch.exir.dialects.edge.op.api import to_variant
    from torchgen.model import SchemaKind

    try:
        name: str = to_variant(op, SchemaKind.out).name()
    except (AssertionError, RuntimeError):
        return None
    return name


def choose_nodes(graph_module: GraphModule, options: ReferenceOptions, computed: Set[Node] = frozenset()) -> set[Node]:
    """Return the nodes of one graph that may be in a delegate. Branches and loop bodies are separate graphs.

    ``computed`` contains the nodes that depend only on weights. The option ``part`` ignores these nodes, because
    lowering moves them. With the option ``own_weights``, the result excludes these nodes. In this case, each delegate
    later includes the computed weights that it uses.
    """
    wanted = wanted_kernels(options)
    first, last = options.part
    found = list(_weights(graph_module, computed))
    total = sum(weight for _, weight in found)
    chosen, before = set(), 0
    for node, weight in found:
        # An op belongs to the range in which its middle is. Adjacent ranges then share no op and leave none out.
        if first * total <= before + weight / 2 < last * total and _is_wanted(node, wanted, options):
            chosen.add(node)
        before += weight
    if not options.own_weights:
        chosen |= {node for node in computed if _is_wanted(node, wanted, options)}
    # A `getitem` must be in the delegate of its op. Otherwise it would be between the op and its users.
    return chosen | {user for node in chosen for user in node.users if user.target is operator.getitem}


def in_modules(node: Node, patterns: tuple[str, ...]) -> bool:
    """Return True if the module of an op, or an enclosing module, matches one of the patterns.

    Also return True if there are no patterns.
    """
    paths = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return not patterns or any(fnmatchcase(path, pattern) for path in paths for pattern in patterns)


def is_taken(node: Node, options: ReferenceOptions) -> bool:
    """Return True if a node may be in a delegate, regardless of the options ``part`` and ``modules``."""
    return _kernel(node) in wanted_kernels(options) and _is_nestable(node)


def _weights(graph_module: GraphModule, computed: Set[Node]) -> Iterator[tuple[Node, int]]:
    """Yield each call in a graph, in order, with its weight: the number of ops that it represents.

    The weight of an existing delegate is the number of ops inside the delegate. ``computed`` nodes and ``getitem``
    nodes are omitted.
    """
    from executorch.exir.delegate import executorch_call_delegate

    for node in graph_module.graph.nodes:
        if node.target is executorch_call_delegate:
            inside = getattr(graph_module, str(node.args[0].target)).original_module
            own = set(computed_weights(inside))
            yield node, sum(1 for each in inside.graph.nodes if _kernel(each) is not None and each not in own)
        elif node not in computed and _kernel(node) is not None:
            yield node, 1


def _is_wanted(node: Node, wanted: frozenset[str], options: ReferenceOptions) -> bool:
    return _kernel(node) in wanted and in_modules(node, options.modules) and _is_nestable(node)


def _kernel(node: Node) -> str | None:
    """Return the kernel of an op of the edge dialect, or None for other nodes and for ops without a kernel."""
    from executorch.exir.dialects.edge._ops import EdgeOpOverload

    if node.op != "call_function" or not isinstance(node.target, EdgeOpOverload):
        return None
    return _out_variant(node.target._op)


def _is_nestable(node: Node) -> bool:
    """Return True if a nested program can compute a node.

    A nested program computes tensors from tensors and integers. The sizes of the results must not depend on the content
    of tensors, and the values must not be random.
    """
    import torch

    if torch.Tag.nondeterministic_seeded in node.target._op.tags:  # type: ignore[union-attr]
        return False
    given = [value for each in node.all_input_nodes for value in _values(each)]
    made = list(_values(node))
    return (
        all(isinstance(value, torch.Tensor | torch.SymInt | int) for value in given)
        and all(isinstance(value, torch.Tensor) for value in made)
        and not any(_depends_on_data(value) for value in (*given, *made))
    )


def _values(node: Node) -> tuple[Any, ...]:
    value = node.meta.get("val")
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _depends_on_data(value: Any) -> bool:
    """Return True if a number, or a size of a tensor, depends on the content of a tensor."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(value))
