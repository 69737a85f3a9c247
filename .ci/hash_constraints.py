"""Write constraints-hashed.txt: the versions of constraints.txt with the hashes of their files.

executorch-hashed.txt gets the same for the older versions of ExecuTorch that etdev is tested with.

    python .ci/hash_constraints.py INDEX_URL [WHEEL ...]

INDEX_URL is the simple API of a package index, as pip's option of that name takes it. Hashes cover the Pythons and
platforms that etdev supports. WHEEL names further files to accept, such as torch's CPU build, which the index lacks;
hashes that the file has already for the same version stay.
"""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

FOLDER = Path(__file__).resolve().parent
VERSIONS = FOLDER.parent / "constraints.txt"
HASHED = FOLDER / "constraints-hashed.txt"
EXECUTORCH = FOLDER / "executorch-hashed.txt"
_INTERPRETERS = re.compile(r"py3|py2|py31[123]|cp31[123]")
_STABLE = re.compile(r"cp3(\d+)")
_PLATFORMS = re.compile(r"any|(manylinux|linux).*_(x86_64|aarch64)|macosx_.*")
_HEADER = """\
# The versions of constraints.txt with the SHA-256 of their files. `make` and CI install only these files.
# Written by .ci/hash_constraints.py: do not edit.
"""
_EXECUTORCH_HEADER = """\
# Older versions of ExecuTorch that etdev is tested with, with the SHA-256 of their files.
# Written by .ci/hash_constraints.py: do not edit.
"""


def pins(text: str) -> dict[str, str]:
    """Return the version of each pinned package of a constraints file, by its name as written there."""
    lines = (line.split(" ")[0] for line in text.splitlines() if line and line[0] not in "# ")
    return dict(line.split("==", 1) for line in lines)


def hashes(text: str) -> dict[str, set[str]]:
    """Return the hashes of each `name==version` of a hashed constraints file."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and line[0] not in "# ":
            pin = line.split(" ")[0]
            found[pin] = set()
        found_hash = re.search(r"--hash=sha256:([0-9a-f]{64})", line)
        if found_hash:
            found[pin].add(found_hash[1])
    return found


def _fits(filename: str, version: Version) -> bool:
    """Return whether `filename` holds `version` for a Python and a platform that etdev supports."""
    try:
        if not filename.endswith(".whl"):
            return parse_sdist_filename(filename)[1] == version
        _, found, _, tags = parse_wheel_filename(filename)
    except ValueError:  # Names of other archives, and malformed ones.
        return False
    return found == version and any(_supported(tag.interpreter, tag.abi, tag.platform) for tag in tags)


def _supported(interpreter: str, abi: str, platform: str) -> bool:
    stable = _STABLE.fullmatch(interpreter)
    if stable and abi == "abi3":
        return int(stable[1]) <= 13 and bool(_PLATFORMS.fullmatch(platform))
    return bool(_INTERPRETERS.fullmatch(interpreter) and not abi.endswith("t") and _PLATFORMS.fullmatch(platform))


def _ask(index: str, name: str, version: str) -> set[str]:
    url = f"{index.rstrip('/')}/{canonicalize_name(name)}/"
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        files = json.load(answer)["files"]
    return {file["hashes"]["sha256"] for file in files if _fits(file["filename"], Version(version))}


def _of_wheels(paths: list[str]) -> Iterator[tuple[str, str, str]]:
    for path in map(Path, paths):
        name, version, _, _ = parse_wheel_filename(path.name)
        with path.open("rb") as file:
            yield name, version.public, hashlib.file_digest(file, "sha256").hexdigest()


def main(index: str, wheels: list[str]) -> None:
    """Ask `index` for every pinned version and write the file; raise where a version has no hash."""
    versions = pins(VERSIONS.read_text(encoding="utf-8"))
    known = hashes(HASHED.read_text(encoding="utf-8")) if HASHED.exists() else {}
    with ThreadPoolExecutor(8) as pool:
        asked = dict(zip(versions, pool.map(lambda pin: _ask(index, *pin), versions.items()), strict=True))
    found = {name: some | known.get(f"{name}=={versions[name]}", set()) for name, some in asked.items()}
    for name, version, digest in _of_wheels(wheels):
        (pinned,) = [pin for pin in versions if canonicalize_name(pin) == name and versions[pin] == version]
        found[pinned].add(digest)
    missing = [name for name, some in found.items() if not some]
    if missing:
        raise SystemExit(f"error: {index} has no file of {', '.join(missing)} at its version\nhelp: name a wheel of it")
    HASHED.write_text(
        _HEADER + "".join(_entry(name, version, found[name]) for name, version in versions.items()), encoding="utf-8"
    )
    _, *older = runpy.run_path(str(FOLDER.parent / "src" / "etdev" / "compat.py"))["TESTED"]
    entries = (_entry("executorch", version, _ask(index, "executorch", version)) for version in older)
    EXECUTORCH.write_text(_EXECUTORCH_HEADER + "".join(entries), encoding="utf-8")


def _entry(name: str, version: str, hashes: set[str]) -> str:
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{some}" for some in sorted(hashes))]) + "\n"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
