"""Modules that stay in float: the option ``keep_float`` of quantization schemes."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from etdev.config.keys import suggest
from etdev.errors import QuantizeError


def is_in_modules(path: str, patterns: Iterable[str]) -> bool:
    """Return True if the module at ``path``, or an enclosing module, matches one of the patterns."""
    return any(fnmatchcase(outer, pattern) for outer in _enclosing(path) for pattern in patterns)


def check_modules_exist(patterns: Iterable[str], paths: Iterable[str], where: str) -> None:
    """Raise :class:`~etdev.errors.QuantizeError` if a pattern matches none of the modules at ``paths``.

    ``where`` is the location of ``keep_float`` in the config.
    """
    modules = {outer for path in paths for outer in _enclosing(path)}
    known = f"use some of {', '.join(sorted(modules)[:10])}" if modules else "remove it: the model has no inner modules"
    for pattern in patterns:
        if not any(fnmatchcase(module, pattern) for module in modules):
            raise QuantizeError(
                f"`keep_float` has {pattern!r}, but the model computes nothing in a module with this path",
                where=where,
                hint=suggest(pattern, modules, known, repr),
            )


def _enclosing(path: str) -> list[str]:
    """Return the paths of the module and of its enclosing modules, without the root."""
    parts = path.split(".") if path else []
    return [".".join(parts[: count + 1]) for count in range(len(parts))]
