"""Which modules a model's code is made of (E2)."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from etdev.pipeline.cache.import_closure import imported_files


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, Path]:
    sources = {
        "model": "import torch, helper\nfrom package.part import x",
        "helper": "def f():\n    import late",
        "late": "from model import y",
        "package": "",
        "package/part": "from . import near\nfrom .below.deep import z\nfrom ..outside import no",
        "package/near": "",
        "package/below": "",
        "package/below/deep": "from ... import other\nfrom .. import up",
        "package/up": "",
        "package/unused": "",
        "metric": "import data",
        "data": "import json",
    }
    packages = {"package", "package/below"}
    found = {}
    for name, source in sources.items():
        path = tmp_path / (f"{name}/__init__.py" if name in packages else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source))
        found[name.replace("/", ".")] = path
    return found


def names(modules: dict[str, Path], *roots: str) -> set[str]:
    files = imported_files(roots, modules)
    return {name for name, path in modules.items() if path in files}


def test_what_is_imported_at_whatever_depth(modules: dict[str, Path]) -> None:
    package = {"package", "package.part", "package.near", "package.below", "package.below.deep", "package.up"}
    assert names(modules, "model") == {"model", "helper", "late", *package}
    assert names(modules, "metric") == {"metric", "data"}
    assert names(modules, "package.near") == {"package", "package.near"}
    assert names(modules, "nowhere") == names(modules) == set()


@pytest.mark.parametrize(
    "source",
    [
        "import importlib",
        "from importlib import import_module as load",
        "def f():\n    return __import__('metric')",
        "import importlib.util",
        "exec('import metric')",
        "import pkgutil",
        "this is no Python",
    ],
)
def test_computed_names_may_be_any(modules: dict[str, Path], source: str) -> None:
    modules["late"].write_text(source)
    assert names(modules, "model") == set(modules)
    assert names(modules, "metric") == {"metric", "data"}


def test_extension_modules_are_not_looked_into(modules: dict[str, Path], tmp_path: Path) -> None:
    binary = tmp_path / "late.so"
    binary.write_bytes(b"\x7fELF")
    assert names({**modules, "late": binary}, "helper") == {"helper", "late"}
