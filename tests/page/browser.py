"""Headless Chromium, and what a page does in it."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars")


_LONGEST = 30.0
"""Seconds that a page may take to be drawn on a busy machine."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What somebody looks at the page on."""

    width: int
    height: int
    scale: float = 1
    mobile: bool = False


PHONE = Screen(360, 740, 3, mobile=True)
DESKTOP = Screen(1280, 900)
LARGE = Screen(3840, 2160)


def looks(**screens: Screen) -> pytest.MarkDecorator:
    """Parametrize ``screen`` and ``dark``: each screen in one theme, and in both every night."""
    cases = [
        pytest.param(
            screen,
            dark,
            id=f"{name}-{'dark' if dark else 'light'}",
            marks=[] if dark == bool(number % 2) else [pytest.mark.nightly],
        )
        for number, (name, screen) in enumerate(screens.items())
        for dark in (False, True)
    ]
    return pytest.mark.parametrize(("screen", "dark"), cases)


class Browser:
    """A browser that is driven through its own protocol."""

    def __init__(self, chromium: str, driver: str) -> None:
        from selenium import webdriver

        options = webdriver.ChromeOptions()
        for argument in _ARGUMENTS:
            options.add_argument(argument)
        options.binary_location = chromium
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.driver.quit()

    def open(self, page: Path, screen: Screen = DESKTOP, *, dark: bool = False) -> None:
        """Open a file as a screen of this size shows it; what was logged before is forgotten."""
        self.problems()
        self.requests()
        metrics = {"width": screen.width, "height": screen.height, "mobile": screen.mobile}
        self._ask("Emulation.setDeviceMetricsOverride", {**metrics, "deviceScaleFactor": screen.scale})
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._ask("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(page.resolve().as_uri())
        deadline = time.monotonic() + _LONGEST
        while self.run("return document.documentElement.dataset.ready") is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a function body in the page, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def key(self, *keys: str) -> None:
        """Press keys, whatever has the focus."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def move(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a point of an element, in parts of its width and height."""
        box = self.run(
            "const found = document.querySelector(arguments[0]);"
            "found.scrollIntoView({ block: 'center', behavior: 'instant' });"
            "const { left, top, width, height } = found.getBoundingClientRect(); return [left, top, width, height];",
            selector,
        )
        where = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        self._ask("Input.dispatchMouseEvent", {"type": "mouseMoved", **where})

    def text(self, selector: str) -> str:
        """The text that an element shows."""
        found: str = self.run("return document.querySelector(arguments[0]).innerText", selector)
        return found

    def problems(self) -> list[str]:
        """What the console has since it was asked last: errors, warnings, and what the page's policy refused."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """What was fetched since it was asked last."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def picture(self, file: Path) -> None:
        """A picture of all that is in view."""
        found = self._ask("Page.captureScreenshot", {"format": "png"})
        file.write_bytes(base64.b64decode(found["data"]))

    def printed(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self._ask("Page.printToPDF", {})["data"])

    def _ask(self, command: str, parameters: dict[str, Any]) -> Any:
        return self.driver.execute_cdp_cmd(command, parameters)
