"""Commands that messages advise the user to run."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from etdev.config.parsing.config_files import display, find_config
from etdev.errors import ConfigError
from etdev.pipeline.project import Project


def build_command(project: Project, target: str) -> str:
    """Return the command that builds a target in the working folder.

    The command has the option ``-c``, unless etdev uses this config in the working folder by default. It has the
    project's profile.
    """
    path, here, profile = project.loaded.path, Path.cwd(), project.loaded.profile
    config = [] if _is_default(path, here) else ["-c", quote(display(path, here))]
    return " ".join(["etdev build", *config, *([] if profile is None else ["-p", quote(profile)]), target])


def _is_default(config: Path, folder: Path) -> bool:
    """Return True if ``config`` is the config that etdev uses in ``folder`` without the option ``-c``."""
    try:
        return find_config(folder) == config
    except ConfigError:
        return False
