"""Loads the config of a command that runs none of its code."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etdev.config.loader import LoadedConfig


def load(config: Path | None, *, profile: str | None, overrides: Sequence[str] | None) -> LoadedConfig:
    """The config of the current folder, checked against the models and the backends that it names."""
    from etdev.backends.check import check_partitioners
    from etdev.config.loader import load_config

    return load_config(
        config,
        profile=profile,
        overrides=overrides or (),
        environ=os.environ,
        cwd=Path.cwd(),
        checks=(check_partitioners,),
    )
