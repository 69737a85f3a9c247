"""Draw ``docs/images/report.png``: the page of ``etdev report`` about a built program, in headless Chromium.

The command is ``python -m docsite.screenshot PAGE.html``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.png"
_WIDTH, _HEIGHT = 1000, 1560
"""Pixels."""


def main() -> int:
    """Draw the page that the command line names."""
    page = Path(sys.argv[1]).resolve(strict=True)
    browser = shutil.which("chromium")
    if browser is None:
        print("error: there is no Chromium\nhelp: install the package `chromium`", file=sys.stderr)
        return 3
    options = ["--headless=new", "--no-sandbox", "--hide-scrollbars", f"--window-size={_WIDTH},{_HEIGHT}"]
    subprocess.run([browser, *options, f"--screenshot={OUT}", page.as_uri()], check=True, capture_output=True)
    print(f"wrote {OUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
