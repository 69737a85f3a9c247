"""Importing and calling the Python code that a config names, and saying where in it something went wrong."""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from etdev.config.module_files import MODULE_ENDS
from etdev.errors import EtdevError, LoadError, MismatchError
from etdev.files import real_path

LIBRARIES = (*map(sysconfig.get_path, ("purelib", "platlib", "stdlib")), site.getusersitepackages())

_STAMPS: dict[Path, tuple[int, int, int] | None] = {}
"""Of the files of registered modules, when they were imported."""
_REGISTERED: dict[tuple[Path, str], dict[str, ModuleType]] = {}
"""What importing a module for its custom ops brought in, by folder and name: registering an op twice is an error."""


class UserCode:
    """The modules that one build imports from the folders of its config files.

    A context manager: inside, those folders come first in the module search, also for imports that the user's functions
    make later; on leaving, what was imported from them is forgotten, so that the next build in this process sees the
    files as they are then. Modules imported by :meth:`register` are remembered for the whole process.

    A process has one module of a name, and code expects the one in its own folder. What each file imports is read from
    its source before it runs, so that code in two folders that means two modules of one name is refused (it would share
    one of them), also where the import stands inside a function.
    """

    def __init__(self) -> None:
        self._bases: list[Path] = []
        self._hidden: dict[str, ModuleType] = {}
        self._kept: set[str] = set()
        self._path_before: list[str] = []
        self._modules_before: dict[str, ModuleType] = {}
        self._meant: dict[str, Path] = {}
        """File of each local module that a config or local code names."""
        self._asked: set[tuple[str, ...]] = set()
        """Names of modules that somebody imported: of those outside of packages, or in local ones."""
        self._named: set[str] = set()
        """What the imports in local code name."""
        self._hook = FileFinder.path_hook(
            (partial(_SourceLoader, self._note_imports), SOURCE_SUFFIXES),  # type: ignore[arg-type]
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
        )

    def __enter__(self) -> Self:
        self._path_before = list(sys.path)
        self._modules_before = dict(sys.modules)
        sys.path_hooks.insert(0, self._find_in_bases)
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.path[:] = self._path_before
        sys.path_hooks.remove(self._find_in_bases)
        sys.meta_path.remove(self)
        self._forget_finders()
        for name, module in list(sys.modules.items()):
            if self._modules_before.get(name) is not module and self._is_local(module) and name not in self._kept:
                del sys.modules[name]
        sys.modules.update(self._hidden)

    def register(self, names: Iterable[str], base: Path, where: str) -> None:
        """Import modules for what they register (custom ops), once per process."""
        for name in names:
            known = _REGISTERED.get((base, name))
            if known is None:
                before = dict(sys.modules)
                self._import(name, base, where)
                new = {key: module for key, module in sys.modules.items() if before.get(key) is not module}
                known = {key: module for key, module in new.items() if self._is_local(module)}
                _STAMPS.update({path: _stamp(path) for module in known.values() if (path := _file_of(module))})
                _REGISTERED[base, name] = known
            else:
                self._add_base(base)
                self._hide_foreign(name.partition(".")[0], base, where)
                sys.modules.update(known)
            self._kept |= known.keys()

    def get(self, entry: str, base: Path, where: str) -> Callable[..., Any]:
        """The callable ``module:attribute``, the module looked up in ``base`` first.

        Raises :class:`~etdev.errors.MismatchError` at ``where`` if the module or the attribute does not exist, and
        :class:`~etdev.errors.LoadError` if importing it fails.
        """
        module_name, _, attribute = entry.partition(":")
        found: Any = self._import(module_name, base, where)
        for part in attribute.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise _no_attribute(found, part, entry, where) from None
        if not callable(found):
            raise MismatchError(
                f"{entry!r} is not callable but {type(found).__name__}", where=where, hint="name a function or a class"
            )
        function: Callable[..., Any] = found
        return function

    def describe(self, error: BaseException) -> str:
        """``TypeError: … (model.py:12, in forward)``: the error and the last line of the user's own code behind it."""
        text = str(error).strip() or "no message"
        place = self.place(error.__traceback__)
        if isinstance(error, SyntaxError) and error.filename is not None:
            text, place = error.msg, f"{self.shorten(error.filename) or error.filename}:{error.lineno}"
        return f"{type(error).__name__}: {text}" + (f" ({place})" if place else "")

    def place(self, trace: TracebackType | None) -> str | None:
        """``model.py:12, in forward`` for the innermost frame of the user's own code, relative to its config."""
        for frame in reversed(traceback.extract_tb(trace)):
            short = self.shorten(frame.filename)
            if short is not None:
                return f"{short}:{frame.lineno}, in {frame.name}"
        return None

    def shorten(self, filename: str) -> str | None:
        """The file relative to the config's folder; None if it is not the user's code."""
        path = Path(filename)
        if any(path.is_relative_to(library) for library in LIBRARIES):
            return None
        for base in self._bases:
            for folder in (base, real_path(base)):
                if path.is_relative_to(folder):
                    return str(path.relative_to(folder))
        return None

    def modules(self) -> dict[str, Path]:
        """Every module of the user's own code that has been imported so far, with its file."""
        files = {name: _file_of(module) for name, module in list(sys.modules.items())}
        return {
            name: path
            for name, path in files.items()
            if path is not None and self.shorten(str(path)) is not None and path.is_file()
        }

    def missing(self) -> set[Path]:
        """Modules, as paths without a suffix, that were looked for in the project's folders and are not there."""
        places = {base.joinpath(*parts) for base in self._bases for parts in self._asked}
        return {place for place in places if not _is_module(place)}

    def packages(self, roots: Iterable[str]) -> dict[str, str]:
        """Versions of the installed packages that code of the project, or ``roots``, names in imports; by package."""
        tops = {name.partition(".")[0] for name in (*self._named, *roots)}
        known = _packages_of_modules()
        return {package: metadata.version(package) for top in sorted(tops) for package in known.get(top, ())}

    def stale(self) -> set[Path]:
        """Files of modules that were registered before and have changed since: what is imported is the old code."""
        return {path for (base, _), known in _REGISTERED.items() if base in self._bases for path in _changed(known)}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A finder of ``sys.meta_path``: a module that local code means is found where that code expects it."""
        parts = tuple(name.split("."))
        package = sys.modules.get(name.rpartition(".")[0])
        if len(parts) == 1 or (package is not None and self._is_local(package)):
            self._asked.add(parts)
        file = self._meant.get(name)
        if file is None:
            return None
        folder = file.parent.parent if file.name == "__init__.py" else file.parent
        return PathFinder.find_spec(name, [str(folder)])

    def _import(self, name: str, base: Path, where: str) -> ModuleType:
        self._add_base(base)
        top = name.partition(".")[0]
        self._hide_foreign(top, base, where)
        try:
            self._note_import(name, base)
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
                raise _no_module(name, base, where) from None
            raise LoadError(
                f"importing {name!r} failed: {self.describe(error)}",
                where=where,
                hint=f"install the package that provides {error.name!r}, or write {error.name}.py beside the config",
            ) from error
        except EtdevError as error:
            error.where = error.where or where
            raise
        except (Exception, SystemExit) as error:
            raise LoadError(f"importing {name!r} failed: {self.describe(error)}", where=where) from error

    def _add_base(self, base: Path) -> None:
        """Search ``base`` before everything else, the folders of other config files included."""
        if base not in self._bases:
            self._bases.append(base)
            self._forget_finders()
            importlib.invalidate_caches()
        sys.path[:] = [str(base), *(entry for entry in sys.path if entry != str(base))]

    def _find_in_bases(self, path: str) -> Any:
        """A path hook for the user's own folders."""
        if not self._is_own(Path(path)):
            raise ImportError(f"{path} is not the user's code")
        return self._hook(path)

    def _forget_finders(self) -> None:
        for path in [path for path in sys.path_importer_cache if self._is_own(Path(path))]:
            del sys.path_importer_cache[path]

    def _hide_foreign(self, top: str, base: Path, where: str) -> None:
        """Make room for a local module whose name some other module already has in this process."""
        loaded = sys.modules.get(top)
        local = [path for path in (base / top / "__init__.py", base / f"{top}.py") if path.is_file()]
        if loaded is not None and getattr(loaded, "__file__", None) is None and (base / top).is_dir():
            local.append(base / top)  # a namespace package, which only another one can hide
        if not local or loaded is None:
            return
        path = _file_of(loaded)
        if path is not None and path.is_relative_to(real_path(base)):
            return
        if path is not None and self._is_local(loaded):
            raise LoadError(
                f"two config files name a module {top!r}: {path} and {local[0]}",
                where=where,
                hint="rename one of the two modules",
            )
        for name in [name for name in sys.modules if name == top or name.startswith(top + ".")]:
            self._hidden[name] = sys.modules.pop(name)

    def _note_imports(self, tree: ast.Module, base: Path) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._named.update(alias.name for alias in node.names)
                for alias in node.names:
                    self._note_import(alias.name, base)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
                self._named.add(node.module)
                for alias in node.names:
                    self._note_import(f"{node.module}.{alias.name}", base)

    def _note_import(self, dotted: str, base: Path) -> None:
        """Note which file in ``base`` an import there means, if any, and refuse a second one of the same name."""
        name, file = _local_module(dotted, base)
        if file is None:
            return
        loaded = sys.modules.get(name)
        if loaded is not None and not self._is_local(loaded):
            return
        found = _file_of(loaded) if loaded is not None else None
        other = found or self._meant.setdefault(name, file)
        if real_path(other) != real_path(file):
            raise LoadError(
                f"the code of two config files imports a module {name!r}: {other} and {file}",
                hint="rename one of the two modules",
            )

    def _is_local(self, module: ModuleType) -> bool:
        path = _file_of(module)
        return path is not None and self._is_own(path)

    def _is_own(self, path: Path) -> bool:
        """Whether a path lies in a config's folder and not in one that the process imports from anyway.

        The latter is how packages that are installed from their sources (etdev's, the user's) can lie below a config.
        """
        if self.shorten(str(path)) is None:
            return False
        bases = [real_path(base) for base in self._bases]
        return not any(
            path.is_relative_to(folder) and folder not in bases and any(folder.is_relative_to(base) for base in bases)
            for folder in map(Path, filter(None, self._path_before))
        )


