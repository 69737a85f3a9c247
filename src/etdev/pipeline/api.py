"""The commands of etdev as Python functions, for ``import etdev`` and for the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from etdev.backends.opening import open_config
from etdev.data_stack import with_room
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions, check_device_map, parse_checks
from etdev.pipeline.project.progress import Progress, Silent
from etdev.pipeline.results.result import BuildResult

if TYPE_CHECKING:
    from etdev.pipeline.deploy import DeployResult


def open_project(
    config: str | os.PathLike[str] | None = None,
    *,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Project:
    """Load a config and return its project.

    The arguments and errors are those of :func:`~etdev.backends.opening.open_config`.
    """
    return Project(open_config(config, profile=profile, overrides=overrides, environ=environ))


@with_room
def build(
    config: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] = (),
    profile: str | None = None,
    overrides: Sequence[str] = (),
    require: Sequence[str] = (),
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

    * ``targets``: glob patterns; none means all targets.
    * ``overrides``: ``key=value`` texts as for ``--set``.
    * ``require``: names of checks that must run.
    * ``verify=False``: stop after writing.
    * ``cache=False``: build again even if nothing has changed since an earlier build.
    * ``locked``: require that all inputs and outputs match the lock.
    * ``device_map``: local devices that replace the programs' devices, such as ``cuda:0=sim``.
    * ``jobs``: number of targets built at the same time, each in a process of its own; None for the config's number.
    * ``keep_going``: report a target's error in :attr:`BuildResult.failed` instead of raising it.

    Returns the results of all targets. The function also returns if an artifact is rejected, a gate is missed or a
    required check does not run. :attr:`BuildResult.ok` is then False. Raises an :class:`~etdev.errors.EtdevError` if
    the config, the environment or a stage prevents the build. Raises :class:`~etdev.pipeline.cache.lock.LockStaleError`
    if the lock does not match.
    """
    from etdev.pipeline.builder.build import build_project

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


@with_room
def verify(
    config: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] = (),
    profile: str | None = None,
    overrides: Sequence[str] = (),
    require: Sequence[str] = (),
    device_map: str | None = None,
    jobs: int = 1,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BuildResult:
    """Verify the artifacts that an earlier build left in the output folder.

    ``jobs`` is the number of workers for the samples that a metric passes to ``run.map``. A program with state uses no
    workers. Each worker is a process that imports the main module. A script therefore has to call this function below
    ``if __name__ == "__main__":``. The other arguments are those of :func:`build`.
    """
    from etdev.pipeline.verify_target import verify_project

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
    """Deploy the built files of a target to the destination in the config's table ``[deploy.NAME]``.

    ``name`` is the ``NAME`` of the table. ``dry_run`` connects to the destination and reports the changes that a
    deployment would make. ``rollback`` returns to the release before the current one. ``stale`` deploys the built files
    even if config, code or weights have changed since the build. The other arguments are those of :func:`build`.

    Raises an :class:`~etdev.errors.EtdevError` if the config, the environment, the built files or the destination
    prevent the deployment. After an error, the current release is unchanged. The only exception is an error
    during the switch to the new release: its message mentions the switch.
    """
    from etdev.pipeline.deploy import DeployOptions, deploy_project

    project = open_project(config, profile=profile, overrides=overrides, environ=environ)
    options = DeployOptions(dry_run=dry_run, rollback=rollback, stale=stale, progress=progress or Silent())
    return deploy_project(project, name, options)
