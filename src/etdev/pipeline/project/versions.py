"""Versions of the packages that a build uses, found without importing them."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable
from importlib import metadata

from etdev import tosa_tools
from etdev._version import __version__

PACKAGES = ("torch", "executorch", "torchao", "transformers", "openvino", "numpy", "safetensors")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of etdev, Python and the installed packages in ``packages``, by name."""
    found = {name: version for name in packages if (version := package_version(name)) is not None}
    return {"etdev": __version__, "python": platform.python_version(), **found}


@functools.cache
def package_version(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed. The result is cached."""
    if name == tosa_tools.DISTRIBUTION:
        return tosa_tools.version()
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