class _SourceLoader(SourceFileLoader):
    """Compiles the source as it stands. Cached bytecode is told apart by whole seconds, and would be written there.

    ``note`` is told the source and the folder that the module's whole name is looked up in, before the source runs.
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


@contextmanager
def translated(
    user: UserCode, kind: type[EtdevError], what: str, *, where: str | None = None, hint: str | None = None
) -> Iterator[None]:
    """Turn what the user's code raises into ``kind`` with a sentence that starts with ``what``."""
    try:
        yield
    except EtdevError:
        raise
    except (Exception, SystemExit) as error:
        raise kind(f"{what}: {user.describe(error)}", where=where, hint=hint) from error


@functools.cache
def _packages_of_modules() -> Mapping[str, list[str]]:
    """Module → the installed packages that have it; finding out takes a while."""
    return metadata.packages_distributions()


def _is_module(place: Path) -> bool:
    """Is there a module, or a folder that is one, at a path without a suffix?"""
    return place.is_dir() or any(Path(f"{place}{end}").is_file() for end in MODULE_ENDS)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _changed(known: Mapping[str, ModuleType]) -> Iterator[Path]:
    for module in known.values():
        path = _file_of(module)
        if path is not None and _STAMPS.get(path) != _stamp(path):
            yield path


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    if file is None:
        paths = list(getattr(module, "__path__", []))
        file = paths[0] if paths else None
    return real_path(file) if file else None


