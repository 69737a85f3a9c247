"""Packages that a build requires, and errors for packages that are missing or broken."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from etdev import backends
from etdev.backends.base import BUILD_EXTRA, UsesPackages, find_packages
from etdev.config.loader import LoadedConfig
from etdev.config.models import Config
from etdev.config.module_imports import missing_imports
from etdev.errors import MissingRequirementError, describe_exception
from etdev.extras import install_advice, install_command
from etdev.pipeline.project import Project

_ALWAYS = ("torch", "executorch", "torchao", "numpy")
"""Packages that every build needs. The last two come with executorch, which imports them."""

HF_EXTRA = install_command("hf")


@dataclass(frozen=True, slots=True)
class Requirement:
    """A package that has to be installed."""

    package: str
    remedy: str
    key: tuple[str, ...] | None
    """The config's key that requires the package; None if every config requires it."""


def build_packages(config: Config, target: str) -> tuple[str, ...]:
    """Return the packages whose versions may affect a target's file, including packages that are not installed.

    Packages that the project's own code imports are not included. They are known only after the code has run.
    """
    found = [*_ALWAYS]
    if config.model.weights is not None or config.model.hf is not None:
        found.append("safetensors")
    if config.model.hf is not None:
        found.append("transformers")
    for step in config.targets[target].partitioners:
        backend = backends.get(step.backend)
        found += backend.packages if isinstance(backend, UsesPackages) else ()
    return tuple(dict.fromkeys(found))


def required_packages(config: Config, targets: Collection[str]) -> Iterator[Requirement]:
    """Yield the packages that these targets need, in addition to the packages of their backends."""
    yield Requirement("torch", BUILD_EXTRA, None)
    yield Requirement("executorch", BUILD_EXTRA, None)
    if config.model.weights is not None:
        yield Requirement("safetensors", BUILD_EXTRA, ("model", "weights"))
    if config.model.hf is not None:
        yield Requirement("transformers", HF_EXTRA, ("model", "hf"))
    for name in dict.fromkeys(config.targets[target].quantize for target in targets):
        if name is not None:
            yield Requirement("torchao", BUILD_EXTRA, ("quantize", name))


def imported_requirements(loaded: LoadedConfig) -> Iterator[Requirement]:
    """Yield the packages that the project's model imports, and that are not installed here.

    Packages that :func:`required_packages` yields for the config are left out.
    """
    entry = loaded.config.model.entry
    if entry is None:
        return
    known = {need.package for need in required_packages(loaded.config, loaded.config.targets)}
    for package in missing_imports(entry, loaded.base("model", "entry")):
        if package not in known:
            remedy = install_advice(package) or f"install the package that provides {package!r}"
            yield Requirement(package, remedy, ("model", "entry"))


def require_packages(project: Project, targets: Collection[str], doing: str) -> None:
    """Raise an error early if a package that these targets need is missing."""
    for need in required_packages(project.config, targets):
        found = find_packages(need.package, remedy=need.remedy)
        if not found.available:
            raise MissingRequirementError(
                f"{doing} is not possible here: {found.reason}",
                where=project.where(*need.key) if need.key is not None else None,
                hint=found.remedy,
            )


def import_package(module: str) -> None:
    """Import a module of an installed package before any other code imports it.

    If the import fails, raise an error about the package. A failure in a later import would look like a bug of etdev.
    The import of an incompatible package may raise any exception.
    """
    try:
        importlib.import_module(module)
    except Exception as error:
        raise MissingRequirementError(
            f"the package {module.partition('.')[0]!r} is installed but cannot be imported: "
            f"{describe_exception(error)}",
            hint=f"reinstall the package: {BUILD_EXTRA.replace('install', 'install --force-reinstall')}",
        ) from error
