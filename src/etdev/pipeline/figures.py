"""The figures of a built program that budgets limit, baselines compare and ``etdev.lock`` keeps."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Figures(BaseModel):
    """What one target's file takes, and how much of the model is in delegates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: int = Field(ge=0)
    """Bytes of the ``.pte``, without external weights."""
    weights: int = Field(ge=0)
    """Bytes of constants, and of the data that delegates look up by name, in it or in its external weights; weights
    inside a blob that etdev cannot read are not among them."""
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