def _local_module(dotted: str, base: Path) -> tuple[str, Path | None]:
    """The outermost module of a dotted name that is a file or a package in ``base``; folders without one go deeper."""
    parts = dotted.split(".")
    for count, part in enumerate(parts, 1):
        folder = base.joinpath(*parts[: count - 1])
        for file in (folder / f"{part}{end}" for end in MODULE_ENDS):
            if file.is_file():
                return ".".join(parts[:count]), file
        if not (folder / part).is_dir():
            break
    return dotted, None


def _no_module(name: str, base: Path, where: str) -> MismatchError:
    package = name.rpartition(".")[0]
    folder = base / package.replace(".", "/")
    found = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    here = sorted(f"{package}.{stem}" if package else stem for stem in found - {"__init__"})
    near = difflib.get_close_matches(name, here, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif here:
        hint = f"modules there: {', '.join(here)}"
    else:
        hint = f"create {base / (name.replace('.', '/') + '.py')}, or name an installed module"
    return MismatchError(
        f"there is no module {name!r}, neither in {base} nor among the installed packages", where=where, hint=hint
    )


def _no_attribute(holder: object, part: str, entry: str, where: str) -> MismatchError:
    public = [name for name in dir(holder) if not name.startswith("_")]
    near = difflib.get_close_matches(part, public, n=1)
    label = getattr(holder, "__name__", type(holder).__name__)
    own = [name for name in public if getattr(getattr(holder, name), "__module__", None) == label]
    return MismatchError(
        f"{label!r} has no attribute {part!r} (from {entry!r})",
        where=where,
        hint=f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(own)}" if own else None,
    )
