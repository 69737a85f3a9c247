"""Figures of a built program, for budgets, baselines and the lock."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Figures(BaseModel):
    """Figures of one target: sizes of its files and memory, and numbers of ops."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: int = Field(ge=0)
    """Bytes of the ``.pte``, without external weights."""
    weights: int = Field(ge=0)
    """Total bytes of constants and of named data for delegates, in the program and its data files.

    Weights inside a blob that etdev cannot read are not included.
    """
    memory: dict[str, int]
    """Planned bytes by device. The bytes include the plans of programs inside delegates.

    There is always an entry for ``cpu``.
    """
    banks: dict[str, int] | None = None
    """Bytes that the program uses in each memory bank, by the bank's name; None for a target without banks."""
    copies: int = Field(ge=0)
    """Bytes that one call copies between the host and devices, in both directions; the maximum over all methods."""
    delegated_ops: int | None = Field(None, ge=0)
    """Number of ops in delegates, over all methods; None if the file does not state the number."""
    undelegated_ops: int | None = Field(None, ge=0)
    """Number of ops that the runtime's own kernels run, over all methods; None if unknown."""

    @property
    def delegated(self) -> float | None:
        """Share of the ops that are in delegates, from 0 to 1; None if the share is unknown or there are no ops."""
        if self.delegated_ops is None or self.undelegated_ops is None:
            return None
        total = self.delegated_ops + self.undelegated_ops
        return self.delegated_ops / total if total else None
