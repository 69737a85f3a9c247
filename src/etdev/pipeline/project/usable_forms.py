"""The forms that lowering may use for a target: the target's runtime must have their kernels."""

from __future__ import annotations

from etdev.lowering import forms
from etdev.pipeline.project import Project


def usable_forms(project: Project, target: str) -> tuple[str, ...]:
    """Return the names of the forms whose kernels the target's runtime has; none if the config turns forms off.

    Raises :class:`~etdev.errors.ConfigError` if the file of ``runtime.operators`` cannot be read.
    """
    settings = project.config.targets[target]
    if settings.lowering == "stock":
        return ()
    listed = None
    if settings.runtime.operators is not None:
        from etdev.pipeline.project.runtime_contents import selected_operators

        listed = selected_operators(project, target)
    return forms.usable_forms(settings.runtime.kernels, listed)
