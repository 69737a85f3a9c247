"""Check of the files, modules and functions that a config names, without importing them.

Something that is missing only causes a warning: a step of CI may still train, export or download it, or a module may be
installed only where the build runs. Something that exists but is of the wrong kind is an error.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from etdev.config.checks.model import is_local
from etdev.config.describe.notation import literal
from etdev.config.issues import MISSING_FILE, REFERENCE
from etdev.config.keys import KeyPath, format_key, suggest
from etdev.config.loader import LoadedConfig
from etdev.config.models import Config, Pt2eXnnpack
from etdev.config.module_files import defined_names, is_installed, module_place
from etdev.errors import Problem


@dataclass(frozen=True, slots=True)
class References:
    """Problems with the files, modules and functions that a config names."""

    wrong: tuple[Problem, ...]
    """Errors about things that exist but are of the wrong kind."""
    absent: tuple[Problem, ...]
    """Warnings about things that do not exist, or not yet."""


def check_references(loaded: LoadedConfig) -> References:
    """Check every file, module and function that the effective config names."""
    found = [*_check_files(loaded), *_check_modules(loaded)]
    return References(
        tuple(problem for problem in found if problem.rule == REFERENCE),
        tuple(problem for problem in found if problem.rule == MISSING_FILE),
    )


def _check_files(loaded: LoadedConfig) -> Iterator[Problem]:
    for key in _file_keys(loaded.config):
        path = loaded.resolve(*key)
        if not os.path.exists(path):  # os.path, because Path's method raises for invalid names.
            otherwise = "make or download it before the build"
            hint = suggest(path.name, _names_in(path.parent), otherwise, literal)
            yield _problem(loaded, key, f"there is no file {path}", MISSING_FILE, hint)
        elif path.is_dir():
            if key[:2] != ("model", "inputs"):
                yield _problem(loaded, key, f"{path} is a folder", REFERENCE, "use the path of a file in it")
        elif not path.is_file():
            yield _problem(
                loaded, key, f"{path} is a pipe, a device or a socket", REFERENCE, "use the path of a regular file"
            )
    if loaded.config.model.hf is not None and is_local(loaded.config.model.hf):
        yield from _check_directory(loaded, ("model", "hf"))


def _file_keys(config: Config) -> Iterator[KeyPath]:
    for name in ("weights", "pt2"):
        if getattr(config.model, name) is not None:
            yield ("model", name)
    yield from (("model", "inputs", index) for index in range(len(config.model.inputs)))
    for name, target in config.targets.items():
        if target.runtime.operators is not None:
            yield ("targets", name, "runtime", "operators")


def _check_directory(loaded: LoadedConfig, key: KeyPath) -> Iterator[Problem]:
    path = loaded.resolve(*key)
    hint = "save the model there with model.save_pretrained"
    if path.is_file():
        yield _problem(
            loaded, key, f"{path} is a file", REFERENCE, "use the path of the directory that has config.json"
        )
    elif not (path / "config.json").is_file():
        yield _problem(loaded, key, f"there is no file {path / 'config.json'}", MISSING_FILE, hint)


def _check_modules(loaded: LoadedConfig) -> Iterator[Problem]:
    for key, value in _module_keys(loaded.config):
        module, _, attribute = value.partition(":")
        base = loaded.base(*key)
        place = module_place(module, base)
        top = module.partition(".")[0]
        if place is None and not (is_installed(top) and _is_found_elsewhere(top, base)):
            meant = module.removesuffix(".py")
            others = _names_in(base.joinpath(*meant.split(".")[:-1]), ".py")
            hint = suggest(meant.rpartition(".")[2], others, written=literal)
            text = f"there is no module {module!r} in {base}" + ("" if hint else ", and it is not installed here")
            yield _problem(loaded, key, text, MISSING_FILE, hint)
        elif place is not None and place.suffix == ".py" and attribute:
            yield from _check_name(loaded, key, place, attribute.partition(".")[0])


def _is_found_elsewhere(module: str, base: Path) -> bool:
    """Return True if Python may find the module outside ``base``, as an installed module.

    This is possible if ``base`` has no such module, or only a folder with its name.
    """
    place = module_place(module, base)
    return place is None or place.is_dir()


def _check_name(loaded: LoadedConfig, key: KeyPath, file: Path, name: str) -> Iterator[Problem]:
    names = defined_names(file)
    if names is not None and name not in names:
        hint = suggest(name, sorted(names), written=literal)
        yield _problem(loaded, key, f"{file} does not define {name!r}", REFERENCE, hint)


def _module_keys(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key and the value of every ``module`` and every ``module:callable`` in the config."""
    yield from _model_keys(config)
    for name, scheme in config.quantize.items():
        given = scheme.calibration if isinstance(scheme, Pt2eXnnpack) else None
        if isinstance(given, str):
            yield ("quantize", name, "calibration"), given
        for method, entry in given.items() if isinstance(given, Mapping) else ():
            yield ("quantize", name, "calibration", method), entry
    for name, target in config.targets.items():
        if target.verify.accuracy is not None:
            yield ("targets", name, "verify", "accuracy", "fn"), target.verify.accuracy.fn
        if target.verify.sessions is not None:
            yield ("targets", name, "verify", "sessions"), target.verify.sessions
        if ":" in target.memory.planner:
            yield ("targets", name, "memory", "planner"), target.memory.planner


def _model_keys(config: Config) -> Iterator[tuple[KeyPath, str]]:
    yield from ((("project", "imports", index), name) for index, name in enumerate(config.project.imports))
    if config.model.entry is not None:
        yield ("model", "entry"), config.model.entry
    if isinstance(config.constants, str):
        yield ("constants",), config.constants
    for name, method in config.methods.items():
        if method.samples is not None:
            yield ("methods", name, "samples"), method.samples


def _names_in(folder: Path, suffix: str = "") -> Iterable[str]:
    """Return the names of the files in a folder.

    With a suffix, return only the names of files that have it, without the suffix.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
    except OSError:
        return []
    return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]


def _problem(loaded: LoadedConfig, key: KeyPath, text: str, rule: str, hint: str | None) -> Problem:
    return loaded.problem(f"`{format_key(key)}`: {text}", *key, hint=hint, rule=rule)
