"""What a template that is added to a project has to know of it."""

from __future__ import annotations

from pathlib import Path

from etdev.config.files import find_config
from etdev.config.loader import load_config
from etdev.config.models import Config

_PROFILE = "ci"


def build_command(folder: Path) -> str:
    """The command that builds the project of a folder on a machine without its devices, such as those of CI.

    With the profile ``ci`` if it has one; devices that etdev itself can simulate are. Raises
    :class:`~etdev.errors.ConfigError`.
    """
    folder = folder.resolve()
    config = load_config(find_config(folder), environ={}, cwd=folder).config
    command = "etdev build"
    if devices := _simulated(config):
        command += " --device-map " + ",".join(f"{device}=sim" for device in devices)
    return command + (f" --profile {_PROFILE}" if _PROFILE in config.profiles else "")


def _simulated(config: Config) -> list[str]:
    """The devices of the backend that has no others than simulated ones everywhere."""
    partitioners = [item for target in config.targets.values() for item in target.partitioners]
    devices = {item.device for item in partitioners if item.backend == "reference" and item.device}
    return sorted(devices - {"cpu"})
