"""Memory banks of a built program, from the report next to its file."""

from __future__ import annotations

from pathlib import Path

from etdev.files import file_sha256
from etdev.pipeline.results.report import find_report, report_beside
from etdev.program.bank_report import BankReport


def built_banks(file: Path) -> BankReport | None:
    """Return the memory banks that a program was built for; None if the banks are unknown or the target has no banks.

    The function reads the banks from ``report.json`` next to the file. It ignores a report that cannot be read, and a
    report about another file.
    """
    report = find_report(report_beside(file))
    if report is None or all(target.banks is None for target in report.targets):
        return None
    digest = file_sha256(file)
    return next((target.banks for target in report.targets if target.sha256 == digest), None)
