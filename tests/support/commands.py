"""The command line as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def etdev_process(*arguments: str, folder: Path, **settings: object) -> subprocess.Popen[str]:
    """Start ``etdev ARGUMENTS`` in a folder; ``env`` adds to the environment."""
    added: dict[str, str] = settings.pop("env", {})  # type: ignore[assignment]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **added}
    defaults: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "etdev", *arguments], cwd=folder, env=environment, **(defaults | settings)
    )


def run_etdev(*arguments: str, folder: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run ``etdev ARGUMENTS`` in a folder to its end."""
    process = etdev_process(*arguments, folder=folder, **settings)
    out, err = process.communicate(timeout=250)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def break_package(folder: Path, name: str) -> dict[str, str]:
    """An environment in which the package ``name`` is installed and cannot be imported, as without its libraries."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('libtorch_cpu.so: cannot open shared object file')\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}
