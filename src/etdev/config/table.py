"""Base class of all tables of the config."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """Immutable table of the config. It rejects unknown keys, and does not convert values between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
