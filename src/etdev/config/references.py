"""Check of the files, modules and functions that a config refers to. The check does not import modules.

A missing file or module causes only a warning. A step of CI may still create the file, or the module may be installed
only on the build machine. A path of the wrong kind and an undefined function are errors.
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
from etdev.config.models import Config
from etdev.config.module_files import defined_names, is_installed, module_place, top_level_names
from etdev.config.tables.schemes import Pt2e
from etdev.errors import Problem


@dataclass(frozen=True, slots=True)
class References:
    """Errors and warnings about the files, modules and functions that a config refers to."""

    wrong: tuple[Problem, ...]
    """Errors, such as a folder instead of a file, or a module that does not define the function."""
    absent: tuple[Problem, ...]
    """Warnings about files and modules that do not exist yet."""


def check_references(loaded: LoadedConfig, more: Iterable[KeyPath] = ()) -> References:
    """Check every file, module and function that the effective config refers to.

    ``more`` are further keys with paths of files, such as options of backends.
    """
    found = [*_check_files(loaded, more), *_check_modules(loaded)]
    return References(
        tuple(problem for problem in found if problem.rule == REFERENCE),
        tuple(problem for problem in found if problem.rule == MISSING_FILE),
    )


def _check_files(loaded: LoadedConfig, more: Iterable[KeyPath]) -> Iterator[Problem]:
    for key in (*_file_keys(loaded.config), *more):
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
    yield from (("project", "native_libraries", index) for index in range(len(config.project.native_libraries)))
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
    """Return True if Python may find the module as an installed module, outside ``base``.

    Return False if ``base`` has a file of this module. A mere folder with this name does not hide an installed module.
    """
    place = module_place(module, base)
    return place is None or place.is_dir()


def _check_name(loaded: LoadedConfig, key: KeyPath, file: Path, name: str) -> Iterator[Problem]:
    names = defined_names(file)
    if names is not None and name not in names:
        hint = suggest(name, sorted(top_level_names(file)), written=literal)
        yield _problem(loaded, key, f"{file} does not define {name!r}", REFERENCE, hint)


def _module_keys(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Yield key and value of each config entry of the form ``module`` or ``module:callable``."""
    yield from _model_keys(config)
    for name, scheme in config.quantize.items():
        given = scheme.calibration if isinstance(scheme, Pt2e) else None
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

    With ``suffix``, return only names with this suffix, and remove the suffix from each name.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
    except OSError:
        return []
    return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]


def _problem(loaded: LoadedConfig, key: KeyPath, text: str, rule: str, hint: str | None) -> Problem:
    return loaded.problem(f"`{format_key(key)}`: {text}", *key, hint=hint, rule=rule)
