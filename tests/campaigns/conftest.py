"""The files that the campaigns damage."""

from __future__ import annotations

from program.conftest import make_real

__all__ = ["make_real"]
