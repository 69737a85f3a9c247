"""A build never plans more memory than the stock lowering, or than `relink` of ExecuTorch's own file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.linker import link_foreign
from etdev.pipeline.builder.build import build_project
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from etdev.program import read
from etdev.program.footprint import planned_memory

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")

from pipeline import small_nets  # noqa: E402 - it imports torch

CONFIG = """
    version = 1
    [model]
    entry = "small_nets:make"
    kwargs = {{ name = "{name}" }}
    [methods.forward]
    inputs = [{{ name = "x", dtype = "float32", shape = {shape} }}]
    [targets.auto]
    [targets.always]
    memory.tiling = "always"
    [targets.stock]
    lowering = "stock"
"""


def _relinked(name: str, folder: Path) -> int:
    """Return the planned memory of ExecuTorch's own file after a relink, in bytes."""
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(small_nets.make(name), (torch.zeros(small_nets.SHAPES[name]),))
    with (folder / "plain.pte").open("wb") as file:
        to_edge_transform_and_lower(exported).to_executorch().write_to_file(file)
    return sum(planned_memory(link_foreign(read(folder / "plain.pte")).program).values())


_OFTEN = ("dense", "excite", "fire", "unet")
"""Nets that every run of the integration tests builds; the slow tests build the others."""


@pytest.mark.parametrize(
    "name", [name if name in _OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in small_nets.SHAPES]
)
@pytest.mark.sampled
def test_a_build_is_never_above_the_stock_lowering_and_relink(
    name: str, project: Callable[..., Project], tmp_path: Path
) -> None:
    config = CONFIG.format(name=name, shape=list(small_nets.SHAPES[name]))
    opened = project(config, small_nets=Path(small_nets.__file__).read_text(encoding="utf-8"))
    result = build_project(opened, BuildOptions(verify=False))
    memory = {target: sum(result[target].memory.values()) for target in ("auto", "always", "stock")}
    relinked = _relinked(name, tmp_path)
    assert memory["stock"] <= relinked
    assert max(memory["auto"], memory["always"]) <= min(memory["stock"], relinked)
