"""Extension points: groups of entry points in which other packages register objects.

etdev reads the names of the objects from the metadata of the installed packages. It imports an object only when the
object's name is used. ``docs/extending.md`` states the contract of each group.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from etdev.errors import EtdevError, MissingRequirementError


@dataclass(frozen=True, slots=True)
class Group:
    """An extension point. Its name is the name of an entry-point group."""

    name: str
    """Name of the entry-point group."""
    kind: str
    """Word for one object of the group in messages, such as ``backend``."""
    contract: str
    """Requirement for objects of the group. If an object does not meet it, this text is the hint of the error."""
    built_in: tuple[str, ...]
    """Names of etdev's own objects. Other packages must not use these names."""
    takes_classes: bool = False
    """True if an object may be a class instead of a function."""


BACKENDS = Group(
    "etdev.backends",
    "backend",
    "a backend must have the members of etdev.backends.base.Backend",
    ("portable", "xnnpack", "openvino", "vulkan", "cuda", "reference", "ethos-u", "cortex-m", "coreml"),
)
EXECUTORS = Group(
    "etdev.executors",
    "executor",
    "an executor must be a function from a DelegateContext to a DelegateExecutor (etdev.runtime.interpreter.settings)",
    ("EtdevReferenceBackend",),
    takes_classes=True,
)
"""Extension point for executors. The name of an entry point is the id of the delegates that the object executes."""
NATIVE_LIBRARIES = Group(
    "etdev.native_libraries",
    "native library",
    "a native library must be a function without arguments that returns the path of a shared library",
    ("EtdevReferenceBackend", "OpenvinoBackend", "XnnpackBackend"),
)
"""Extension point for shared libraries that the native runtime opens.

The name of an entry point is the id of the delegates that the library runs. The built-in names are the backends that
the native runtime has by itself.
"""
CHECKS = Group(
    "etdev.checks",
    "check",
    "a check must have the members of etdev.verification.Check, and the same name as its entry point",
    (
        "bytes",
        "plan",
        "placement",
        "kernels",
        "budget",
        "growth",
        "runtime",
        "replay",
        "tosa",
        "native",
        "device",
        "accuracy",
        "latency",
    ),
    takes_classes=True,
)
"""Extension point for checks. The built-in names are in the order in which the checks run."""
PLANNERS = Group(
    "etdev.planners",
    "planner",
    "a planner must be a function from an etdev.planner.Problem to offsets, or use the decorator `bank_planner`",
    ("naive", "greedy", "best"),
)
DEPLOY_TRANSPORTS = Group(
    "etdev.deploy_transports",
    "deploy transport",
    "a deploy transport must be a function from an etdev.deployment.transports.Connection to a Transport",
    ("file", "sftp", "s3", "adb"),
    takes_classes=True,
)
"""Extension point for deploy transports. The name of an entry point is a URI scheme in lower case."""
WORKER_TRANSPORTS = Group(
    "etdev.worker_transports",
    "worker transport",
    "a worker transport must be a function from a sequence of WorkerSpec to a Transport (etdev.runtime.orchestrator)",
    ("thread", "process", "ray"),
    takes_classes=True,
)
TEMPLATES = Group(
    "etdev.templates",
    "template",
    "a template must be an etdev.templates.Template",
    ("minimal", "vision", "mcu", "multi-device", "ci", "llm"),
)


def names(group: Group) -> tuple[str, ...]:
    """Return all names of a group, built-in names first. This imports no object."""
    return (*group.built_in, *sorted({point.name for point in _points(group)} - {*group.built_in}))


def registered(group: Group) -> tuple[str, ...]:
    """Return the names that other packages register. This imports no object.

    Raises :class:`~etdev.errors.MissingRequirementError` if two packages use the same name, or if a package uses a
    built-in name.
    """
    found = sorted({point.name for point in _points(group)})
    for name in found:
        _find(group, name)
    return tuple(found)


def package_of(group: Group, name: str) -> str:
    """Return the package that registers ``name``. The name must be one of :func:`registered`."""
    point = _find(group, name)
    assert point is not None
    return _package(point)


