"""The forms that lowering may use for a target, and whether they are judged by its RAM."""

from __future__ import annotations

from etdev import backends
from etdev.backends.base import ForMicrocontrollers, RewritesPrograms
from etdev.config.models import Target
from etdev.lowering import forms
from etdev.pipeline.project import Project


def usable_forms(project: Project, target: str) -> tuple[str, ...]:
    """Return the names of the forms whose kernels are in the target's runtime.

    The result is empty if the config turns forms off. Targets for microcontrollers, and targets whose backend has its
    own kernels, do not use the wheel's runtime. For these targets, the result is also empty if the config does not list
    the runtime's libraries.

    Raises :class:`~etdev.errors.ConfigError` if the file of ``runtime.operators`` cannot be read.
    """
    settings = project.config.targets[target]
    if settings.lowering == "stock":
        return ()
    if settings.runtime.kernels is None and is_for_microcontrollers(settings):
        return ()
    listed = None
    if settings.runtime.operators is not None:
        from etdev.pipeline.project.runtime_contents import selected_operators

        listed = selected_operators(project, target)
    return forms.usable_forms(settings.runtime.kernels, listed)


def is_for_microcontrollers(settings: Target) -> bool:
    """Return True if a backend of the target is for microcontrollers, or has its own kernels for them."""
    kinds = RewritesPrograms | ForMicrocontrollers
    return any(isinstance(backends.get(step.backend), kinds) for step in settings.partitioners)


def limits_ram(settings: Target) -> bool:
    """Return True if a target's RAM is limited, so that the size of the runtime's objects matters."""
    return settings.memory.room is not None or settings.budget.ram is not None or bool(settings.runner)
