"""etdev: the build tool and linker for ExecuTorch programs.

``build`` and ``verify`` do the same as the commands of these names; both return a ``BuildResult``. ``deploy`` uploads
built targets and returns a ``DeployResult``.

``inspect``, ``relink``, ``report`` and ``diff`` accept any ``.pte`` file and need neither torch nor executorch.

Importing this package imports only its version. ``etdev.errors`` and ``etdev.program`` are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etdev._version import __version__ as __version__

if TYPE_CHECKING:
    from etdev import errors as errors
    from etdev import program as program
    from etdev.inspection.diff import ProgramDiff, diff
    from etdev.inspection.inspect import inspect
    from etdev.inspection.report import report
    from etdev.pipeline.api import build, deploy, verify
    from etdev.pipeline.deploy import DeployResult
    from etdev.pipeline.relink import RelinkResult, relink
    from etdev.pipeline.results.result import BuildResult
    from etdev.program.info import ProgramInfo

__all__ = [
    "BuildResult",
    "DeployResult",
    "ProgramDiff",
    "ProgramInfo",
    "RelinkResult",
    "build",
    "deploy",
    "diff",
    "inspect",
    "relink",
    "report",
    "verify",
]

_HOME = {
    "build": "etdev.pipeline.api",
    "verify": "etdev.pipeline.api",
    "deploy": "etdev.pipeline.api",
    "diff": "etdev.inspection.diff",
    "inspect": "etdev.inspection.inspect",
    "relink": "etdev.pipeline.relink",
    "report": "etdev.inspection.report",
    "BuildResult": "etdev.pipeline.results.result",
    "DeployResult": "etdev.pipeline.deploy",
    "ProgramDiff": "etdev.inspection.diff",
    "ProgramInfo": "etdev.program.info",
    "RelinkResult": "etdev.pipeline.relink",
}
_MODULES = frozenset({"errors", "program"})


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"etdev.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'etdev' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "errors", "program", "__version__"})
