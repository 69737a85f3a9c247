"""The check ``bytes``: what it says of the data that delegates look up."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.program import write
from etdev.verification.checks.bytes import check_bytes
from program.test_lookups import delegated, xnnpack

UNKNOWN = "; the data that delegates of AnotherBackend look up is not known"


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
    write(delegated(backend, xnnpack("a"), "a"), tmp_path / "a.pte")
    check, _ = check_bytes(tmp_path / "a.pte", (), lookups)
    assert check.status == "passed"
    assert check.summary.endswith(ends)
