"""Files that a campaign found: no command ends with anything but an error that says what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.errors import ProgramError, UnlinkableError
from etdev.inspection.diff import diff
from etdev.inspection.report.document import file_page
from etdev.pipeline.relink import relink
from etdev.program import read
from etdev.verification.checks.placement import check_placement
from etdev.verification.checks.plan import check_alone

FOUND = sorted((Path(__file__).parent / "data").glob("*.pte"))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: file.stem)
def test_a_found_file(file: Path, tmp_path: Path) -> None:
    try:
        program = read(file)
    except ProgramError:
        return
    check_alone(program, foreign=True)
    check_placement(program)
    file_page(file)
    linked = tmp_path / "linked.pte"
    try:
        relink(file, linked)
    except UnlinkableError:  # A subclass of the error for a wrong link, which must not occur.
        return
    diff(file, linked)
