"""The installed version of ExecuTorch, for tests of what differs from one version to another."""

from __future__ import annotations

import re

from etdev import compat

EXECUTORCH = tuple(map(int, re.findall(r"\d+", compat.installed() or "0")[:3]))
"""Numbers of the release: (1, 5, 1); (0,) where executorch is not installed."""
