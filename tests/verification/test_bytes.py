"""The check ``bytes``: what it says of the data that delegates look up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etdev.program import write
from etdev.runtime.device_map import NO_MAP
from etdev.runtime.stock import StockRuntime
from etdev.verification.checks.bytes import BytesCheck
from etdev.verification.read_back import read_contents
from etdev.verification.subject import Subject
from program import hand
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


def test_constant_methods_are_counted_apart(tmp_path: Path) -> None:
    path, program = tmp_path / "a.pte", hand.loop()
    (plan, *others) = program.execution_plan
    constants = [
        replace(
            plan,
            name=name,
            inputs=(),
            outputs=(),
            values=(),
            chains=(replace(plan.chains[0], inputs=(), outputs=(), instructions=()),),
        )
        for name in ("get_size", "get_scale")
    ]
    write(replace(program, execution_plan=(plan, *others, *constants)), path)
    check = BytesCheck().run(Subject(path, (), read_contents(path, ()), StockRuntime(), NO_MAP))
    count = 1 + len(others)
    methods = f"{count} method{'s' * (count != 1)}, 2 constant methods, "
    assert (check.status, check.summary.startswith(methods)) == ("passed", True), check.summary