def module_of(group: Group, name: str) -> str:
    """Return the module that defines ``name``, without an import. The name must be one of :func:`registered`."""
    point = _find(group, name)
    assert point is not None
    return point.module


def distribution(group: Group, name: str) -> metadata.Distribution | None:
    """Return the package that registers ``name``, or None for a built-in name. This imports no object.

    Raises :class:`KeyError` for an unknown name. Raises :class:`~etdev.errors.MissingRequirementError` if two packages
    register the name, or if a package registers a built-in name.
    """
    point = _find(group, name)
    return None if point is None else point.dist


def check_name(group: Group, name: str) -> None:
    """Raise :class:`~etdev.errors.MissingRequirementError` if two packages register ``name``. This imports no object.

    Also raise this error if a package registers a built-in name. Raises :class:`KeyError` for an unknown name.
    """
    _find(group, name)


def load(group: Group, name: str, members: Iterable[str] = ("__call__",)) -> Any:
    """Return the object that another package registers as ``name``. Check that the object has all ``members``.

    Raises :class:`KeyError` for a built-in or unknown name. Raises :class:`~etdev.errors.MissingRequirementError` if
    the import fails, if a member is missing, or if two packages use the name.
    """
    point = _find(group, name)
    if point is None:
        raise KeyError(name)
    package = _package(point)
    try:
        loaded = point.load()
    except (Exception, SystemExit) as error:
        raise MissingRequirementError(
            f"the {group.kind} {name!r} of {package!r} cannot be imported: {type(error).__name__}: {error}",
            hint=_remedy(package),
        ) from error
    lacking = sorted(member for member in members if not hasattr(loaded, member))
    if lacking or (isinstance(loaded, type) and not group.takes_classes):
        reason = f"it lacks {', '.join(lacking)}" if lacking else "it is a class"
        article = "an" if group.kind[0] in "aeiou" else "a"
        raise MissingRequirementError(
            f"{point.value!r}, which {package!r} registers as the {group.kind} {name!r}, is not {article} "
            f"{group.kind}: {reason}",
            hint=group.contract if lacking else "register an instance of the class",
        )
    return loaded


@contextmanager
def translated(group: Group, name: str, kind: type[EtdevError]) -> Iterator[None]:
    """Inside the block, convert unexpected errors of a plugin to ``kind``. The message states the plugin's package."""
    try:
        yield
    except EtdevError:
        raise
    except (Exception, SystemExit) as error:
        point = _find(group, name)
        package = group.name if point is None else _package(point)
        raise kind(
            f"the {group.kind} {name!r} of {package!r} failed: {type(error).__name__}: {error}", hint=_remedy(package)
        ) from error


def _find(group: Group, name: str) -> metadata.EntryPoint | None:
    """Return the entry point with a name, or None for a built-in name. Raise an error if the name is not unique."""
    points = [point for point in _points(group) if point.name == name]
    packages = [repr(package) for package in sorted({_package(point) for point in points})]
    if packages and name in group.built_in:
        raise MissingRequirementError(
            f"the package {packages[0]} registers the {group.kind} {name!r}, which is a built-in name",
            hint=f"update or remove the package {packages[0]}",
        )
    if len(points) > 1:
        owners = " and ".join(packages) if len(packages) > 1 else f"{packages[0]} twice"
        raise MissingRequirementError(
            f"the {group.kind} {name!r} is registered by {owners}",
            hint="keep one of these packages" if len(packages) > 1 else f"update or remove the package {packages[0]}",
        )
    if not points and name not in group.built_in:
        raise KeyError(name)
    return points[0] if points else None


def _points(group: Group) -> tuple[metadata.EntryPoint, ...]:
    return _points_on(group.name, tuple(sys.path))


@cache
def _points_on(group: str, path: tuple[str, ...]) -> tuple[metadata.EntryPoint, ...]:
    """Return the entry points of a group. The result depends only on ``sys.path``, so it is cached."""
    return tuple(metadata.entry_points(group=group))


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else point.module


def _remedy(package: str) -> str:
    return f"update or remove the package {package!r}"
