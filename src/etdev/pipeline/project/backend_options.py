"""Options of the backends in a config. Relative paths in these options become absolute paths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etdev import backends
from etdev.backends.base import ReadsFiles
from etdev.backends.option_files import target_file_keys
from etdev.config.issues import MISSING_FILE
from etdev.config.keys import KeyPath
from etdev.pipeline.project import Project


def backend_options(project: Project, target: str, index: int) -> Any:
    """Return the options of a partitioner, as an instance of its backend's model."""
    step = project.config.targets[target].partitioners[index]
    files = {str(key[-1]): str(path) for key, path in _files(project, target, index)}
    return backends.get(step.backend).options.model_validate({**step.options, **files})


def option_files(project: Project, target: str) -> Iterator[Path]:
    """Yield the files that the options of a target's partitioners name."""
    for index in range(len(project.config.targets[target].partitioners)):
        yield from (path for _, path in _files(project, target, index))


def check_option_files(project: Project, target: str) -> None:
    """Check the files that the options of a target's partitioners name.

    Raises :class:`~etdev.errors.ConfigError` for the first problem.
    """
    for index, step in enumerate(project.config.targets[target].partitioners):
        for key, path in _files(project, target, index):
            if not path.is_file():
                raise project.error(f"there is no file {path}", *key, hint="correct the path", rule=MISSING_FILE)
        backend = backends.get(step.backend)
        if isinstance(backend, ReadsFiles):
            for issue in backend.check_files(backend_options(project, target, index)):
                key = ("targets", target, "partitioners", index, "options", *issue.path)
                raise project.error(issue.message, *key, hint=issue.hint)


def _files(project: Project, target: str, index: int) -> Iterator[tuple[KeyPath, Path]]:
    keys = (key for key in target_file_keys(project.loaded, target) if key[3] == index)
    yield from ((key, project.loaded.resolve(*key)) for key in keys)
