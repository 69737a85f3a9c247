"""The command ``etdev deploy``, which publishes a built target as a release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from etdev.config.destinations import parse_destination
from etdev.config.keys import suggest
from etdev.config.operation import Deploy
from etdev.deployment import release as releases
from etdev.deployment.manifest import ReleasedFile
from etdev.deployment.release import Outcome, Plan, Release, Terms
from etdev.deployment.state import Listed, listing
from etdev.deployment.transports import Connection, open_transport
from etdev.deployment.transports.base import Transport
from etdev.errors import DeployError, UsageError
from etdev.pipeline.deployable import check_current, make_release
from etdev.pipeline.project import Project
from etdev.pipeline.project.progress import Progress, Silent, StageClock
from etdev.pipeline.results.result import Part


class DeployResult(Part):
    """The result of a deployment; with ``dry_run``, the result that the deployment would have."""

    format: Literal[1] = 1
    name: str
    """Name of the deployment in the config."""
    target: str
    uri: str
    dry_run: bool
    action: Literal["published", "switched", "unchanged"]
    """Effect on the current release.

    * ``published``: a new release was uploaded and is current.
    * ``switched``: a release that was uploaded before became current.
    * ``unchanged``: the release was current already.
    """
    release: str
    """Name of the release that is current after the deployment."""
    before: str | None
    """Name of the release that was current before the deployment; None if no release was current."""
    files: tuple[ReleasedFile, ...]
    """Files of the release, except its manifest; empty for a rollback."""
    not_run: tuple[str, ...] = ()
    """Checks that did not run when the target was verified; the manifest lists these checks."""
    removed: tuple[str, ...] = ()
    """Names of old releases that were removed, because the config's ``keep`` limits the number of releases."""
    leftovers: tuple[str, ...] = ()
    """Files left at the destination by interrupted deployments; this deployment removes these files."""
    notes: tuple[str, ...] = ()


class ReleaseInfo(Part):
    """A release found at the destination in the config."""

    name: str
    time: datetime
    """Time of the release, in UTC."""
    current: bool
    project: str | None
    target: str | None
    size: int | None
    """Bytes of all files of the release."""
    etdev: str | None
    """Version of etdev that built the release."""
    problem: str | None
    """Reason why the manifest cannot be read. If set, all fields from the manifest are None."""


class ReleaseList(Part):
    """The releases at the destination in the config, newest first."""

    format: Literal[1] = 1
    name: str
    uri: str
    releases: tuple[ReleaseInfo, ...]


@dataclass(frozen=True)
class DeployOptions:
    """Options of one deployment; the config states the target and the destination."""

    dry_run: bool = False
    rollback: bool = False
    stale: bool = False
    """True to deploy the built files even if config, code or weights have changed since they were built."""
    progress: Progress = field(default_factory=Silent)


def deploy_project(project: Project, name: str, options: DeployOptions) -> DeployResult:
    """Deploy the built files, or return to the release before the current one.

    Raises :class:`~etdev.errors.UsageError` if the config has no deployment of this name. Raises
    :class:`~etdev.errors.DeployError` if the built files must not be deployed, or if the destination fails. Raises
    :class:`~etdev.errors.MissingRequirementError` if this machine lacks a requirement.
    """
    settings = _settings(project, name)
    if options.rollback and options.dry_run:
        raise UsageError(
            "`--dry-run` cannot be used together with `--rollback`",
            where="--dry-run",
            hint="use `--list` to see the releases",
        )
    clock = StageClock(name, options.progress)
    terms, now = Terms(settings.keep, settings.smoke), datetime.now(UTC)
    if options.rollback:
        with _connected(project, name) as transport:
            return _result(name, settings, None, releases.roll_back(transport, terms, now, clock.stage))
    made = make_release(project, settings.target)
    notes = () if options.stale else check_current(project, settings.target)
    with _connected(project, name) as transport:
        if options.dry_run:
            transport.check()
            return _result(name, settings, made, releases.plan(transport, made, terms, now), notes)
        return _result(name, settings, made, releases.deploy(transport, made, terms, now, clock.stage), notes)


def list_project(project: Project, name: str) -> ReleaseList:
    """List the releases at the destination in the config; raises the errors of :func:`deploy_project`."""
    settings = _settings(project, name)
    with _connected(project, name) as transport:
        found = tuple(map(_info, listing(transport)))
    return ReleaseList(name=name, uri=str(parse_destination(settings.uri)), releases=found)


def _settings(project: Project, name: str) -> Deploy:
    known = project.config.deploy
    if name not in known:
        there = f"deployments: {', '.join(known)}" if known else "add `deploy.NAME` with `target` and `uri`"
        hint = suggest(name, known, there, repr)
        raise UsageError(f"the config has no deployment {name!r}", where=project.loaded.name, hint=hint)
    return known[name]


@contextmanager
def _connected(project: Project, name: str) -> Iterator[Transport]:
    """Open the connection to the destination in the config.

    If the block raises an error without a location, set the location to the destination's URI.
    """
    try:
        with open_transport(_reach(project, name)) as transport:
            yield transport
    except DeployError as error:
        error.where = error.where or str(parse_destination(project.config.deploy[name].uri))
        raise


def _reach(project: Project, name: str) -> Connection:
    settings = project.config.deploy[name]
    trusted = settings.known_hosts
    if trusted is not None and not trusted.startswith("~"):
        trusted = str(project.loaded.resolve("deploy", name, "known_hosts"))
    return Connection(
        destination=parse_destination(settings.uri),
        base=project.base("deploy", name, "uri"),
        known_hosts=None if trusted is None else Path(trusted).expanduser(),
        password_env=settings.password_env,
        endpoint_url=settings.endpoint_url,
    )


def _result(
    name: str, settings: Deploy, made: Release | None, found: Outcome | Plan, notes: tuple[str, ...] = ()
) -> DeployResult:
    manifest = made.manifest if made is not None else None
    return DeployResult(
        name=name,
        target=settings.target,
        uri=str(parse_destination(settings.uri)),
        dry_run=isinstance(found, Plan),
        action=found.action,
        release=found.release,
        before=found.before,
        files=manifest.files if manifest else (),
        not_run=tuple(check.name for check in manifest.verification if check.status == "not run") if manifest else (),
        removed=found.surplus if isinstance(found, Plan) else found.removed,
        leftovers=found.leftovers,
        notes=notes if isinstance(found, Plan) else (*notes, *found.notes),
    )


def _info(found: Listed) -> ReleaseInfo:
    manifest = found.manifest
    return ReleaseInfo(
        name=found.name,
        time=found.time,
        current=found.current,
        project=manifest and manifest.project,
        target=manifest and manifest.target,
        size=manifest and sum(file.size for file in manifest.files),
        etdev=manifest and manifest.versions.get("etdev"),
        problem=found.problem,
    )
