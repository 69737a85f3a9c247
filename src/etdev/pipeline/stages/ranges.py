"""Prevention of changes to the ranges of dynamic dimensions while a stage runs a graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@contextmanager
def fixed_ranges(program: ExportedProgram) -> Iterator[None]:
    """During the block, prevent lowering and emission from narrowing the ranges of dynamic dimensions.

    Both stages run the graph on fake tensors again. When torch chooses a backend for a convolution, it tests if the
    batch size is below 16. Torch records the result of this test as a bound of the dimension. For example, a maximum of
    32 was emitted as 15, and later lowerings of the same export would have the same bound. This was
    observed with executorch 1.4.1 and 1.5.1, and torch 2.13.0.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    values = [leaf for node in program.graph.nodes for leaf in tree_leaves(node.meta.get("val"))]
    sizes: list[Any] = [size for value in values if isinstance(value, torch.Tensor) for size in value.shape]
    environments = {id(size.node.shape_env): size.node.shape_env for size in sizes if isinstance(size, torch.SymInt)}
    with ExitStack() as stack:
        for environment in environments.values():
            stack.enter_context(environment.suppress_guards())
            stack.enter_context(_bounds_of_values(environment))
        yield


@contextmanager
def _bounds_of_values(environment: Any) -> Iterator[None]:
    """While guards are suppressed, keep the bounds that ``torch._check`` sets for values read from tensors.

    Each run of the graph makes new symbols for such values. Their only bounds are the assertions in the graph, which
    torch ignores while guards are suppressed.
    """
    assume = environment.guard_or_defer_runtime_assert

    def assume_and_bound(condition: Any, *given: Any, **named: Any) -> Any:
        sizes = [symbol for symbol in condition.free_symbols if not environment.is_unbacked_symint(symbol)]
        if len(sizes) < len(condition.free_symbols):
            fixed = {size: environment.var_to_range[size] for size in sizes}
            environment._refine_ranges(condition)
            environment.var_to_range.update(fixed)
        return assume(condition, *given, **named)

    environment.guard_or_defer_runtime_assert = assume_and_bound
    try:
        yield
    finally:
        del environment.guard_or_defer_runtime_assert
