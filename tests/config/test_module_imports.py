"""Packages that a project's modules import, found without importing the modules."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from etdev.config.module_imports import imported_packages, missing_imports


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("import nothere", ("nothere",)),
        ("import nothere.deep as short, os.path\nfrom other_missing.a import b", ("nothere", "other_missing")),
        ("from near import x", ("far_missing",)),
        ("import folder.inner", ("inner_missing",)),
        ("def make():\n    import nothere", ("nothere",)),
        ("def plot():\n    import nothere", ()),
        ("try:\n    import nothere\nexcept ImportError:\n    nothere = None", ()),
        ("import typing\nif typing.TYPE_CHECKING:\n    import nothere", ()),
        ("import json, pytest, model, near_too", ()),
        ("from . import sibling\nfrom .sibling import nothere", ()),
        ("def", ()),
    ],
)
def test_packages_that_are_missing(tmp_path: Path, source: str, missing: tuple[str, ...]) -> None:
    (tmp_path / "model.py").write_text(source)
    (tmp_path / "near.py").write_text("import far_missing, near, model")
    (tmp_path / "near_too.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner.py").write_text("import inner_missing")
    assert missing_imports("model:make", tmp_path) == missing


def test_a_module_that_does_not_exist(tmp_path: Path) -> None:
    """``etdev validate`` says so."""
    assert missing_imports("nothere.model:make", tmp_path) == ()


def test_imports_at_any_place(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(dedent("import a.b\ndef f():\n    from c.d import e\n"))
    assert imported_packages(file) == {"a", "c"}
    assert imported_packages(tmp_path / "none.py") == frozenset()
