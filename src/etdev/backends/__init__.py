"""Backends by name: the built-in backends, and the backends that other packages register.

A package registers an :class:`etdev.backends.base.Backend` object in the entry-point group ``etdev.backends``. The
package is imported only when a config uses the backend.
"""

from __future__ import annotations

import importlib

from etdev import plugins
from etdev.backends.base import Backend
from etdev.plugins import BACKENDS


def names() -> tuple[str, ...]:
    """Return the names of all backends, built-in backends first. This function loads no backend."""
    return plugins.names(BACKENDS)


def get(name: str) -> Backend:
    """Return the backend with this name.

    Raises :class:`KeyError` for a name that :func:`names` does not list. Raises
    :class:`~etdev.errors.MissingRequirementError` for a plug-in that cannot be imported or is not a backend. Also
    raises this error for a name that two packages register.
    """
    found: Backend
    if name in BACKENDS.built_in:
        plugins.check_name(BACKENDS, name)
        found = importlib.import_module(f"etdev.backends.{name.replace('-', '_')}").backend
    else:
        found = plugins.load(BACKENDS, name, (member for member in vars(Backend) if not member.startswith("_")))
    return found
