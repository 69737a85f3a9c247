"""Third-party code that the page contains, unchanged, with its licence in the same folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Vendored:
    """A file of a published package, byte by byte."""

    package: str
    version: str
    file: str
    """Path in the package."""
    sha256: str
    licence: str
    """SPDX expression."""
    licences: tuple[str, ...]
    """Files in the same folder with its licences and notices."""

    def read(self) -> str:
        """Return the content of the file."""
        name = self.file.rpartition("/")[2]
        return files("etdev.page").joinpath("assets", "vendor", name).read_text(encoding="utf-8")


ECHARTS = Vendored(
    package="echarts",
    version="6.1.0",
    file="dist/echarts.min.js",
    sha256="b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0",
    licence="Apache-2.0 AND BSD-3-Clause",
    licences=("LICENSE-echarts", "NOTICE-echarts", "LICENSE-d3"),
)
"""Apache ECharts, from the npm registry."""
