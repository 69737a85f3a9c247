"""Application of forms to a lowered method. Forms replace ops outside of delegates, also in branches and loops."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etdev.lowering import convolution, matrix, movement, pointwise, pooling, tiling
from etdev.lowering.graph import Editor, FormSettings

if TYPE_CHECKING:
    from torch.export import ExportedProgram

PASSES: dict[str, Callable[[Editor], int]] = {
    "linear": matrix.keep_linear,
    "addmm": matrix.split_addmm,
    "pow": pointwise.use_products_for_powers,
    "clamp": pointwise.use_hardtanh_for_clamp,
    "gelu": pointwise.use_sigmoid_for_gelu,
    "tiling": tiling.tile,
    "pooling": pooling.pool_by_shifts,
    "convolution": convolution.multiply_matrices,
    "movement": movement.walk_strides,
}
"""Maps each form to the function that applies the form and returns the number of replaced ops."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of applying forms to a method."""

    counts: Mapping[str, int]
    """Number of ops that each form replaced."""
    is_tiled: bool = False
    """True if some op was tiled although the whole op would fit in the memory of the stock lowering."""
    left: tuple[int, ...] = ()
    """One estimate for each convolution that keeps a slow kernel because no tiling fits the limit.

    The estimate is the peak in bytes if this convolution used a faster kernel.
    """


def apply_forms(
    program: ExportedProgram,
    settings: FormSettings,
    known: dict[Hashable, Any] | None = None,
    until_other_than: Container[str] | None = None,
) -> Applied:
    """Apply the forms to a method in the edge dialect.

    This function changes the program's graph and its tables of tensors in place. The code that torch.fx generated from
    the graph stays as it was. Tensors that the program shares with other programs do not change. ``known`` is a cache
    that several calls may share. It contains results of searches for tiles and of ops on fake tensors, and transposed
    weights. Do not free the tensors of the programs in these calls while ``known`` is in use.

    ``until_other_than`` contains names of forms. If it is given, stop as soon as any other form replaces an op. The
    graph of a stopped call is incomplete.
    """
    from torch.fx import GraphModule

    program._state_dict = dict(program.state_dict)
    program._constants = dict(program.constants)
    program._graph_signature = copy.deepcopy(program.graph_signature)
    done: Counter[str] = Counter()
    is_tiled, left = False, tuple[int, ...]()
    for module in [part for part in program.graph_module.modules() if isinstance(part, GraphModule)]:
        editor = Editor(program, module, settings, known)
        for name, change in PASSES.items():
            if name in settings.names:
                done[name] += change(editor)
                if done[name] and until_other_than is not None and name not in until_other_than:
                    return Applied({name: count for name, count in done.items() if count})
        is_tiled, left = is_tiled or editor.is_tiled, left + editor.left
    return Applied({name: count for name, count in done.items() if count}, is_tiled, left)
