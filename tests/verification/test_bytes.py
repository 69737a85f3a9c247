"""The check ``bytes``: what it says of the data that delegates look up."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.program import write
from etdev.runtime.device_map import NO_MAP
from etdev.runtime.stock import StockRuntime
from etdev.verification.checks.bytes import BytesCheck
from etdev.verification.read_back import read_contents
from etdev.verification.subject import Subject
from program.test_lookups import delegated, xnnpack

UNKNOWN = "; the names of data that delegates of AnotherBackend look up are not known"


@pytest.mark.parametrize(
    ("backend", "lookups", "ends"),
    [
        ("AnotherBackend", None, UNKNOWN),
        ("AnotherBackend", {"other": ()}, UNKNOWN),
        ("AnotherBackend", {"forward": ("a",)}, "read back"),
        ("XnnpackBackend", None, "read back"),
    ],
)
def test_delegates_that_tell_nothing(
    backend: str, lookups: dict[str, tuple[str, ...]] | None, ends: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.pte"
    write(delegated(backend, xnnpack("a"), "a"), path)
    check = BytesCheck().run(Subject(path, (), read_contents(path, (), lookups), StockRuntime(), NO_MAP))
    assert check.status == "passed"
    assert check.summary.endswith(ends)
