"""Collection of facts about an existing project to which a template is added."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from etdev import tosa_tools
from etdev.config.loader import LoadedConfig, load_config
from etdev.config.models import Config, Target
from etdev.config.module_imports import imported_packages, missing_imports
from etdev.config.parsing.config_files import find_config, has_config
from etdev.errors import ConfigError, UsageError
from etdev.extras import extras_of
from etdev.files import real_path
from etdev.templates import Project

_PROFILE = "ci"


def read_project(folder: Path) -> Project:
    """Return facts about the project in a folder.

    The build command uses the profile ``ci`` if the config has this profile. The command simulates the devices that
    etdev can simulate. Raises :class:`~etdev.errors.ConfigError` for an invalid config. Raises :class:`UsageError` if
    the name of the output folder cannot be used in the files for CI.
    """
    folder = real_path(folder)
    path = find_config(folder)
    loaded = load_config(path, environ={}, cwd=folder)
    profile = _PROFILE if _PROFILE in loaded.config.profiles else None
    if profile is not None:
        loaded = load_config(path, profile=profile, environ={}, cwd=folder)
    config = loaded.config
    tools = tosa_tools.portable_command() if _needs_tosa_tools(config) else ""
    return Project(_build_command(config, profile), _out(loaded), ",".join(_extras(config, folder)), tools)


def missing_extras(folder: Path) -> tuple[str, ...]:
    """Return the extras of etdev that install packages that the project's model imports and this machine lacks.

    Return an empty tuple if the config is invalid, because the build then says so.
    """
    folder = real_path(folder)
    try:
        loaded = load_config(find_config(folder), environ={}, cwd=folder) if has_config(folder) else None
    except ConfigError:
        return ()
    entry = loaded.config.model.entry if loaded is not None else None
    if loaded is None or entry is None:
        return ()
    return extras_of(missing_imports(entry, loaded.base("model", "entry")))


def _build_command(config: Config, profile: str | None) -> str:
    command = "etdev build"
    if devices := _simulated(config):
        command += " --device-map " + ",".join(f"{device}=sim" for device in devices)
    return command + (f" --profile {profile}" if profile is not None else "")


def _simulated(config: Config) -> list[str]:
    """Return the devices in the config that etdev can simulate on any machine: those of the backend ``reference``."""
    partitioners = [item for target in config.targets.values() for item in target.partitioners]
    devices = {item.device for item in partitioners if item.backend == "reference" and item.device}
    return sorted(devices - {"cpu"})


def _out(loaded: LoadedConfig) -> str:
    """Return the output folder's path relative to the config's folder, or the absolute path that the config states.

    Unlike the resolved path, the result is the same on all machines.
    """
    stated, path = loaded.config.project.out, loaded.resolve("project", "out")
    out = stated if os.path.isabs(stated) else os.path.relpath(path, loaded.root)
    if not re.fullmatch(r"[A-Za-z0-9._/][A-Za-z0-9._/@+-]*", out):
        raise UsageError(
            f"the folder name {out!r} cannot be used in the files for CI, because some CI systems do not allow it",
            where=loaded.where("project", "out"),
            hint="choose a name that consists of letters, digits, `.`, `_`, `-` and `/`",
        )
    return out


def _extras(config: Config, folder: Path) -> Iterator[str]:
    """Yield the extras of etdev that the config or the modules next to it need. Do not run these modules."""
    yield "build"
    if config.model.hf is not None or _imports_transformers(folder):
        yield "hf"
    used = _backends(config)
    yield from (extra for extra in ("openvino", "ethos-u") if extra in used)
    if any(map(_needs_native_runtime, config.targets.values())):
        yield "native"
    if config.run.executor == "ray":
        yield "ray"


def _imports_transformers(folder: Path) -> bool:
    return any("transformers" in imported_packages(file) for file in sorted(folder.glob("*.py")))


def _backends(config: Config) -> set[str]:
    """Return the backends of all targets."""
    return {item.backend for target in config.targets.values() for item in target.partitioners}


def _needs_native_runtime(target: Target) -> bool:
    return bool(target.runner) or target.budget.ram is not None or "native" in target.verify.require


def _needs_tosa_tools(config: Config) -> bool:
    """Return True if a target has a backend or a quantization scheme for processors of Arm."""
    used = {config.quantize[target.quantize].scheme for target in config.targets.values() if target.quantize}
    return bool(_backends(config) & {"ethos-u", "cortex-m"} or used & {"arm-ethos-u", "cortex-m"})
