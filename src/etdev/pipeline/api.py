"""The commands as functions: what ``import etdev`` offers, and what the command line calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from etdev.backends.opening import open_config
from etdev.config.models import CheckName
from etdev.pipeline.options import BuildOptions, check_device_map, parse_checks
from etdev.pipeline.progress import Progress, Silent
from etdev.pipeline.project import Project
from etdev.pipeline.result import BuildResult

if TYPE_CHECKING:
    from etdev.pipeline.deploy import DeployResult


def open_project(
    config: str | os.PathLike[str] | None = None,
    *,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Project:
    """The project of a config; arguments and errors as for :func:`~etdev.backends.opening.open_config`."""
    return Project(open_config(config, profile=profile, overrides=overrides, environ=environ))


def build(
    config: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] = (),
    profile: str | None = None,
    overrides: Sequence[str] = (),
    require: Sequence[CheckName] = (),
    verify: bool = True,
    cache: bool = True,
    locked: bool = False,
    jobs: int | None = None,
    keep_going: bool = False,
    device_map: str | None = None,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BuildResult:
    """Build the targets of a config: export, quantize, lower, emit, link, write and verify.

    ``targets`` are glob patterns, none meaning all; ``overrides`` are ``key=value`` texts as for ``--set``; ``require``
    names checks that must have run; ``verify=False`` stops after writing; ``cache=False`` builds again even if nothing
    has changed since an earlier build; ``locked`` asks that everything is as ``etdev.lock`` says; ``device_map`` says
    what here stands for the programs' devices, as for ``--device-map``. ``jobs`` targets are built at the same time
    (None: as many as the config says), each in a process. Returns what was built and verification found, also when a
    gate was missed or an artifact rejected: see :attr:`BuildResult.ok`. Raises an :class:`~etdev.errors.EtdevError`
    if the config, the environment or a stage stands in the way (with ``keep_going``, a target's error is in
    :attr:`BuildResult.failed`), and
    :class:`~etdev.pipeline.lock.LockStaleError` if the lock does not hold.
    """
    from etdev.pipeline.build import build_project

    project = open_project(config, profile=profile, overrides=overrides, environ=environ)
    options = BuildOptions(
        targets=targets,
        require=parse_checks(require),
        verify=verify,
        cache=cache,
        locked=locked,
        jobs=jobs,
        keep_going=keep_going,
        device_map=check_device_map(device_map),
        progress=progress or Silent(),
    )
    return build_project(project, options)


def verify(
    config: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] = (),
    profile: str | None = None,
    overrides: Sequence[str] = (),
    require: Sequence[CheckName] = (),
    device_map: str | None = None,
    jobs: int = 1,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BuildResult:
    """Verify artifacts that were built before, as they lie in the output folder; arguments as for :func:`build`.

    On ``jobs`` workers are the samples run that a metric hands to ``run.map``, if the program keeps no state. They are
    processes that import the main module: a script calls this below ``if __name__ == "__main__":``.
    """
    from etdev.pipeline.verify.verify_target import verify_project

    project = open_project(config, profile=profile, overrides=overrides, environ=environ)
    options = BuildOptions(
        targets=targets,
        require=parse_checks(require),
        device_map=check_device_map(device_map),
        metric_jobs=jobs,
        progress=progress or Silent(),
    )
    return verify_project(project, options)


def deploy(
    config: str | os.PathLike[str] | None,
    name: str,
    *,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    dry_run: bool = False,
    rollback: bool = False,
    stale: bool = False,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> DeployResult:
    """Bring the built files of a target to the place that ``[deploy.NAME]`` of the config says.

    ``dry_run`` connects and says what would be done, ``rollback`` goes back to the release before the current one,
    ``stale`` takes what was built although config, code or weights have changed since; the other arguments as for
    :func:`build`. Raises an :class:`~etdev.errors.EtdevError` if the config, the environment, what was built or the
    target stands in the way; the target serves what it served before then.
    """
    from etdev.pipeline.deploy import DeployOptions, deploy_project

    project = open_project(config, profile=profile, overrides=overrides, environ=environ)
    options = DeployOptions(dry_run=dry_run, rollback=rollback, stale=stale, progress=progress or Silent())
    return deploy_project(project, name, options)
