"""Real files, each built once, when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from program.real import RealFile

REAL_FILES = (
    "portable",
    "branches",
    "loops",
    "state",
    "methods",
    "dynamic",
    "external",
    "xnnpack",
    "xnnpack_inline",
    "xnnpack_view",
    "xnnpack_int8",
)
"""Names of the functions in ``real`` that build them; that module is slow to import."""


@pytest.fixture(scope="session")
def make_real(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RealFile]:
    """Return a function from a name to the file of that name."""
    pytest.importorskip("executorch", reason="executorch makes the real files")
    from program import real

    return cache(lambda name: getattr(real, name)(tmp_path_factory.mktemp(name)))


@pytest.fixture(params=REAL_FILES)
def real_file(request: pytest.FixtureRequest, make_real: Callable[[str], RealFile]) -> RealFile:
    """Return each of the files."""
    return make_real(request.param)
