"""Sources of a baseline's figures: a report, a folder of reports, or the lock of a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from etdev.config.types import GIT_PREFIX
from etdev.errors import MissingRequirementError
from etdev.pipeline.project import Project
from etdev.pipeline.results.report import REPORT

KEY = ("baseline", "from")


def judges_growth(project: Project, target: str) -> bool:
    """Return True if the config limits how much a target's figures may grow."""
    growth = project.config.targets[target].budget.growth
    return growth != type(growth)()


def baseline_path(project: Project) -> Path | None:
    """Return the file or folder of the baseline; None if the baseline is a commit or not set."""
    baseline = project.config.baseline
    if baseline is None or baseline.from_.startswith(GIT_PREFIX):
        return None
    return project.loaded.resolve(*KEY)


def report_of(folder: Path, target: str) -> Path:
    """Return the path of a target's report in the output folder of a build."""
    return folder / target / REPORT


def baseline_name(project: Project) -> str:
    """Return the baseline as the config states it, for use in messages."""
    baseline = project.config.baseline
    return "" if baseline is None else baseline.from_.rstrip("/")


def check_baseline(project: Project, targets: tuple[str, ...]) -> None:
    """Raise an error early if the baseline cannot be used.

    Raises :class:`~etdev.errors.ConfigError` if one file is the baseline of several targets. Also raises this error if
    the baseline is in the project's own output folder. Each build would then replace its own baseline.
    """
    judged = [name for name in targets if judges_growth(project, name)]
    path = baseline_path(project) if judged else None
    if path is None:
        return
    if path == project.out or any(path.is_relative_to(project.out / name) for name in project.config.targets):
        message = f"`baseline.from` is the project's own output, {baseline_name(project)}, which each build replaces"
        hint = "copy the output of a good build to another folder, and set `baseline.from` to that folder"
        raise project.error(message, *KEY, hint=hint)
    if len(judged) > 1 and not path.is_dir() and path.suffix == ".pte":
        message = f"`baseline.from` is one file, but {len(judged)} targets have limits for growth: {', '.join(judged)}"
        hint = "set `baseline.from` to the output folder of a build, or build one target with `-t`"
        raise project.error(message, *KEY, hint=hint)


def committed_lock(project: Project) -> str | None:
    """Return the text of the lock in the baseline's commit; None if there is no such text.

    The result is None if the commit does not contain a lock, or if the repository has no commits. Raises
    :class:`~etdev.errors.MissingRequirementError` if git, a repository or the commit is missing.
    """
    baseline, root = project.config.baseline, project.loaded.root
    reference = "" if baseline is None else baseline.from_.removeprefix(GIT_PREFIX)
    if _git(project, "rev-parse", "--git-dir") is None:
        raise _unknown(project, f"{root} is not in a git repository", "set `baseline.from` to a file or a folder")
    commit = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if commit is None:
        if _git(project, "rev-parse", "--verify", "--quiet", "HEAD") is None:
            return None
        hint = f"fetch it (`git fetch origin {reference}`; in GitHub Actions, checkout with `fetch-depth: 0`)"
        raise _unknown(project, f"this clone has no commit {reference!r}", hint)
    return _git(project, "cat-file", "blob", f"{commit.strip()}:./{project.lock.name}")


def _git(project: Project, *arguments: str) -> str | None:
    """Return git's output in the config's folder; None if git fails."""
    try:
        done = subprocess.run(["git", "-C", str(project.loaded.root), *arguments], capture_output=True, check=False)
    except OSError as error:
        raise _unknown(project, f"git cannot be run: {error.strerror}", "install git") from error
    return done.stdout.decode("utf-8", errors="replace") if done.returncode == 0 else None


def _unknown(project: Project, why: str, hint: str) -> MissingRequirementError:
    return MissingRequirementError(f"growth cannot be checked: {why}", where=project.where(*KEY), hint=hint)
