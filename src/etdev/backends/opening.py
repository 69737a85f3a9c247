"""Function that loads a config from all sources, and checks its rules, including the rules of each backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from etdev.backends.check import check_partitioners
from etdev.config.loader import LoadedConfig, load_config


def open_config(
    config: str | os.PathLike[str] | None = None,
    *,
    profile: str | None = None,
    overrides: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """Load, merge and validate a config.

    If ``config`` is None, search the current folder for the config file. If ``environ`` is None, use the environment of
    the process. Raises :class:`~etdev.errors.ConfigError` with all problems.
    """
    return load_config(
        None if config is None else Path(config),
        profile=profile,
        overrides=overrides or (),
        environ=os.environ if environ is None else environ,
        cwd=Path.cwd(),
        checks=(check_partitioners,),
    )
