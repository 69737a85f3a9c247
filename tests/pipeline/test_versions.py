"""Files across versions of ExecuTorch: what one version builds loads and computes the same in the runtime of another.

``ETDEV_OTHER_PYTHON`` names the Python of an environment with etdev and another version of ExecuTorch. The second job
of ``.ci/run`` sets it; without it, these tests skip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from etdev import compat
from support.projects import FOUR_TARGETS, LINEAR, SAMPLES, write_project

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TOLERANCE = 1e-5
"""Largest difference of outputs of other kernels, relative to the largest element. Seen: 6e-6."""
PROJECTS = {
    "tiny": (
        FOUR_TARGETS
        + """
    [targets.weights]
    external_weights = "tiny.ptd"
    [targets.openvino]
    partitioners = [{ backend = "openvino" }]
    [targets.reference]
    partitioners = [{ backend = "reference", options = { ops = "all" } }]
    """,
        {"model": LINEAR, "data": SAMPLES},
    ),
    "state": (
        """
    version = 1
    [project]
    name = "state"
    [model]
    entry = "model:Counter"
    share_state = true
    [methods.forward]
    inputs = [{ name = "flag", dtype = "bool", shape = [] }, { name = "x", dtype = "float32", shape = ["rows", 4] }]
    dims.rows = { min = 1, max = 8 }
    [methods.back]
    inputs = [{ name = "flag", dtype = "bool", shape = [] }, { name = "x", dtype = "float32", shape = [2, 4] }]
    [targets.portable]
    [targets.xnnpack]
    partitioners = [{ backend = "xnnpack" }]
    """,
        {
            "model": """
    import torch
    from torch import nn

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(4, 4)
            self.register_buffer("count", torch.full((4,), 3.0))

        def forward(self, flag, x):
            self.count.add_(x.sum(0))
            y = torch.cond(flag, lambda a: a.sin(), lambda a: a.cos(), (x,))
            return self.layer(y).softmax(-1) + self.count

        def back(self, flag, x):
            self.count.sub_(x.sum(0))
            return self.layer(x) * self.count
    """
        },
    ),
}
SAME_KERNELS = {"tiny/xnnpack", "tiny/int8", "tiny/w4", "tiny/openvino"}
"""Targets that compute in a delegate alone, which is the same in all tested versions. The other kernels are not."""

RUN = """
import sys
from pathlib import Path
import numpy as np, torch
from etdev.runtime.stock import StockRuntime

folder, saved = map(Path, sys.argv[1:])
generator = torch.Generator().manual_seed(0)
rows = torch.randn(2, 32, generator=generator)
narrow = torch.randn(2, 4, generator=generator)
calls = {
    "tiny": [("forward", (rows,)), ("forward", (rows * 2,))],
    "state": [(method, (torch.tensor(flag), narrow)) for method in ("forward", "back") for flag in (True, False)],
}
found = {}
with StockRuntime() as runtime:
    for project, wanted in calls.items():
        for file in sorted(folder.glob(f"{project}/build/*/{project}.pte")):
            if file.parent.name == "reference":
                continue  # Only etdev's interpreter runs it, which the build did.
            runtime.load(file, shared=project == "state", data=sorted(file.parent.glob("*.ptd")))
            for index, (method, inputs) in enumerate(wanted):
                (output,) = runtime.call(method, inputs)
                found[f"{project}/{file.parent.name} {index} {method}"] = output.numpy()
np.savez(saved, **found)
"""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def pythons() -> dict[str, str]:
    """The Python of each of the two versions."""
    other = os.environ.get("ETDEV_OTHER_PYTHON")
    if not other:
        pytest.skip("ETDEV_OTHER_PYTHON names no Python with another version of executorch")
    pytest.importorskip("executorch", reason="needs the extra `build`")
    pytest.importorskip("openvino", reason="needs the extra `openvino`")
    version = run(other, "-c", "from importlib.metadata import version; print(version('executorch'))").strip()
    found = {str(compat.installed()): sys.executable, version: other}
    assert len(found) == 2, f"{other} has executorch {version} as well"
    return found


@pytest.fixture(scope="module")
def built(pythons: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By version: the folder of the projects that were built with it."""
    folders = {}
    for version, python in pythons.items():
        folders[version] = tmp_path_factory.mktemp("built")
        for name, (config, files) in PROJECTS.items():
            folder = write_project(folders[version] / name, config, **files).parent
            run(python, "-m", "etdev", "build", "-q", "-c", str(folder / "etdev.toml"))
    return folders


@pytest.fixture(scope="module")
def outputs(
    pythons: dict[str, str], built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], dict[str, np.ndarray]]:
    """Outputs of all files of a version in the runtime of a version, by project, target, call and method."""
    folder, found = tmp_path_factory.mktemp("outputs"), {}
    for builder, files in built.items():
        for runner, python in pythons.items():
            file = folder / f"{builder} in {runner}.npz"
            run(python, "-c", RUN, str(files), str(file))
            found[builder, runner] = dict(np.load(file))
    return lambda builder, runner: found[builder, runner]


def test_files_of_each_version_compute_the_same_in_the_other(
    pythons: dict[str, str], outputs: Callable[[str, str], dict[str, np.ndarray]]
) -> None:
    first, second = pythons
    for builder in pythons:
        here, there = outputs(builder, first), outputs(builder, second)
        assert len(here) == 2 * 6 + 4 * 2
        assert here.keys() == there.keys()
        for name, values in here.items():
            if name.split()[0] in SAME_KERNELS:
                assert np.array_equal(values, there[name]), (builder, name)
            else:
                limit = TOLERANCE * np.abs(values).max()
                assert np.abs(values - there[name]).max() <= limit, (builder, name)


def test_both_versions_build_the_same_programs(built: dict[str, Path]) -> None:
    """Byte for byte, object programs and data files too."""
    first, second = (
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("*/build/*/*.pt[de]")}
        for folder in built.values()
    )
    assert len(first) == 2 * (7 + 2) + 1
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
