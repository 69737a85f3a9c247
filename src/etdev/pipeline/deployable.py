"""Releases of built files: check that a target can be deployed, and create the release with its manifest.

This module does not run code of the project.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from etdev import program as pte
from etdev.deployment.manifest import MANIFEST, Check, FileName, Manifest, Needs, ReleasedFile
from etdev.deployment.release import Release
from etdev.errors import DeployError, ProgramError
from etdev.files import describe_os_error, open_file, read_file
from etdev.pipeline.project import Project
from etdev.pipeline.project.commands import build_command
from etdev.pipeline.project.places import REJECTED_SUFFIX, report_place
from etdev.pipeline.project.runtime_contents import requirements
from etdev.pipeline.results.report import ReportError, read_report
from etdev.pipeline.results.result import BuildResult, TargetResult
from etdev.pipeline.since_built import since_built
from etdev.program import Program
from etdev.program.devices import named_devices

_BUILD_PACKAGES = ("etdev", "python", "torch", "executorch")
"""Packages whose versions a manifest states."""


def make_release(project: Project, target: str) -> Release:
    """Return the release of a target, with the files of the last build.

    Raises :class:`~etdev.errors.DeployError` if the target was not built or did not pass its checks. Also raises this
    error if a file of the target changed since the build.
    """
    path = project.artifact(target)
    command = build_command(project, target)
    build = f"run `{command}` first"
    if not path.is_file():
        rejected = path.with_name(path.name + REJECTED_SUFFIX).exists()
        why = "the last build rejected it" if rejected else "it was not built"
        raise DeployError(f"target {target!r} cannot be deployed: {why}", where=str(path), hint=build)
    report = _report(project, target, build)
    built = report[target]
    _refuse_unverified(built, report_place(project, target))
    files = _files(path, built, command)
    manifest = Manifest(
        project=project.name,
        target=target,
        program=path.name,
        files=files,
        versions={name: report.versions[name] for name in _BUILD_PACKAGES if name in report.versions},
        needs=_needs(_read(path), built, report.versions),
        verification=tuple(_check(check.name, check.status, check.summary) for check in built.checks),
        lock=_lock_digest(project.lock),
    )
    return Release(manifest, {file.name: path.with_name(file.name) for file in files})


def check_current(project: Project, target: str) -> tuple[str, ...]:
    """Raise :class:`~etdev.errors.DeployError` if config, code or weights of a target changed since it was built.

    Returns notes on inputs that cannot be compared.
    """
    since = since_built(project, target)
    if since.said is not None:
        raise DeployError(
            f"target {target!r} is not what the project would build now: {since.said}",
            where=str(project.artifact(target)),
            hint="use `--stale` to deploy the files as they were built",
        )
    return () if since.unknown is None else (since.unknown,)


def _report(project: Project, target: str, hint: str) -> BuildResult:
    place = report_place(project, target)
    try:
        report = read_report(place)
    except ReportError as error:
        raise DeployError(error.message, where=error.where, hint=error.hint and hint) from error
    if report is None:
        raise DeployError("there is no report of the build", where=str(place), hint=hint)
    if target not in [item.name for item in report.targets]:
        raise DeployError(f"the report does not contain the target {target!r}", where=str(place), hint=hint)
    return report


def _refuse_unverified(built: TargetResult, place: Path) -> None:
    if built.status != "built":
        failed = [check for check in built.checks if check.status == "failed"]
        said = "; ".join(f"{check.name}: {check.summary}" for check in failed)
        what = "missed a gate" if built.status == "gate failed" else "was rejected"
        raise DeployError(
            f"target {built.name!r} {what}: {said}", where=str(place), hint="fix the failure and build again"
        )
    if built.unmet:
        names = ", ".join(check.name for check in built.unmet)
        raise DeployError(
            f"target {built.name!r} requires checks that did not run: {names}",
            where=str(place),
            hint="build the target on a machine where these checks run",
        )
    if not any(check.name == "bytes" and check.status == "passed" for check in built.checks):
        raise DeployError(
            f"target {built.name!r} was built without verification",
            where=str(place),
            hint="build the target again, without `--no-verify`",
        )


def _files(path: Path, built: TargetResult, build: str) -> tuple[ReleasedFile, ...]:
    """Return the program and its data files; raise an error for a file that changed since the build.

    ``build`` is the command that builds the target again, for the error.
    """
    digests = {path.name: built.sha256, **{data.name: data.sha256 for data in built.data}}
    files = tuple(_file(path.with_name(name)) for name in digests)
    for file in files:
        if file.sha256 != digests[file.name]:
            raise DeployError(
                f"the file has changed since it was built: its sha256 is {file.sha256[:12]}…, the report has "
                f"{digests[file.name][:12]}…",
                where=str(path.with_name(file.name)),
                hint=f"run `{build}` again",
            )
    return files


def _file(path: Path) -> ReleasedFile:
    if not FileName.fullmatch(path.name) or path.name == MANIFEST:
        raise DeployError(
            f"a release cannot contain a file with the name {path.name!r}",
            where=str(path),
            hint="use a name of letters, digits, `.`, `_` and `-` that begins with a letter or a digit",
        )
    try:
        with open_file(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return ReleasedFile(name=path.name, size=file.tell(), sha256=digest)
    except OSError as error:
        raise DeployError(
            f"cannot read the file: {describe_os_error(error)[0]}", where=str(path), hint="run `etdev build` again"
        ) from error


def _read(path: Path) -> Program:
    try:
        return pte.read(path)
    except ProgramError as error:
        raise DeployError(f"the file is malformed: {error.message}", where=str(path), hint=error.hint) from error


def _needs(program: Program, built: TargetResult, versions: Mapping[str, str]) -> Needs:
    needed = requirements(program)
    return Needs(
        executorch=versions.get("executorch"),
        devices=tuple(map(str, named_devices(program))),
        operators=tuple(sorted(set().union(*needed.operators.values()))),
        delegates=tuple(sorted(set().union(*needed.delegates.values()))),
        libraries=tuple(sorted({library for method in built.methods for library in method.libraries})),
        memory=built.memory,
    )


def _check(check: str, status: str, summary: str) -> Check:
    return Check(name=check, status="passed" if status == "passed" else "not run", summary=summary)


def _lock_digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_file(path)).hexdigest()
    except FileNotFoundError:
        return None
