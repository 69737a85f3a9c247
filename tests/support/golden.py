"""Texts that tests compare with a file. With ``ETDEV_WRITE_GOLDEN`` set they are written anew: read the diff then."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "cli" / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare a text with the golden file of that name."""
    file = _FOLDER / name
    if os.environ.get("ETDEV_WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
