"""What the tests of the page share: documents, and a browser where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from page.browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no Chromium with its driver: on Debian, install chromium and chromium-driver")
    with Browser(chromium, driver) as opened:
        yield opened
