"""A loaded config with the names and paths that the stages derive from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from etdev.config.issues import CONFLICT
from etdev.config.limits import RESULTS
from etdev.config.loader import LoadedConfig
from etdev.config.models import Config
from etdev.config.parsing.config_files import lock_name
from etdev.errors import ConfigError
from etdev.pipeline.results.report import REPORT


@dataclass(frozen=True)
class Project:
    """A loaded config, with the project's name, folders and files."""

    loaded: LoadedConfig

    @property
    def config(self) -> Config:
        """The validated config."""
        return self.loaded.config

    @property
    def name(self) -> str:
        """Name of the project: ``project.name``, or else the folder's name with ``_`` for each invalid character."""
        if self.config.project.name is not None:
            return self.config.project.name
        cleaned = re.sub(r"[^A-Za-z0-9._-]", "_", self.loaded.root.name).lstrip("._-")
        return cleaned or "model"

    @property
    def out(self) -> Path:
        """Folder of all artifacts."""
        return self.loaded.resolve("project", "out")

    def artifact(self, target: str) -> Path:
        """Return the path of a target's program."""
        return self.out / target / f"{self.name}.pte"

    @property
    def results(self) -> Path:
        """Path of ``results.json``, which has the outcome of all targets of a build."""
        return self.out / RESULTS

    @property
    def lock(self) -> Path:
        """Path of the lock, next to the config: ``etdev.lock``, or ``NAME.lock`` for another config ``NAME.toml``."""
        return self.loaded.root / lock_name(self.loaded.path.name)

    @property
    def files(self) -> list[Path]:
        """Files that a build reads or writes: the config's files and the files of each target, without model files."""
        suffixes = (".pte", ".etrecord", ".object.pte", ".object.json", ".object.etrecord")
        names = [f"{self.name}{suffix}" for suffix in suffixes]
        folders = [self.out / target for target in self.config.targets]
        return [
            *self.loaded.files,
            self.lock,
            self.results,
            *(folder / name for folder in folders for name in (*names, REPORT)),
        ]

    def where(self, *key: str | int) -> str:
        """Return the location of a key for an error message: ``etdev.toml:3:9 (model.entry)``."""
        return f"{self.loaded.where(*key)} ({_dotted(key)})"

    def error(self, message: str, *key: str | int, hint: str | None, rule: str = CONFLICT) -> ConfigError:
        """Return an error about the value of a key.

        Use this function for errors that config validation cannot find.
        """
        return ConfigError((self.loaded.problem(message, *key, hint=hint, rule=rule),))

    def base(self, *key: str | int) -> Path:
        """Return the folder in which to search for the module that the config names at a key."""
        return self.loaded.base(*key)


def _dotted(key: tuple[str | int, ...]) -> str:
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def says_share_state(project: Project) -> bool:
    """Return True if the config sets ``model.share_state`` explicitly, to either true or false."""
    return ("model", "share_state") in project.loaded.origins
