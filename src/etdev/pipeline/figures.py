"""The figures of a built program that budgets limit, baselines compare and ``etdev.lock`` keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from etdev.errors import LinkError, ProgramError
from etdev.pipeline.nested import device_memory, nested_program, reference_delegates
from etdev.pipeline.transfers import copies_per_call
from etdev.program import Program
from etdev.program.footprint import constant_bytes, named_bytes

if TYPE_CHECKING:
    from etdev.pipeline.result import MethodResult, TargetResult


class Figures(BaseModel):
    """What one target's file takes, and how much of the model is in delegates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: int = Field(ge=0)
    """Bytes of the ``.pte``."""
    weights: int = Field(ge=0)
    """Bytes of constants in it, and of the data that delegates look up by name; weights inside a blob that etdev cannot
    read are not among them."""
    memory: dict[str, int]
    """Planned bytes per device, those of programs in delegates included; ``cpu`` always."""
    copies: int = Field(ge=0)
    """Most bytes that a call of any method copies between the host and devices, both ways together."""
    delegated_ops: int | None = Field(None, ge=0)
    """Ops in delegates, of all methods; None where that is not known: a file does not say."""
    undelegated_ops: int | None = Field(None, ge=0)
    """Ops on the runtime's own kernels; None where that is not known."""

    @property
    def delegated(self) -> float | None:
        """Share of the ops that are in delegates, 0 to 1; None if it is not known, or if there are no ops."""
        if self.delegated_ops is None or self.undelegated_ops is None:
            return None
        total = self.delegated_ops + self.undelegated_ops
        return self.delegated_ops / total if total else None


def figures_of(result: TargetResult, program: Program) -> Figures:
    """The figures of a target: ``program`` is what its file holds."""
    return measure_program(program, result.size, result.methods)


def measure_program(program: Program, size: int, methods: Sequence[MethodResult] = ()) -> Figures:
    """The figures of a file of ``size`` bytes. Without ``methods``, how lowering split them is not known."""
    return Figures(
        file=size,
        weights=weight_bytes(program),
        memory={device: planned + nested for device, (planned, nested) in device_memory(program).items()},
        copies=max((copies_per_call(plan).total for plan in program.execution_plan), default=0),
        delegated_ops=sum(method.delegated_ops for method in methods) if methods else None,
        undelegated_ops=sum(item.count for method in methods for item in method.undelegated) if methods else None,
    )


def weight_bytes(program: Program) -> int:
    """Constants and named data of a program and of the programs in its reference delegates, each counted once."""
    return sum(constant_bytes(each) + named_bytes(each) for each in (program, *_nested(program)))


def _nested(program: Program) -> Iterator[Program]:
    seen = set()
    for plan, index, delegate in reference_delegates(program):
        if delegate.processed not in seen:
            seen.add(delegate.processed)
            with suppress(ProgramError, LinkError):
                yield nested_program(program, plan, index)
