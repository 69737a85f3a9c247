"""What the tests of the stages share: a project in an empty current folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etdev.pipeline.project import Project
from support.projects import make_project

pytest.register_assert_rewrite("support.stages")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Project]:
    """``project(config, model="...", data="...")``: a project whose errors read ``etdev.toml:LINE:COLUMN``."""
    monkeypatch.chdir(tmp_path)

    def make(config: str, **files: str) -> Project:
        return make_project(tmp_path, config, **files)

    return make


@pytest.fixture
def one_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of this test share the stock runtime's process."""
    from etdev.pipeline import targets
    from etdev.pipeline.verify import verify_target as existing
    from support.stock import share_runtime

    monkeypatch.setattr(targets, "runtime_for", share_runtime())
    monkeypatch.setattr(existing, "runtime_for", share_runtime())
