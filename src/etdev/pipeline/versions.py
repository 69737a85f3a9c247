"""Versions of what takes part in a build, found without importing any of it."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable
from importlib import metadata

import etdev

PACKAGES = ("torch", "executorch", "torchao", "transformers", "openvino", "numpy", "safetensors")


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of etdev, of Python and of those of these packages that are installed."""
    found = {name: version for name in packages if (version := package_version(name)) is not None}
    return {"etdev": etdev.__version__, "python": platform.python_version(), **found}


@functools.cache
def package_version(name: str) -> str | None:
    """Of an installed package, looked up once; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
