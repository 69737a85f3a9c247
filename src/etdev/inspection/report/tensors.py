"""Tensors in planned memory, with all known facts about each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from etdev.inspection.lifetimes import TensorLife
from etdev.inspection.naming import dtype_name
from etdev.linker.state import state_name
from etdev.page.model import NONE, Tensors, Texts
from etdev.program import model as m
from etdev.program.analysis.storage import MethodMemory
from etdev.program.devices import is_device_copy

TensorKind: TypeAlias = Literal["input", "state", "kernel", "delegate", "transfer", "alias"]
"""Kind of writer of a tensor's content.

``input``: the caller. ``state``: an earlier call of any method. ``kernel``, ``delegate`` and ``transfer``: an
instruction of this kind. ``alias``: instructions that write other tensors of the same storage.
"""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor in planned memory."""

    life: TensorLife
    name: str | None
    kind: TensorKind
    dtype: str
    shape: str
    writer: int
    """Position of the instruction that first writes the tensor; :data:`NONE` if there is none.

    For an alias, this is the last instruction that writes the storage before the first use of the alias.
    """
    reason: str | None
    """Reason why the tensor is written in place or has bytes of its own; None if unknown."""


def tensors(
    plan: m.ExecutionPlan,
    memory: MethodMemory,
    lives: Sequence[TensorLife],
    input_names: Sequence[str],
    reasons: Mapping[int, str],
) -> tuple[Tensor, ...]:
    """Return a method's tensors in planned memory, in the order of ``lives``.

    ``reasons`` maps value indices of outputs to the reason why the output is or is not in place.
    """
    names = _names(plan, input_names)
    writers = _first_writers(memory)
    calls = memory.reaching.flow.instructions
    found = []
    for life in lives:
        tensor = plan.values[life.value]
        assert isinstance(tensor, m.Tensor)
        writer = writers.get(life.value)
        found.append(
            Tensor(
                life=life,
                name=names.get(life.value),
                kind=_kind(plan, memory, life, None if writer is None or writer < 0 else calls[writer], writer),
                dtype=dtype_name(tensor.scalar_type),
                shape=shape_text(tensor),
                writer=_filled_by(memory, life) if writer is None else writer,
                reason=reasons.get(life.value),
            )
        )
    return tuple(found)


def columns(rows: Sequence[Tensor], shared: Mapping[int, int], texts: Texts) -> Tensors:
    """Return the columns of the page's table of tensors.

    ``shared`` maps each storage with several tensors to the storage's row on the page.
    """
    return Tensors(
        value=tuple(row.life.value for row in rows),
        name=tuple(texts.number(row.name) for row in rows),
        kind=tuple(texts.number(row.kind) for row in rows),
        dtype=tuple(texts.number(row.dtype) for row in rows),
        shape=tuple(texts.number(row.shape) for row in rows),
        offset=tuple(row.life.offset for row in rows),
        size=tuple(row.life.size for row in rows),
        start=tuple(row.life.start for row in rows),
        end=tuple(row.life.end for row in rows),
        writer=tuple(row.writer for row in rows),
        storage=tuple(shared.get(row.life.storage, NONE) for row in rows),
        reason=tuple(texts.number(row.reason) for row in rows),
    )


def _names(plan: m.ExecutionPlan, inputs: Sequence[str]) -> dict[int, str]:
    found: dict[int, str] = {}
    for position, value in enumerate(plan.outputs):
        found[value] = f"output {position}"
    for position, value in enumerate(plan.inputs):
        found[value] = f"input {inputs[position]}" if position < len(inputs) else f"input {position}"
    for value, _ in plan.tensors():
        name = state_name(plan, (value,))
        if name is not None:
            found[value] = name
    return found


def _first_writers(memory: MethodMemory) -> dict[int, int]:
    """Map each value to the position of its first write; -1 means that the caller writes the value."""
    found: dict[int, int] = {}
    for write in memory.reaching.writes:
        found[write.place] = min(write.position, found.get(write.place, write.position))
    return found


def _filled_by(memory: MethodMemory, life: TensorLife) -> int:
    """Return the position of the last write to an alias's storage before the first use of the alias.

    Return :data:`NONE` if there is no such write.
    """
    before = [instant for instant in memory.storages[life.storage].writes if 0 < instant <= life.start]
    return before[-1] - 1 if before else NONE


def _kind(
    plan: m.ExecutionPlan, memory: MethodMemory, life: TensorLife, call: m.Instruction | None, writer: int | None
) -> TensorKind:
    if writer is not None and writer < 0:
        return "input"
    if memory.storages[life.storage].persistent:
        return "state"
    if isinstance(call, m.DelegateCall):
        return "delegate"
    if isinstance(call, m.KernelCall):
        return "transfer" if is_device_copy(plan.operators[call.op_index]) else "kernel"
    return "alias"


def shape_text(tensor: m.Tensor) -> str:
    """Return a tensor's shape as text, such as ``[1, 64] at most``."""
    bound = {
        m.TensorShapeDynamism.STATIC: "",
        m.TensorShapeDynamism.DYNAMIC_BOUND: " at most",
        m.TensorShapeDynamism.DYNAMIC_UNBOUND: " without limit",
    }
    return f"[{', '.join(map(str, tensor.sizes))}]{bound[tensor.shape_dynamism]}"
