"""Versions of what takes part in a build, found without importing any of it."""

from __future__ import annotations

import functools
import platform
from importlib import metadata

import etdev

PACKAGES = ("torch", "executorch", "torchao", "transformers", "openvino", "numpy", "safetensors")


def versions() -> dict[str, str]:
    """Of etdev, Python and every package of :data:`PACKAGES` that is installed."""
    found = {"etdev": etdev.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        version = package_version(name)
        if version is not None:
            found[name] = version
    return found


@functools.cache
def package_version(name: str) -> str | None:
    """Of an installed package, looked up once; None if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
