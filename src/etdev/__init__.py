"""etdev: the build tool and linker for ExecuTorch programs.

``etdev.build`` and ``etdev.verify`` are the commands of the same name; both return a ``BuildResult``. Importing this
package imports nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etdev.pipeline.api import build, verify
    from etdev.pipeline.result import BuildResult

__version__ = "0.1.0"
__all__ = ["BuildResult", "build", "verify"]

_HOME = {
    "build": "etdev.pipeline.api",
    "verify": "etdev.pipeline.api",
    "BuildResult": "etdev.pipeline.result",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'etdev' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
