"""Build the programs of the hardware tests, with inputs and what eager PyTorch answers, into a folder.

Needs torch and executorch, and no device: ``python tests/hardware/make_files.py build/hardware``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import numpy as np
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from hardware import models


@dataclass(frozen=True)
class Case:
    """One program."""

    model: Callable[[], nn.Module]
    shape: Sequence[int | str]
    """Of its input; a text is a dimension of any size up to eight."""
    calls: Sequence[Sequence[int]]
    """Shapes of the inputs of calls that are made in order."""
    partitioners: str
    """TOML."""


_ON = '[[targets.t.partitioners]]\nbackend = "reference"\ndevice = "{}"\noptions.modules = ["{}"]\n'
CASES = {
    "parts": Case(models.Parts, (8, 64), [(8, 64)] * 2, _ON.format("cuda:0", "first") + _ON.format("cuda:1", "second")),
    "convolutions": Case(
        models.Convolutions,
        ("n", 3, 16, 16),
        [(8, 3, 16, 16), (1, 3, 16, 16), (3, 3, 16, 16)],
        _ON.format("cuda:0", "stem") + _ON.format("cuda:1", "head"),
    ),
    "shared": Case(models.Shared, (4, 32), [(4, 32)] * 2, _ON.format("cuda:0", "left") + _ON.format("cuda:1", "right")),
    "cache": Case(
        models.Cache,
        (8, 16),
        [(8, 16)] * 4,
        '[[targets.t.partitioners]]\nbackend = "reference"\ndevice = "cuda:0"\noptions.own_state = false\n',
    ),
    "branch": Case(
        models.Branch, (4, 16), [(4, 16)] * 6, _ON.format("cuda:0", "before") + _ON.format("cuda:1", "after")
    ),
}


def make_files(folder: Path) -> None:
    """Write ``NAME.pte`` and ``NAME.npz`` for each case; the arrays are ``CALL.in`` and ``CALL.out.POSITION``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as project:
            shutil.copy(_built(name, case, Path(project)), folder / f"{name}.pte")
        np.savez(folder / f"{name}.npz", **_answers(case))


def _built(name: str, case: Case, project: Path) -> Path:
    import etdev

    shutil.copy(Path(models.__file__), project / "models.py")
    config = f"""
        version = 1
        project.name = "{name}"
        model.entry = "models:{case.model.__name__}"
        [methods.forward]
        inputs = [{{ name = "x", dtype = "float32", shape = {list(case.shape)} }}]
    """
    dims = "dims.n = { min = 1, max = 8 }\n" if "n" in case.shape else ""
    (project / "etdev.toml").write_text(dedent(config) + dims + case.partitioners)
    result = etdev.build(project / "etdev.toml", verify=False)
    return result.path("t")


def _answers(case: Case) -> dict[str, np.ndarray]:
    """Inputs that are the same each time, and what the model makes of them, call after call."""
    generator = torch.Generator().manual_seed(0)
    model = case.model().eval()
    found = {}
    with torch.no_grad():
        for number, shape in enumerate(case.calls):
            x = torch.randn(*shape, generator=generator) + (0.5 if number % 2 else -0.5)
            outputs = model(x)
            found[f"{number}.in"] = x.numpy()
            for position, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
                found[f"{number}.out.{position}"] = output.clone().numpy()
    return found


if __name__ == "__main__":
    make_files(Path(sys.argv[1] if len(sys.argv) > 1 else "build/hardware"))
