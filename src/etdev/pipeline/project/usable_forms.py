"""Forms that a target's lowering may use, limited by the kernels of its runtime."""

from __future__ import annotations

from etdev.lowering import forms
from etdev.pipeline.project import Project


def usable_forms(project: Project, target: str) -> tuple[str, ...]:
    """Return the names of the forms that the target's runtime has the kernels for; none for the stock lowering.

    Raises :class:`~etdev.errors.ConfigError` for a ``runtime.operators`` that cannot be read.
    """
    settings = project.config.targets[target]
    if settings.lowering == "stock":
        return ()
    listed = None
    if settings.runtime.operators is not None:
        from etdev.pipeline.project.runtime_contents import selected_operators

        listed = selected_operators(project, target)
    return forms.usable_forms(settings.runtime.kernels, listed)
