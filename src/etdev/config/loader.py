"""Function that merges all sources of a config into one validated :class:`Config`.

The layers are, lowest first: defaults, ``extends``, the file, the profile, ``ETDEV__SECTION__KEY``, ``--set``. The
result includes the origin of every value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etdev.config.checks import CHECKS
from etdev.config.describe.grammar import entries_of
from etdev.config.issues import REFERENCE
from etdev.config.keys import KeyPath, format_key, suggest
from etdev.config.layers import Layer, Origin, lookup
from etdev.config.models import Config
from etdev.config.parsing.config_files import display, find_config
from etdev.config.parsing.extends import read_files
from etdev.config.problems import in_file_order, with_nulls
from etdev.config.raw import Check
from etdev.config.variants import Variants, identity, in_profile, validate
from etdev.errors import ConfigError, Problem


@dataclass(frozen=True)
class LoadedConfig:
    """A validated config, with the origin of every value."""

    config: Config
    path: Path
    """Absolute path of the main config file."""
    profile: str | None
    origins: Mapping[KeyPath, Origin]
    """Origin of every value, table and list element that is set in a file, in the environment or by an option.

    Defaults have no origin.
    """
    files: tuple[Path, ...] = ()
    """Absolute paths of all files that were read to load this config. The main file is first."""
    layers: tuple[Layer, ...] = field(default=(), repr=False)
    """Layers before the merge, lowest first. The defaults are not included."""

    @property
    def root(self) -> Path:
        """Folder of the main config file."""
        return self.path.parent

    @property
    def name(self) -> str:
        """Path of the main config file for messages; relative if the file is inside the working folder."""
        return self.origins[()].source if () in self.origins else str(self.path)

    def origin(self, *key: str | int) -> Origin | None:
        """Return the origin of a value, or of the innermost enclosing table that has an origin.

        Return None if neither the value nor an enclosing table has an origin.
        """
        for length in range(len(key), 0, -1):
            if key[:length] in self.origins:
                return self.origins[key[:length]]
        return None

    def where(self, *key: str | int) -> str:
        """Return the location ``file:line:column`` of a value for messages.

        For a default, return the location of the innermost enclosing table that a layer sets.
        """
        origin = self.origin(*key) or self.origins.get(())
        return str(self.path) if origin is None else origin.place

    def base(self, *key: str | int) -> Path:
        """Return the folder to which relative paths and module names in this value refer."""
        origin = self.origin(*key)
        return self.root if origin is None else origin.base

    def problem(self, message: str, *key: str | int, hint: str | None, rule: str) -> Problem:
        """Return a problem at the location of a value.

        For a default, use the location of the innermost enclosing table that a layer sets.
        """
        origin = self.origin(*key)
        if origin is None:
            return Problem(message, format_key(key), hint=hint, rule=rule)
        return origin.problem(key, message, rule, hint)

    @property
    def overrides(self) -> dict[str, Any]:
        """Maps each key, as text, to the value that an environment variable or ``--set`` states.

        Keys of ``run`` and ``deploy`` are left out, because they do not affect a build.
        """
        keys = [
            key
            for key, origin in self.origins.items()
            if origin.layer in ("environment", "command line") and key[:1] not in ((), ("run",), ("deploy",))
        ]
        values = [key for key in keys if not any(isinstance(part, int) for part in key)]  # Lists are whole values.
        tables = {key[:length] for key in values for length in range(len(key))}
        found = {key: [lookup(layer.data, key) for layer in self.layers] for key in values if key not in tables}
        return {format_key(key): [value for there, value in own if there][-1] for key, own in found.items()}

    def resolve(self, *key: str | int) -> Path:
        """Return the path in a value as an absolute path.

        A relative path in a config file is relative to the folder of that file.
        """
        value: Any = self.config
        for part in key:
            value = entries_of(value)[part]
        if not isinstance(value, str):
            raise TypeError(f"{format_key(key)} is not a path")
        origin = self.origins.get(key)
        return Path(os.path.normpath((origin.base if origin else self.root) / value))


def load_config(
    path: Path | None = None,
    *,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str],
    cwd: Path,
    checks: Sequence[Check] = (),
) -> LoadedConfig:
    """Read, merge and validate a config.

    If ``path`` is None, search ``cwd`` for ``etdev.toml``, ``etdev.yaml``, ``etdev.yml`` and ``[tool.etdev]`` in
    ``pyproject.toml``. ``overrides`` are the ``key=value`` arguments of ``--set``. ``environ`` may contain variables
    ``ETDEV__SECTION__KEY``. All profiles are validated, not only the chosen profile. Raises
    :class:`etdev.errors.ConfigError` with all problems.
    """
    cwd = Path(os.path.abspath(cwd))
    main = find_config(cwd) if path is None else Path(os.path.normpath(cwd / path))
    read = read_files(main, cwd)
    sources = [display(file, cwd) for file in read.files]
    if read.incomplete or not read.merged.data:
        found = with_nulls(read.problems, read.nulls) or [_empty(sources[0])]
        raise ConfigError(in_file_order(found, sources))
    variants = Variants(read, environ, overrides)
    chosen = variants.chosen(profile)
    config, found = validate(chosen, (*CHECKS, *checks))
    problems = [*read.problems, *_profile_problems(profile, variants.names), *chosen.problems, *found]
    known = set(map(identity, problems))
    for other in variants.names:
        if other != profile:
            variant = variants.other(other)
            _, found = validate(variant, (*CHECKS, *checks))
            fresh = [problem for problem in (*variant.problems, *found) if identity(problem) not in known]
            known.update(map(identity, fresh))
            problems += [in_profile(problem, other) for problem in fresh]
    problems = with_nulls(problems, read.nulls)
    if config is None or problems:
        raise ConfigError(in_file_order(problems, sources))
    origins = {key: mark.origin for key, mark in chosen.merged.marks.items()}
    return LoadedConfig(config, main, profile, origins, tuple(read.files), tuple(chosen.layers))


def _profile_problems(profile: str | None, names: Sequence[str]) -> list[Problem]:
    if profile is None or profile in names:
        return []
    known = f"the profiles are: {', '.join(names)}" if names else "this config has no profiles"
    hint = suggest(profile, names, known)
    return [Problem(f"there is no profile `{profile}`", "profiles", f"--profile {profile}", hint=hint, rule=REFERENCE)]


def _empty(source: str) -> Problem:
    message = "the file is empty; a config needs at least `version`, `model` and `targets`"
    return Problem(message, "", source, 1, 1, "run `etdev init` to write a first config", "missing-key")
