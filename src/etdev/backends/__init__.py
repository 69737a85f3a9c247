"""Backends by name: built-in ones, and those that other packages register.

A package registers a :class:`etdev.backends.base.Backend` object in the entry-point group ``etdev.backends``. It is
imported only when a config names it.
"""

from __future__ import annotations

import importlib
from importlib import metadata

from etdev.backends.base import Backend
from etdev.errors import MissingRequirementError

ENTRY_POINT_GROUP = "etdev.backends"

_BUILT_IN = {
    "portable": "etdev.backends.portable",
    "xnnpack": "etdev.backends.xnnpack",
    "openvino": "etdev.backends.openvino",
    "vulkan": "etdev.backends.vulkan",
    "cuda": "etdev.backends.cuda",
    "reference": "etdev.backends.reference",
}


def names() -> tuple[str, ...]:
    """Return the names of all backends, built-in ones first, without loading any."""
    plugins = sorted({point.name for point in metadata.entry_points(group=ENTRY_POINT_GROUP)} - _BUILT_IN.keys())
    return (*_BUILT_IN, *plugins)


def get(name: str) -> Backend:
    """Return the backend with this name.

    Raises :class:`KeyError` for a name that :func:`names` does not list, and
    :class:`~etdev.errors.MissingRequirementError` for a plug-in that cannot be imported or is not a backend.
    """
    if name in _BUILT_IN:
        found: Backend = importlib.import_module(_BUILT_IN[name]).backend
        return found
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if point.name == name:
            return _load_plugin(point)
    raise KeyError(name)


def plugin_distribution(name: str) -> metadata.Distribution | None:
    """Return the package that registers a backend; None for a built-in one. Imports nothing."""
    if name in _BUILT_IN:
        return None
    points = metadata.entry_points(group=ENTRY_POINT_GROUP)
    return next((point.dist for point in points if point.name == name), None)


def _load_plugin(point: metadata.EntryPoint) -> Backend:
    package = point.dist.name if point.dist else point.module
    try:
        loaded = point.load()
    except Exception as error:
        raise MissingRequirementError(
            f"the backend {point.name!r} of {package!r} cannot be imported: {type(error).__name__}: {error}",
            hint=f"update or remove the package {package!r}",
        ) from error
    lacking = sorted(name for name in vars(Backend) if not name.startswith("_") and not hasattr(loaded, name))
    if lacking or isinstance(loaded, type):
        raise MissingRequirementError(
            f"{point.value!r}, which {package!r} registers as the backend {point.name!r}, is not a backend: "
            + (f"it lacks {', '.join(lacking)}" if lacking else "it is a class"),
            hint="a backend has the members of etdev.backends.base.Backend"
            if lacking
            else "register an object of the class",
        )
    found: Backend = loaded
    return found
