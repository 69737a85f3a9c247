"""How the stages are run, as opposed to what is built: the config says that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from etdev.config.keys import nearest
from etdev.config.models import Rung
from etdev.errors import UsageError
from etdev.pipeline.progress import Progress, Silent
from etdev.pipeline.project import Project
from etdev.pipeline.result import RUNGS
from etdev.runtime.device_map import NO_MAP, DeviceMap, parse_device_map


@dataclass
class BuildOptions:
    """How a build is done, as opposed to what is built (the config says that)."""

    targets: Sequence[str] = ()
    """Glob patterns; none means every target."""
    require: Sequence[Rung] = ()
    """Rungs that must have run, beside those that the config requires."""
    verify: bool = True
    """False stops after writing; the artifact is put in place unverified, and the report says so."""
    cache: bool = True
    """False builds again even if nothing has changed since an earlier build."""
    locked: bool = False
    """Whether everything has to be as ``etdev.lock`` says."""
    device_map: DeviceMap = field(default_factory=lambda: NO_MAP)
    """What here stands for the programs' devices."""
    jobs: int | None = None
    """Targets, and methods of targets, that are built at the same time; None: as many as the config says."""
    metric_jobs: int = 1
    """Workers for the samples that a metric hands to ``run.map``, if the program keeps no state."""
    keep_going: bool = False
    """Whether the other targets are built after a stage of one has failed."""
    verbose: bool = False
    progress: Progress = field(default_factory=Silent)


def choose_targets(project: Project, patterns: Iterable[str]) -> tuple[str, ...]:
    """Names of the targets that the patterns match, in the config's order. One text is one pattern."""
    names = tuple(project.config.targets)
    patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = nearest(pattern, names)
            listed = f"targets: {', '.join(names)}"
            hint = f"did you mean {near!r}? {listed}" if near else listed
            if pattern.endswith((".toml", ".yaml", ".yml")):
                hint = f"a config is named with `-c {pattern}`"
            raise UsageError(f"no target matches {pattern!r}", hint=hint)
    return tuple(name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns))


def required_rungs(project: Project, name: str, options: BuildOptions) -> tuple[Rung, ...]:
    """Rungs that the config and the caller want to have run."""
    return tuple(dict.fromkeys((*project.config.targets[name].verify.require, *options.require)))


def check_rungs(names: Iterable[str]) -> tuple[Rung, ...]:
    """Names of rungs from a caller; raises :class:`~etdev.errors.UsageError` for one that does not exist."""
    known = {str(rung): rung for rung in RUNGS}
    names = (names,) if isinstance(names, str) else tuple(names)
    for name in names:
        if name not in known:
            raise UsageError(f"there is no rung {name!r}", hint=f"rungs: {', '.join(RUNGS)}")
    return tuple(known[name] for name in names)


def check_device_map(text: str | None) -> DeviceMap:
    """The map that a caller states, ``cuda:0=sim``; None for no map. Raises :class:`~etdev.errors.UsageError`."""
    try:
        return NO_MAP if text is None else parse_device_map(text)
    except UsageError as error:
        raise UsageError(error.message, where="--device-map", hint=error.hint) from error
