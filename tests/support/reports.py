"""Reports of builds, without a build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etdev.files import file_sha256
from etdev.pipeline.results.result import BuildResult, MethodResult, TargetResult
from etdev.program.bank_report import BankReport, BankUse


def method_result(name: str = "forward", **fields: Any) -> MethodResult:
    """A method without delegates."""
    settings: dict[str, Any] = {
        "name": name,
        "inputs": (),
        "stateful": False,
        "delegate_calls": {},
        "delegated_ops": 0,
        "undelegated": (),
        "operators": (),
    }
    return MethodResult(**(settings | fields))


def write_report(file: Path, *, versions: dict[str, str] | None = None, **fields: Any) -> BuildResult:
    """Write the report of a target ``cpu`` of which this file was built, next to it."""
    settings: dict[str, Any] = {
        "name": "cpu",
        "status": "built",
        "artifact": file.name,
        "size": file.stat().st_size,
        "sha256": file_sha256(file),
        "quantize": None,
    }
    result = BuildResult(
        project="tiny",
        config=str(file.parent / "etdev.toml"),
        versions=versions or {"etdev": "0.1.0"},
        targets=(TargetResult(**(settings | fields)),),
    )
    (file.parent / "report.json").write_text(result.model_dump_json(), encoding="utf-8")
    return result


def bank_report(slow: int, fast: int) -> BankReport:
    """Return the report on a bank ``fast`` of 128 bytes and a bank ``slow`` of 4 KiB, with so many bytes in use."""
    banks = BankUse("fast", 2, 128, fast, 1, 64, 16), BankUse("slow", 1, 4096, slow, 4, 48, None)
    return BankReport(banks, 256, None, 128)
