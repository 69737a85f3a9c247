"""Versions of ExecuTorch that etdev supports, and all differences between these versions that matter to etdev.

No other module distinguishes versions of ExecuTorch. This module needs only the standard library, so scripts can run it
in an environment without etdev.
"""

from __future__ import annotations

import re
from importlib import metadata

SUPPORTED = "executorch>=1.4.1,<1.6"
"""Requirement specifier for the supported versions, the same as in the extra ``build``."""
TESTED = ("1.5.1", "1.4.1")
"""Versions that etdev's tests run with, newest first. ``constraints.txt`` pins the newest version."""
INSTALL_SUPPORTED = f'pip install "executorch=={TESTED[0]}"'
"""Command that replaces an unsupported version of ExecuTorch."""
_OLDEST, _TOO_NEW = (1, 4, 1), (1, 6)
_RELEASE = re.compile(r"\d+(?:\.\d+)*")


def installed() -> str | None:
    """Return the version of the installed ExecuTorch, or None if ExecuTorch or its version is missing."""
    try:
        return metadata.version("executorch")
    except metadata.PackageNotFoundError:
        return None


def is_supported(version: str) -> bool:
    """Return whether etdev supports this version of ExecuTorch.

    Ignore suffixes: ``1.6.0a0+cpu`` counts as 1.6.0.
    """
    return _OLDEST <= _release(version) < _TOO_NEW


def unsupported(version: str) -> str:
    """Return the reason why etdev refuses the installed version of ExecuTorch."""
    return f"executorch {version} is installed, and this etdev supports {SUPPORTED}"


def lacks_cortex_m() -> str | None:
    """Return the reason why the installed ExecuTorch cannot lower for Cortex-M.

    Return None if it can, or if ExecuTorch is not installed.
    """
    version = installed()
    if version is None or _release(version) >= (1, 5):
        return None
    return f"executorch {version} is installed, and lowering for Cortex-M needs 1.5 or later"


def runtime_module() -> str:
    """Return the name of the extension module that contains ExecuTorch's runtime for Python.

    ``executorch.extension.pybindings.portable_lib`` imports the same module in each version, but takes seconds longer.
    """
    name = "_portable_lib" if _release(installed() or TESTED[0]) < (1, 5) else "_C"
    return f"executorch.extension.pybindings.{name}"


def _release(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version, such as ``(1, 5, 1)``; ``()`` for a text without a leading number."""
    found = _RELEASE.match(version)
    return tuple(map(int, found[0].split("."))) if found else ()
