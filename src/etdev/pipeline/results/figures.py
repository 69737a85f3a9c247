"""Figures of a built program: budgets limit them, baselines compare them and ``etdev.lock`` keeps them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Figures(BaseModel):
    """Sizes of one target's file, and numbers of ops in and outside delegates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: int = Field(ge=0)
    """Bytes of the ``.pte``, without external weights."""
    weights: int = Field(ge=0)
    """Bytes of constants and of data that delegates look up by name, in the file or in its external weights.

    Weights inside a blob that etdev cannot read are not included.
    """
    memory: dict[str, int]
    """Planned bytes per device, including those of programs in delegates; always has ``cpu``."""
    copies: int = Field(ge=0)
    """Largest number of bytes that a call of any method copies between the host and devices, both ways together."""
    delegated_ops: int | None = Field(None, ge=0)
    """Ops in delegates, over all methods; None if unknown, since a file does not state it."""
    undelegated_ops: int | None = Field(None, ge=0)
    """Ops on the runtime's own kernels, over all methods; None if unknown."""

    @property
    def delegated(self) -> float | None:
        """Share of the ops that are in delegates, 0 to 1; None if unknown, or without ops."""
        if self.delegated_ops is None or self.undelegated_ops is None:
            return None
        total = self.delegated_ops + self.undelegated_ops
        return self.delegated_ops / total if total else None
