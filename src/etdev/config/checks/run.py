"""Where targets are built: keys that fit the executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.raw import is_settled, table_at
from etdev.config.issues import CONFLICT, Issue


def check_run(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Only Ray has clusters."""
    run = table_at(data, "run")
    local = run["executor"] == "local" if "executor" in run else is_settled(run, "executor")
    if local and run.get("ray_address"):
        message = '`run.ray_address` has no effect unless `run.executor` is "ray"'
        yield Issue(("run", "ray_address"), message, CONFLICT, "remove it, or add the executor")
