"""Third-party code in the page. The code is unchanged. Its licence is in the same folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Vendored:
    """An unchanged file of a published package."""

    package: str
    version: str
    file: str
    """Path of the file in the package."""
    sha256: str
    licence: str
    """SPDX expression of the file's licence."""
    licences: tuple[str, ...]
    """Names of the licence and notice files, which are in the same folder."""

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
