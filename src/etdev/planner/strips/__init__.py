"""Plans for thousands of buffers of few different sizes."""

from __future__ import annotations

from etdev.planner.strips.plans import Strips

__all__ = ["Strips"]
