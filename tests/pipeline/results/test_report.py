"""The one reader of ``report.json``."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.pipeline.results.report import ReportError, find_report, read_report, report_beside
from support.reports import method_result, write_report


def test_a_report_reads_back(tmp_path: Path) -> None:
    file = tmp_path / "tiny.pte"
    file.write_bytes(b"program")
    written = write_report(file, methods=(method_result(inputs=("x: float32 [4]", "n: int64 []")),))

    assert read_report(report_beside(file)) == written
    assert written["cpu"].methods[0].input_names == ("x", "n")


def test_a_missing_report(tmp_path: Path) -> None:
    assert read_report(tmp_path / "report.json") is None


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        ("", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ('{"format": 2}', "format: Input should be 1"),
        ('{"format": 1}', "project: Field required"),
        ('{"targets": [{"size": "many"}]}', "project: Field required"),
    ],
)
def test_a_file_that_is_not_a_report(content: str, flaw: str, tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    place.write_text(content)

    with pytest.raises(ReportError, match=f"is damaged or is of another version of etdev: {flaw}") as caught:
        read_report(place)
    assert caught.value.where == str(place)
    assert find_report(place) is None


def test_a_folder_is_not_a_report(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot read the report: this is a folder"):
        read_report(tmp_path)
