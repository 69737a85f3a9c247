"""Functions on modules of the user's code: find, load and classify modules, and describe missing names."""

from __future__ import annotations

import ast
import difflib
import functools
import os
import re
import site
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Set
from importlib import metadata
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from etdev.config.module_files import MODULE_ENDS
from etdev.errors import MismatchError
from etdev.files import real_path

LIBRARIES = (
    *map(sysconfig.get_path, ("purelib", "platlib", "stdlib")),
    site.getusersitepackages(),
    str(Path(__file__).parents[2]),
)
"""Folders of installed packages and of the standard library. The last entry contains etdev itself."""
STAMPS: dict[Path, tuple[int, int, int] | None] = {}
"""Maps the path of each module's file to its size and times at import; to None if the file did not exist."""


class SourceLoader(SourceFileLoader):
    """A loader that always compiles the current source, and never uses or writes bytecode.

    Bytecode may be out of date, because Python compares times in whole seconds only. Writing bytecode would change the
    user's folder.

    Before the source runs, the loader calls ``note`` with the syntax tree of the source and with a folder. The folder
    is the root of the module's full name: ``/a`` for the module ``b.c`` in ``/a/b/c.py``.
    """

    def __init__(self, note: Callable[[ast.Module, Path], None], fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._note = note

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        code = self.source_to_code(source, path)
        self._note(ast.parse(source), Path(path).parents[fullname.count(".") + self.is_package(fullname)])
        return code


def packages_of_modules(names: Set[str]) -> set[str]:
    """Return the installed packages that provide top-level modules with these names.

    ``importlib.metadata.packages_distributions`` does the same, but slower: it parses each package's list of files.
    """
    endings = "|".join(re.escape(ending) for ending in MODULE_ENDS)
    listed = re.compile(rf"^(?:{'|'.join(map(re.escape, names))})(?:/|(?:{endings}),)", re.MULTILINE)
    found = set()
    for package in metadata.distributions() if names else ():
        declared = (package.read_text("top_level.txt") or "").split()
        if not names.isdisjoint(declared) if declared else listed.search(package.read_text("RECORD") or ""):
            found.add(package.metadata["Name"])
    return found


def is_module(place: Path) -> bool:
    """Return True if there is a module or a folder at ``place``, a path without a suffix."""
    return place.is_dir() or any(Path(f"{place}{end}").is_file() for end in MODULE_ENDS)


def is_below(path: str, folder: str | Path) -> bool:
    """Return True if ``path`` is the folder itself or a path in it.

    The comparison is one of strings, because builds make thousands of them, and ``Path`` takes seven times as long.
    """
    return os.path.join(path, "").startswith(os.path.join(folder, ""))


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return the size and times of a file, for detecting changes; None if the file does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def changed_files(known: Mapping[str, ModuleType]) -> Iterator[Path]:
    for module in known.values():
        path = file_of(module)
        if path is not None and STAMPS.get(path) != stamp_of(path):
            yield path


def is_installed(module: ModuleType) -> bool:
    """Return True if a module comes from an installed package or from the standard library."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_in_libraries(file)


@functools.cache
def _is_in_libraries(file: str) -> bool:
    """Return True if a file is in a library's folder.

    Results are cached, because a build tests thousands of files.
    """
    return real_path(file).as_posix().startswith(_library_folders())


@functools.cache
def _library_folders() -> tuple[str, ...]:
    """Return two paths of each library folder: as given, and with symbolic links resolved. Each ends with ``/``."""
    folders = {folder for library in LIBRARIES for folder in (Path(library), real_path(library))}
    return tuple(f"{folder.as_posix()}/" for folder in folders)


def file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    if file is None:
        paths = list(getattr(module, "__path__", []))
        file = paths[0] if paths else None
    return real_path(file) if file else None


def local_module(dotted: str, base: Path) -> tuple[str, Path | None]:
    """Find the outermost part of a dotted name that is a module or package in ``base``; return its name and file.

    For ``a.b.c``, this part is ``a``. If ``a`` is a folder without ``__init__``, try ``a.b`` next, and so on. If no
    part is found, return the dotted name and None.
    """
    parts = dotted.split(".")
    for count, part in enumerate(parts, 1):
        folder = base.joinpath(*parts[: count - 1])
        for file in (folder / f"{part}{end}" for end in MODULE_ENDS):
            if file.is_file():
                return ".".join(parts[:count]), file
        if not (folder / part).is_dir():
            break
    return dotted, None


def no_module(name: str, base: Path, where: str) -> MismatchError:
    package = name.rpartition(".")[0]
    folder = base / package.replace(".", "/")
    found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    here = sorted(f"{package}.{stem}" if package else stem for stem in found - {"__init__"})
    near = difflib.get_close_matches(name, here, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif here:
        hint = f"its modules are: {', '.join(here)}"
    else:
        hint = f"create {base / (name.replace('.', '/') + '.py')}, or name an installed module"
    return MismatchError(
        f"there is no module {name!r}, neither in {base} nor among the installed packages", where=where, hint=hint
    )


def no_attribute(holder: object, part: str, entry: str, where: str) -> MismatchError:
    public = [name for name in dir(holder) if not name.startswith("_")]
    near = difflib.get_close_matches(part, public, n=1)
    label = getattr(holder, "__name__", type(holder).__name__)
    own = [name for name in public if getattr(getattr(holder, name), "__module__", None) == label]
    return MismatchError(
        f"{label!r} has no attribute {part!r} (from {entry!r})",
        where=where,
        hint=f"did you mean {near[0]!r}?" if near else f"its attributes are: {', '.join(own)}" if own else None,
    )
