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
        yield
