"""Extras of the package etdev, and the commands that install them."""

from __future__ import annotations

from collections.abc import Iterable

_EXTRAS = {"torch": "build", "executorch": "build", "torchao": "build", "safetensors": "build", "transformers": "hf"}
"""Maps a module that models import to the extra of etdev that installs the module."""


def install_command(*extras: str) -> str:
    """Return the command that installs these extras, such as ``pip install "etdev[build,hf]"``."""
    return f'pip install "etdev[{",".join(extras)}]"'


def extras_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the extras that install these top-level modules, sorted. Modules of other packages are left out."""
    return tuple(sorted({_EXTRAS[module] for module in modules if module in _EXTRAS}))


def install_advice(module: str) -> str | None:
    """Return the command that installs a top-level module; None if no extra of etdev installs it."""
    extras = extras_of([module])
    return install_command(*extras) if extras else None
