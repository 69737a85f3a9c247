"""Draw the pictures of ``docs/report.md``: parts of the page of ``etdev report`` about a program, in headless Chromium.

The command is ``python -m docsite.screenshot PAGE.html``.
"""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
_WIDTH = 1000
"""Pixels."""
_PICTURES = {"report": ("header", 830), "report-map": ("#memory", 800), "report-graph": ("#graph", 800)}
"""Maps the name of a picture to the element at its top, and the height in pixels."""


def main() -> int:
    """Draw the page that the command line names."""
    from selenium import webdriver

    page = Path(sys.argv[1]).resolve(strict=True)
    options = webdriver.ChromeOptions()
    for option in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--force-prefers-reduced-motion"):
        options.add_argument(option)
    with webdriver.Chrome(options=options) as browser:
        for name, (top, height) in _PICTURES.items():
            screen = {"width": _WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            browser.get(page.as_uri())
            browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", top)
            two_frames = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
            browser.execute_async_script(two_frames)
            out = FOLDER / f"{name}.png"
            browser.save_screenshot(str(out))
            print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
