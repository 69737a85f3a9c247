"""Imports of the modules in the config's ``project.imports``, which run before any other code of the project."""

from __future__ import annotations

from etdev.pipeline.project import Project
from etdev.pipeline.project.requirements import import_package
from etdev.pipeline.project.usercode import UserCode


def register_imports(project: Project, user: UserCode) -> None:
    """Import the modules in the config's ``project.imports``, once and before any other code of the project."""
    import_package("torch")
    names = project.config.project.imports
    if names:
        user.register(names, project.base("project", "imports"), project.where("project", "imports"))
