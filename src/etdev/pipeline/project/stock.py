"""The stock runtime, ExecuTorch's Python runtime, with a project's custom kernels."""

from __future__ import annotations

from etdev.pipeline.project import Project
from etdev.runtime.stock import StockRuntime


def runtime_for(project: Project) -> StockRuntime:
    """Return the stock runtime with the project's custom kernels."""
    imports = project.config.project.imports
    path = [project.base("project", "imports")] if imports else []
    return StockRuntime(imports=imports, path=path)
