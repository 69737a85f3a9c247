"""Base class of all tables of the config."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """A table of the config: immutable, without unknown keys, without implicit conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
