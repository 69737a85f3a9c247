"""Options of one build that come from the caller, not from the config."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from etdev.config.check_names import check_names
from etdev.config.keys import nearest
from etdev.errors import UsageError
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import Progress, Silent
from etdev.runtime.device_map import NO_MAP, DeviceMap, parse_device_map


@dataclass
class BuildOptions:
    """Options of one build that come from the caller, not from the config."""

    targets: Sequence[str] = ()
    """Glob patterns of the targets to build; an empty sequence means every target."""
    require: Sequence[str] = ()
    """Names of checks that must run, in addition to those that the config requires."""
    verify: bool = True
    """False to stop after writing. The artifact is then not verified, and the report says so."""
    cache: bool = True
    """False to build again even if nothing has changed since an earlier build."""
    locked: bool = False
    """True to require that all inputs and outputs match the lock."""
    device_map: DeviceMap = field(default_factory=lambda: NO_MAP)
    """Local devices that replace the devices of programs."""
    jobs: int | None = None
    """Number of targets, or methods of targets, to build at the same time; None for the config's number."""
    metric_jobs: int = 1
    """Number of workers for the samples that a metric passes to ``run.map``.

    Programs with state ignore this option.
    """
    keep_going: bool = False
    """True to build the other targets after one target has failed."""
    verbose: bool = False
    """True to show warnings and log messages of libraries such as torch."""
    progress: Progress = field(default_factory=Silent)


def choose_targets(project: Project, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the targets that match any pattern, in the config's order; without patterns, all names.

    If ``patterns`` is a string, the string is one pattern.
    """
    names = tuple(project.config.targets)
    patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = nearest(pattern, names)
            listed = f"targets: {', '.join(names)}"
            hint = f"did you mean {near!r}? {listed}" if near else listed
            if pattern.endswith((".toml", ".yaml", ".yml")):
                hint = f"use `-c {pattern}` if this is a config"
            raise UsageError(f"no target matches {pattern!r}", hint=hint)
    return tuple(name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns))


def required_checks(project: Project, name: str, options: BuildOptions) -> tuple[str, ...]:
    """Return the names of the checks that the config or the caller requires to run."""
    return tuple(dict.fromkeys((*project.config.targets[name].verify.require, *options.require)))


def parse_checks(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names if all of them are names of checks.

    Raises :class:`~etdev.errors.UsageError` for a name that does not exist.
    """
    names = (names,) if isinstance(names, str) else tuple(names)
    known = check_names() if names else ()
    for name in names:
        if name not in known:
            raise UsageError(f"there is no check {name!r}", hint=f"checks: {', '.join(known)}")
    return names


def check_device_map(text: str | None) -> DeviceMap:
    """Parse a device map such as ``cuda:0=sim``; return an empty map for None.

    Raises :class:`~etdev.errors.UsageError` if the text is invalid.
    """
    try:
        return NO_MAP if text is None else parse_device_map(text)
    except UsageError as error:
        raise UsageError(error.message, where="--device-map", hint=error.hint) from error
