"""Applying the table of forms to a lowered method: what is outside delegates, in branches and loop bodies too."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from etdev.backends.portable import convolution, matrix, movement, pieces, pointwise, pooling
from etdev.backends.portable.graph import Editor

if TYPE_CHECKING:
    from torch.export import ExportedProgram

PASSES: dict[str, Callable[[Editor], int]] = {
    "linear": matrix.keep_linear,
    "addmm": matrix.split_addmm,
    "pow": pointwise.use_products_for_powers,
    "clamp": pointwise.use_hardtanh_for_clamp,
    "gelu": pointwise.use_sigmoid_for_gelu,
    "pieces": pieces.work_in_pieces,
    "pooling": pooling.pool_by_shifts,
    "convolution": convolution.multiply_matrices,
    "movement": movement.walk_strides,
}
"""By the name of the form; each changes what it can and says how many ops these were."""


def apply_forms(program: ExportedProgram, names: Collection[str]) -> dict[str, int]:
    """Put these forms into a method in the edge dialect, and say how many ops each replaced.

    The program's graph and its tables of tensors change; tensors that others hold too stay what they are.
    """
    from torch.fx import GraphModule

    program._state_dict = dict(program.state_dict)
    program._constants = dict(program.constants)
    program._graph_signature = copy.deepcopy(program.graph_signature)
    done: Counter[str] = Counter()
    for module in [part for part in program.graph_module.modules() if isinstance(part, GraphModule)]:
        editor = Editor(program, module)
        for name, change in PASSES.items():
            if name in names:
                done[name] += change(editor)
        module.recompile()
    return {name: count for name, count in done.items() if count}
