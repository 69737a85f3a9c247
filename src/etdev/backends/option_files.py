"""Options of backends that are paths of files: their keys in a config, and problems with the files."""

from __future__ import annotations

from collections.abc import Iterator

from etdev import backends
from etdev.backends.base import ReadsFiles
from etdev.config.keys import KeyPath
from etdev.config.loader import LoadedConfig
from etdev.config.models import Partitioner
from etdev.errors import Problem


def option_file_keys(loaded: LoadedConfig) -> Iterator[KeyPath]:
    """Yield the keys of all options that are paths of files, in an effective config."""
    for target in loaded.config.targets:
        yield from target_file_keys(loaded, target)


def target_file_keys(loaded: LoadedConfig, target: str) -> Iterator[KeyPath]:
    """Yield the keys of a target's partitioner options that are paths of files."""
    for index, step in enumerate(loaded.config.targets[target].partitioners):
        backend = backends.get(step.backend)
        for name in backend.file_options if isinstance(backend, ReadsFiles) else ():
            if step.options.get(name) is not None:
                yield ("targets", target, "partitioners", index, "options", name)


def check_content(loaded: LoadedConfig) -> Iterator[Problem]:
    """Yield the problems that backends find in options with paths. Skip a partitioner with a missing file."""
    for target, settings in loaded.config.targets.items():
        keys = list(target_file_keys(loaded, target))
        for index, step in enumerate(settings.partitioners):
            files = {str(key[-1]): loaded.resolve(*key) for key in keys if key[3] == index}
            if files and all(path.is_file() for path in files.values()):
                yield from _check(loaded, target, index, step, {name: str(path) for name, path in files.items()})


def _check(
    loaded: LoadedConfig, target: str, index: int, step: Partitioner, files: dict[str, str]
) -> Iterator[Problem]:
    backend = backends.get(step.backend)
    if isinstance(backend, ReadsFiles):
        for issue in backend.check_files(backend.options.model_validate({**step.options, **files})):
            key = ("targets", target, "partitioners", index, "options", *issue.path)
            yield loaded.problem(issue.message, *key, hint=issue.hint, rule="option")
