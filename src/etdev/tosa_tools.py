"""Arm's package ``tosa-tools``: the serializer of TOSA graphs, and the TOSA reference model.

The package has top-level modules named ``tests`` and ``runner``. So it is installed in a folder of its own, which is
not on Python's module path.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path

from etdev.errors import MissingRequirementError

DISTRIBUTION = "tosa-tools"
TESTED = ("2026.8.0",)
VARIABLE = "ETDEV_TOSA_TOOLS"
"""Environment variable with the folder of the package."""
_MODULES = ("ml_dtypes", "tosa_types", "tosa_serializer", "tosa_serializer.numpy_utils")
"""Modules that ExecuTorch's Arm backend imports, some of them only while it serializes a graph."""


def folder() -> Path:
    """Return the folder in which etdev looks for the package. The folder may not exist."""
    given = os.environ.get(VARIABLE)
    return Path(given) if given else Path(sys.prefix, "share", DISTRIBUTION)


def version() -> str | None:
    """Return the version of the package in :func:`folder`, or else in this environment; None if both lack it."""
    for found in metadata.distributions(name=DISTRIBUTION, path=[str(folder())]):
        return found.version
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None


def problem() -> str | None:
    """Return the reason why the package cannot be used; None if it is usable. Imports nothing."""
    if version() is None:
        return f"the package {DISTRIBUTION!r} is neither installed nor in {folder()}"
    if not (folder() / "ml_dtypes").is_dir() and util.find_spec("ml_dtypes") is None:
        return f"the package 'ml-dtypes', which {DISTRIBUTION!r} needs, is neither installed nor in {folder()}"
    return None


def command() -> str:
    """Return the command that installs the package in :func:`folder`, separately from all other packages."""
    return _command(str(folder()))


def portable_command() -> str:
    """Return a shell command that installs the package on another machine, for the Python that runs there."""
    return _command(f"$(python -c 'import sys; print(sys.prefix)')/share/{DISTRIBUTION}")


def _command(place: str) -> str:
    return f'pip install --no-deps --target "{place}" {DISTRIBUTION}=={TESTED[0]} ml-dtypes==0.5.3'


def remedy() -> str:
    """Return a hint for users: the command that installs the package, or the variable that names another folder."""
    return f"{command()}, or set {VARIABLE} to a folder that contains both packages"


@contextmanager
def importable() -> Iterator[None]:
    """Import the modules that the Arm backend needs.

    The package's folder is on the module path only during the block, after all other folders. Raises
    :class:`~etdev.errors.MissingRequirementError` if the package is missing, and ImportError if it is broken.
    """
    lacking = problem()
    if lacking is not None:
        raise MissingRequirementError(f"ExecuTorch's Arm backends cannot be imported: {lacking}", hint=remedy())
    place = str(folder())
    sys.path.append(place)
    try:
        for name in _MODULES:
            importlib.import_module(name)
        yield
    finally:
        sys.path.remove(place)
