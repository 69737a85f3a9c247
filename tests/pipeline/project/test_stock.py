"""Modules of a project that the stock runtime imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.errors import MissingRequirementError
from etdev.pipeline.project.stock import runtime_for
from support.projects import LINEAR_CONFIG, make_project

CONFIG = LINEAR_CONFIG.replace('name = "tiny"', 'imports = ["kernels_of_this_test"]') + "    [targets.cpu]\n"


def test_the_runtime_finds_the_modules_of_the_project(tmp_path: Path) -> None:
    project = make_project(tmp_path, CONFIG)
    mark = tmp_path / "mark"
    (tmp_path / "kernels_of_this_test.py").write_text(f"open({str(mark)!r}, 'w').close()\n", encoding="utf-8")
    with runtime_for(project) as runtime:
        assert runtime.operators
    assert mark.exists()


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    project = make_project(tmp_path, CONFIG)
    with (
        runtime_for(project) as runtime,
        pytest.raises(MissingRequirementError, match=r"cannot start with kernels_of_this_test: .*kernels_of_this_test"),
    ):
        _ = runtime.operators
