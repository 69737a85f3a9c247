"""Write the table of licences into ``docs/licences.md``: ``python -m release.licences``."""

from __future__ import annotations

from pathlib import Path

from etdev.page.vendor import ECHARTS
from release.packages import ROOT, Package, missing, packages

PAGE = ROOT / "docs" / "licences.md"
_HEAD = """\
# Licences

<!-- `make docs` writes this page from the metadata of the installed packages. -->

This page is for people who decide whether etdev may be used or shipped. You will be able to look up the licence of
etdev, of the code in its wheel, and of each package that it needs.

etdev itself is under `BSD-3-Clause`. Its wheel has one library of others: [Apache ECharts](https://echarts.apache.org)
{version}, under `{licence}`, for the page of `etdev report`. Its licence and notice are in the wheel.

Nothing of etdev or of these packages goes into a built program. A `.pte` has your weights, the blobs that a backend
compiled, and names of operators.

`make sbom` writes the same as a list of components, in CycloneDX's JSON form.

## Packages

Of the packages that a plain `pip install etdev` brings, all are listed. Of an extra, those that it names are listed.
Versions are the tested ones of `constraints.txt`, and licences are in the words of each package.

| package | version | licence | needed by |
|---|---|---|---|
"""


def page(found: list[Package]) -> str:
    """Return the page for these packages."""
    head = _HEAD.format(version=ECHARTS.version, licence=ECHARTS.licence)
    return head + "".join(_row(some) for some in found)


def _row(found: Package) -> str:
    cells = (
        found.name,
        found.version.partition("+")[0],
        found.licence or "not stated in its metadata",
        found.needed_by,
    )
    return f"| {' | '.join(cells)} |\n"


def main(place: Path = PAGE) -> None:
    """Write the page, if everything that it lists is installed."""
    lacking = [name for name in missing() if name not in _OPTIONAL]
    if lacking:
        print(f"docs/{place.name} is left as it is: {', '.join(lacking)} are not installed")
        return
    place.write_text(page(packages()), encoding="utf-8")


_OPTIONAL = {"numba"}
"""Packages that `make` does not install."""

if __name__ == "__main__":
    main()
