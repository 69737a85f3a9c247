"""Which nodes of a graph the reference backend takes."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Set
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from etdev.backends.base import OptionError
from etdev.backends.reference import ReferenceOptions
from etdev.backends.reference.names import kernels, unknown_name
from etdev.backends.reference.weights import computed_weights
from etdev.program.inplace import parse_operator

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node


def wanted_kernels(options: ReferenceOptions) -> frozenset[str]:
    """Kernels of the ops that the config asks for.

    Raises :class:`~etdev.backends.base.OptionError` for a name without one.
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
    """The kernel of an op by its name in a graph, where the kernel is called otherwise: ``aten.sum.dim_IntList``."""
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
    """Name of the kernel that writes the result of an ATen op to memory that it is given."""
    from executorch.exir.dialects.edge.op.api import to_variant
    from torchgen.model import SchemaKind

    try:
        name: str = to_variant(op, SchemaKind.out).name()
    except (AssertionError, RuntimeError):
        return None
    return name


def choose_nodes(graph_module: GraphModule, options: ReferenceOptions, computed: Set[Node] = frozenset()) -> set[Node]:
    """The nodes of one graph, without its branches and loop bodies, that may be in a delegate.

    Those that are ``computed`` of weights alone are in no part of it: lowering moves them. Where delegates own their
    weights, they are of whoever uses them.
    """
    wanted = wanted_kernels(options)
    first, last = options.part
    found = list(_weights(graph_module, computed))
    total = sum(weight for _, weight in found)
    chosen, before = set(), 0
    for node, weight in found:
        # An op belongs to the part in which its middle lies, so that parts that meet share none and leave none out.
        if first * total <= before + weight / 2 < last * total and _is_wanted(node, wanted, options):
            chosen.add(node)
        before += weight
    if not options.own_weights:
        chosen |= {node for node in computed if _is_wanted(node, wanted, options)}
    # What takes an op's outputs apart has to be with it, or lies between it and what comes after it.
    return chosen | {user for node in chosen for user in node.users if user.target is operator.getitem}


def in_modules(node: Node, patterns: tuple[str, ...]) -> bool:
    """Whether an op comes from a module that one of the patterns names, or from one inside it; without any, yes."""
    paths = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    return not patterns or any(fnmatchcase(path, pattern) for path in paths for pattern in patterns)


def is_taken(node: Node, options: ReferenceOptions) -> bool:
    """Whether a node may be in a delegate, wherever it stands."""
    return _kernel(node) in wanted_kernels(options) and _is_nestable(node)


def _weights(graph_module: GraphModule, computed: Set[Node]) -> Iterator[tuple[Node, int]]:
    """Every call in order but the ``computed``, and how many ops it is: a delegate's are those inside it, a ``getitem``
    is none."""
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
    """The kernel that an op of the edge dialect runs on; None for what is no such op, or has none."""
    from executorch.exir.dialects.edge._ops import EdgeOpOverload

    if node.op != "call_function" or not isinstance(node.target, EdgeOpOverload):
        return None
    return _out_variant(node.target._op)


def _is_nestable(node: Node) -> bool:
    """Whether a nested program can compute it: of tensors and whole numbers tensors, whose sizes are known before, and
    the same ones each time."""
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
    """Whether a number, or a size of a tensor, is read out of a tensor."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(value))
