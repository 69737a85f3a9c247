"""Check that a tag is that of the version to release: ``python tools/release/tag.py vX.Y.Z``. Needs no package."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def problem(tag: str, version: str, changelog: str) -> str | None:
    """Return why a tag may not be released; None if it may."""
    if tag != f"v{version}":
        return (
            f"the tag is {tag}, and the version of the code is {version}\nhelp: tag v{version}, or change _version.py"
        )
    heading = re.search(rf"^## \[{re.escape(version)}\] - (.+)$", changelog, re.MULTILINE)
    if heading is None:
        return f"CHANGELOG.md has no section [{version}]\nhelp: add it"
    if re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]) is None:
        return f"CHANGELOG.md says of {version}: {heading[1]}\nhelp: write the date, as YYYY-MM-DD"
    return None


def main(tag: str) -> int:
    """Print the problem, if there is one; return the exit code."""
    text = (ROOT / "src" / "etdev" / "_version.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    found = problem(tag, version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    if found is not None:
        print(f"error: {found}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
