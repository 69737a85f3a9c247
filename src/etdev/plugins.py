"""Extension points: objects that other packages register as entry points.

A package registers an object under a name in one of these groups. etdev reads the names from the metadata of the
installed packages, and imports an object only when something uses its name. ``docs/extending.md`` has the contract of
each group.
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
    """An extension point."""

    name: str
    """Name of the entry-point group."""
    kind: str
    """One of its objects, in messages: ``backend``."""
    contract: str
    """Help for the author of an object that does not fit."""
    built_in: tuple[str, ...]
    """Names that etdev has itself. No other package may use them."""
    takes_classes: bool = False
    """True if an object may be a class, which is called as a function is."""


BACKENDS = Group(
    "etdev.backends",
    "backend",
    "a backend has the members of etdev.backends.base.Backend",
    ("portable", "xnnpack", "openvino", "vulkan", "cuda", "reference"),
)
EXECUTORS = Group(
    "etdev.executors",
    "executor",
    "an executor is a function from a DelegateContext to a DelegateExecutor (etdev.runtime.interpreter.settings)",
    ("EtdevReferenceBackend",),
    takes_classes=True,
)
"""Its names are those of delegates in a file."""
CHECKS = Group(
    "etdev.checks",
    "check",
    "a check has the members of etdev.verification.Check, and the name of its entry point",
    (
        "bytes",
        "plan",
        "placement",
        "kernels",
        "budget",
        "growth",
        "runtime",
        "replay",
        "device",
        "accuracy",
        "latency",
    ),
    takes_classes=True,
)
"""Its names are in the order in which the checks run."""
PLANNERS = Group(
    "etdev.planners",
    "planner",
    "a planner is a function from an etdev.planner.Problem to offsets",
    ("naive", "greedy", "best"),
)
DEPLOY_TRANSPORTS = Group(
    "etdev.deploy_transports",
    "deploy transport",
    "a deploy transport is a function from an etdev.deployment.transports.Connection to a Transport",
    ("file", "sftp", "s3", "adb"),
    takes_classes=True,
)
"""Its names are schemes of URIs, in small letters."""
WORKER_TRANSPORTS = Group(
    "etdev.worker_transports",
    "worker transport",
    "a worker transport is a function from a sequence of WorkerSpec to a Transport (etdev.runtime.orchestrator)",
    ("thread", "process", "ray"),
    takes_classes=True,
)
TEMPLATES = Group(
    "etdev.templates",
    "template",
    "a template is an etdev.templates.Template",
    ("minimal", "vision", "multi-device", "ci", "llm"),
)


def names(group: Group) -> tuple[str, ...]:
    """Return all names of a group, built-in ones first. Import nothing."""
    return (*group.built_in, *sorted({point.name for point in _points(group)} - {*group.built_in}))


def registered(group: Group) -> tuple[str, ...]:
    """Return the names that other packages register, each by one package. Import nothing.

    Raises :class:`~etdev.errors.MissingRequirementError` for a name that etdev or another package has already.
    """
    found = sorted({point.name for point in _points(group)})
    for name in found:
        _find(group, name)
    return tuple(found)


def package_of(group: Group, name: str) -> str:
    """Return the name of the package that registers a name of :func:`registered`."""
    point = _find(group, name)
    assert point is not None
    return _package(point)


def module_of(group: Group, name: str) -> str:
    """Return the module of an object of :func:`registered`. Import nothing."""
    point = _find(group, name)
    assert point is not None
    return point.module


def distribution(group: Group, name: str) -> metadata.Distribution | None:
    """Return the package that registers a name; None for a built-in one. Import nothing.

    Raises as :func:`load` does, except for errors of the object itself.
    """
    point = _find(group, name)
    return None if point is None else point.dist


def check_name(group: Group, name: str) -> None:
    """Raise :class:`~etdev.errors.MissingRequirementError` for a name that two packages use. Import nothing.

    Raises :class:`KeyError` for a name that :func:`names` does not list.
    """
    _find(group, name)


def load(group: Group, name: str, members: Iterable[str] = ("__call__",)) -> Any:
    """Return the object that another package registers under a name; it has these members.

    Raises :class:`KeyError` for a built-in name and for one that :func:`names` does not list. Raises
    :class:`~etdev.errors.MissingRequirementError` for an object that cannot be imported or does not fit, and for a name
    that two packages use.
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
            hint=group.contract if lacking else "register an object of the class",
        )
    return loaded


@contextmanager
def translated(group: Group, name: str, kind: type[EtdevError]) -> Iterator[None]:
    """Turn unexpected errors of another package's object into ``kind``, with the name of the package."""
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
    """Return the only entry point with a name; None for a built-in name."""
    points = [point for point in _points(group) if point.name == name]
    packages = [repr(package) for package in sorted({_package(point) for point in points})]
    if packages and name in group.built_in:
        raise MissingRequirementError(
            f"the package {packages[0]} registers the {group.kind} {name!r}, which is a name of etdev's own",
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
    """Return the entry points of a group. Reading them takes milliseconds, and they change with ``sys.path`` only."""
    return tuple(metadata.entry_points(group=group))


def _package(point: metadata.EntryPoint) -> str:
    return point.dist.name if point.dist else point.module


def _remedy(package: str) -> str:
    return f"update or remove the package {package!r}"
