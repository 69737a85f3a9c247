"""Versions of what takes part in a build, found without importing any of it."""

from __future__ import annotations

import platform
from importlib import metadata

import etdev

PACKAGES = ("torch", "executorch", "torchao", "transformers", "openvino", "numpy", "safetensors")


def versions() -> dict[str, str]:
    """Of etdev, Python and every package of :data:`PACKAGES` that is installed."""
    found = {"etdev": etdev.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
