"""Imports and calls the user's Python code; errors state the line in that code."""

from __future__ import annotations

import ast
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
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
)
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from etdev.errors import EtdevError, LoadError, MismatchError
from etdev.extras import install_advice
from etdev.files import real_path
from etdev.pipeline.project.user_modules import (
    LIBRARIES,
    STAMPS,
    SourceLoader,
    changed_files,
    file_of,
    is_below,
    is_installed,
    is_module,
    local_module,
    no_attribute,
    no_module,
    packages_of_modules,
    stamp_of,
)

_REGISTERED: dict[tuple[Path, str], dict[str, ModuleType]] = {}
"""Maps each entry of ``project.imports``, as (folder, name), to the modules that its import loaded, by module name.

Later builds use these modules again. Another import would register the same custom ops twice, which is an error.
"""


class UserCode:
    """The modules that one build imports from the folders of its config files; a context manager.

    Inside the block, Python searches these folders first, also for imports that the user's functions make later. On
    exit, the modules from these folders are removed from ``sys.modules``. The next build in this process then reads the
    files again. Modules imported by :meth:`register` stay for the whole process.

    Python can load only one module of each name. This class collects the imports in each source file, including imports
    inside functions, before the file runs. If code in two folders imports different modules of the same name, an error
    is raised.
    """

    def __init__(self) -> None:
        self._bases: dict[Path, Path] = {}
        """Maps the folder of each config file to its path without symbolic links."""
        self._hidden: dict[str, ModuleType] = {}
        self._kept: set[str] = set()
        self._path_before: list[str] = []
        self._modules_before: set[str] = set()
        self._meant: dict[str, Path] = {}
        """Maps the name of each imported local module to the module's file."""
        self._asked: set[tuple[str, ...]] = set()
        """Names of modules that Python looked for, split at the dots.

        Only top-level modules and modules in local packages are included.
        """
        self._named: set[str] = set()
        """Names in the import statements of local code."""
        self._hook = FileFinder.path_hook(
            (partial(SourceLoader, self._note_imports), SOURCE_SUFFIXES),  # type: ignore[arg-type]
            (ExtensionFileLoader, EXTENSION_SUFFIXES),
        )

    def __enter__(self) -> Self:
        self._path_before = list(sys.path)
        self._modules_before = set(sys.modules)
        sys.path_hooks.insert(0, self._find_in_bases)
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.path[:] = self._path_before
        sys.path_hooks.remove(self._find_in_bases)
        sys.meta_path.remove(self)
        self._forget_finders()
        for name in (sys.modules.keys() - self._modules_before) | (self._hidden.keys() & sys.modules.keys()):
            if name not in self._kept and self._is_local(sys.modules[name]):
                del sys.modules[name]
        sys.modules.update(self._hidden)

    def register(self, names: Iterable[str], base: Path, where: str) -> None:
        """Import modules that register custom ops, once per process."""
        for name in names:
            known = _REGISTERED.get((base, name))
            if known is None:
                before = dict(sys.modules)
                self._import(name, base, where)
                new = {key: module for key, module in sys.modules.items() if before.get(key) is not module}
                known = {key: module for key, module in new.items() if self._is_local(module)}
                STAMPS.update({path: stamp_of(path) for module in known.values() if (path := file_of(module))})
                _REGISTERED[base, name] = known
            else:
                self._add_base(base)
                self._hide_foreign(name.partition(".")[0], base, where)
                sys.modules.update(known)
            self._kept |= known.keys()

    def get(self, entry: str, base: Path, where: str) -> Callable[..., Any]:
        """Return the callable ``module:attribute``; search the module in ``base`` first.

        Raises :class:`~etdev.errors.MismatchError`, with the location ``where``, if the module or the attribute does
        not exist. Raises :class:`~etdev.errors.LoadError` if importing the module fails.
        """
        module_name, _, attribute = entry.partition(":")
        found: Any = self._import(module_name, base, where)
        for part in attribute.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise no_attribute(found, part, entry, where) from None
        if not callable(found):
            raise MismatchError(
                f"{entry!r} is of type {type(found).__name__}, which is not callable",
                where=where,
                hint="use the name of a function or a class",
            )
        function: Callable[..., Any] = found
        return function

    def describe(self, error: BaseException) -> str:
        """Describe an error with the innermost line of the user's code: ``TypeError: … (model.py:12, in forward)``."""
        text = str(error).strip() or "no message"
        place = self.place(error.__traceback__)
        if isinstance(error, SyntaxError) and error.filename is not None:
            text, place = error.msg, f"{self.shorten(error.filename) or error.filename}:{error.lineno}"
        return f"{type(error).__name__}: {text}" + (f" ({place})" if place else "")

    def place(self, trace: TracebackType | None) -> str | None:
        """Return the innermost frame in the user's code as ``model.py:12, in forward``; None without such a frame."""
        for frame in reversed(traceback.extract_tb(trace)):
            short = self.shorten(frame.filename)
            if short is not None:
                return f"{short}:{frame.lineno}, in {frame.name}"
        return None

    def shorten(self, filename: str) -> str | None:
        """Return the path of a file relative to the config's folder; None if the file is not the user's code."""
        for folders in self._bases.items():
            for folder in folders:
                if is_below(filename, folder):
                    in_library = any(is_below(filename, library) for library in LIBRARIES)
                    return None if in_library else str(Path(filename).relative_to(folder))
        return None

    def modules(self) -> dict[str, Path]:
        """Return the file of each imported module of the user's code, by module name."""
        files = {name: file_of(module) for name, module in list(sys.modules.items()) if not is_installed(module)}
        return {
            name: path
            for name, path in files.items()
            if path is not None and self.shorten(str(path)) is not None and path.is_file()
        }

    def missing(self) -> set[Path]:
        """Return the paths, without a suffix, at which Python looked for a module of the project and found none."""
        places = {base.joinpath(*parts) for base in self._bases for parts in self._asked}
        return {place for place in places if not is_module(place)}

    def packages(self, roots: Iterable[str]) -> dict[str, str]:
        """Return the versions of packages that the project's code imports, by package name.

        ``roots`` are names of further modules whose packages are included.
        """
        tops = {name.partition(".")[0] for name in (*self._named, *roots)}
        return {package: metadata.version(package) for package in sorted(packages_of_modules(tops))}

    def stale(self) -> set[Path]:
        """Return the files of registered modules that changed after import. The loaded code is then out of date."""
        return {
            path for (base, _), known in _REGISTERED.items() if base in self._bases for path in changed_files(known)
        }

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a local module that local code imports; None for any other module.

        Python calls this method because this object is in ``sys.meta_path``.
        """
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
                raise no_module(name, base, where) from None
            hint = f"install the package that provides {error.name!r}, or write {error.name}.py next to the config"
            raise LoadError(
                f"importing {name!r} failed: {self.describe(error)}",
                where=where,
                hint=install_advice(str(error.name)) or hint,
            ) from error
        except EtdevError as error:
            error.where = error.where or where
            raise
        except (Exception, SystemExit) as error:
            raise LoadError(f"importing {name!r} failed: {self.describe(error)}", where=where) from error

    def _add_base(self, base: Path) -> None:
        """Make Python search ``base`` before all other folders, including those of other config files."""
        if base not in self._bases:
            self._bases[base] = real_path(base)
            self._forget_finders()
            importlib.invalidate_caches()
        sys.path[:] = [str(base), *(entry for entry in sys.path if entry != str(base))]

    def _find_in_bases(self, path: str) -> Any:
        """Return a finder for a folder of the user's code; raise ImportError for other folders.

        Python calls this method as a path hook.
        """
        if not self._is_own(path):
            raise ImportError(f"{path} is not a folder of the project's code")
        return self._hook(path)

    def _forget_finders(self) -> None:
        for path in [path for path in sys.path_importer_cache if self._is_own(path)]:
            del sys.path_importer_cache[path]

    def _hide_foreign(self, top: str, base: Path, where: str) -> None:
        """Until the block ends, hide an already loaded module that has the same name as a local module."""
        loaded = sys.modules.get(top)
        local = [path for path in (base / top / "__init__.py", base / f"{top}.py") if path.is_file()]
        if loaded is not None and getattr(loaded, "__file__", None) is None and (base / top).is_dir():
            local.append(base / top)  # Only a namespace package can hide a namespace package.
        if not local or loaded is None:
            return
        path = file_of(loaded)
        if path is not None and path.is_relative_to(real_path(base)):
            return
        if path is not None and self._is_local(loaded):
            raise LoadError(
                f"two config files refer to different modules with the name {top!r}: {path} and {local[0]}",
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
        """Record the file in ``base`` that the import of ``dotted`` refers to.

        Raises an error if another file was recorded or loaded under the same module name.
        """
        name, file = local_module(dotted, base)
        if file is None:
            return
        loaded = sys.modules.get(name)
        if loaded is not None and not self._is_local(loaded):
            return
        found = file_of(loaded) if loaded is not None else None
        other = found or self._meant.setdefault(name, file)
        if real_path(other) != real_path(file):
            raise LoadError(
                f"the code of two config files imports different modules with the name {name!r}: {other} and {file}",
                hint="rename one of the two modules",
            )

    def _is_local(self, module: ModuleType) -> bool:
        path = None if is_installed(module) else file_of(module)
        return path is not None and self._is_own(str(path))

    def _is_own(self, path: str) -> bool:
        """Return True if a path is in a config's folder, but not in a nested folder of libraries.

        Packages that are installed from source, such as etdev itself, may be located below a config's folder.
        """
        if self.shorten(path) is None:
            return False
        bases = self._bases.values()
        return not any(
            is_below(path, folder) and Path(folder) not in bases and any(is_below(folder, base) for base in bases)
            for folder in filter(None, self._path_before)
        )


@contextmanager
def translated(user: UserCode, kind: type[EtdevError], what: str, *, where: str) -> Iterator[None]:
    """In the block, convert errors of the user's code to ``kind``. The messages begin with ``what``."""
    try:
        yield
    except EtdevError:
        raise
    except (Exception, SystemExit) as error:
        raise kind(f"{what}: {user.describe(error)}", where=where) from error
