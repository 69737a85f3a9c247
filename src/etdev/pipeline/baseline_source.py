"""Where the figures of a baseline stand: in a file or folder, or in the ``etdev.lock`` of a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from etdev.config.types import GIT_PREFIX
from etdev.errors import MissingRequirementError
from etdev.pipeline.project import Project

KEY = ("baseline", "from")
REPORT = "report.json"


def judges_growth(project: Project, target: str) -> bool:
    """Does the config limit how a target may grow?"""
    growth = project.config.targets[target].budget.growth
    return growth != type(growth)()


def baseline_path(project: Project) -> Path | None:
    """The file or folder that the config names; None if it names a commit, or no baseline."""
    baseline = project.config.baseline
    if baseline is None or baseline.from_.startswith(GIT_PREFIX):
        return None
    return project.loaded.resolve(*KEY)


def report_of(folder: Path, target: str) -> Path:
    """The report of a target in the output folder of a build."""
    return folder / target / REPORT


def report_beside(file: Path) -> Path:
    """Where the report of the build of a file stands, if it was not moved away from it."""
    return file.with_name(REPORT)


def baseline_name(project: Project) -> str:
    """As the config names it, for messages."""
    baseline = project.config.baseline
    return "" if baseline is None else baseline.from_.rstrip("/")


def check_baseline(project: Project, targets: tuple[str, ...]) -> None:
    """Refuse a baseline that cannot be one, before anything slow happens.

    Raises :class:`~etdev.errors.ConfigError` for a file that would stand for several targets, and for what a build of
    this project writes itself: it would be compared with what missed the limit the last time.
    """
    judged = [name for name in targets if judges_growth(project, name)]
    path = baseline_path(project) if judged else None
    if path is None:
        return
    if path == project.out or any(path.is_relative_to(project.out / name) for name in project.config.targets):
        message = f"`baseline.from` is the project's own output, {baseline_name(project)}, which each build replaces"
        hint = "copy the output of a build that is good to another folder, and name that"
        raise project.error(message, *KEY, hint=hint)
    if len(judged) > 1 and not path.is_dir() and path.suffix == ".pte":
        message = f"`baseline.from` is one file, and growth of {len(judged)} targets is judged: {', '.join(judged)}"
        hint = "name the output folder of a build instead, or build one target with `-t`"
        raise project.error(message, *KEY, hint=hint)


def committed_lock(project: Project) -> str | None:
    """The lock as the commit has it that the config names; None if that has none, or if nothing is committed yet.

    Raises :class:`~etdev.errors.MissingRequirementError` where that cannot be known: there is no git, no repository, or
    no such commit in it.
    """
    baseline, root = project.config.baseline, project.loaded.root
    reference = "" if baseline is None else baseline.from_.removeprefix(GIT_PREFIX)
    if _git(project, "rev-parse", "--git-dir") is None:
        raise _unknown(project, f"{root} is in no git repository", "name a file or a folder as `baseline.from`")
    commit = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if commit is None:
        if _git(project, "rev-parse", "--verify", "--quiet", "HEAD") is None:
            return None
        hint = f"fetch it (`git fetch origin {reference}`; in GitHub Actions, checkout with `fetch-depth: 0`)"
        raise _unknown(project, f"this clone has no commit {reference!r}", hint)
    return _git(project, "cat-file", "blob", f"{commit.strip()}:./{project.lock.name}")


def _git(project: Project, *arguments: str) -> str | None:
    """What git answers about the config's folder; None if it refuses."""
    try:
        done = subprocess.run(["git", "-C", str(project.loaded.root), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise _unknown(project, f"git cannot be run: {error.strerror}", "install git") from error
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None


def _unknown(project: Project, why: str, hint: str) -> MissingRequirementError:
    return MissingRequirementError(f"growth cannot be judged: {why}", where=project.where(*KEY), hint=hint)
