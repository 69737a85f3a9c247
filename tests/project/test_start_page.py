"""docs/start.md: a reader who does what the page says gets what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import pages

pytestmark = pytest.mark.integration

pytest.importorskip("executorch", reason="needs the extra `build`")

EXIT_CODES = {"budget.file": 1}
"""Codes of commands that are meant to fail, by a part of the command."""
NOT_RUN = (
    "python3.11 -m venv",  # Installs all packages.
    "pip install",
    "etdev doctor",  # Its output is that of the machine.
)


def test_the_page_from_the_first_to_the_last_command(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "start.md").read_text(encoding="utf-8")
    for name, text in pages.files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = pages.commands(page)
    assert len(found) >= 12
    for command in found:
        if not command.line.startswith(NOT_RUN):
            code, printed = pages.run(command.line, tmp_path)
            assert code == next((code for part, code in EXIT_CODES.items() if part in command.line), 0), printed
            if command.shown is not None:
                pages.assert_shown(command.shown, printed)
            elif "app.py" in command.line:
                assert printed == "True\n"
