"""Install etdev and its pinned dependencies, each checked against its hash, into the environment of this interpreter.

    python .ci/install.py --extras build,hf --group dev --cpu --editable

pip cannot hash a folder. So the dependencies come first, with hashes, and etdev itself follows without them.
`--executorch VERSION` installs an older tested version of ExecuTorch, with the same other packages.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HASHED = ROOT / ".ci" / "constraints-hashed.txt"
EXECUTORCH = ROOT / ".ci" / "executorch-hashed.txt"
# Where etdev looks for tosa-tools, which requires an older flatbuffers than the tests.
TOSA_TOOLS = Path(sys.prefix) / "share" / "tosa-tools"
_OWN_EXTRAS = re.compile(r"etdev\[(.*)\]")


def requirements(pyproject: dict[str, Any], extras: list[str], groups: list[str]) -> list[str]:
    """Return the third-party requirements of etdev, of `extras` and of the dependency groups `groups`."""
    project = pyproject["project"]
    found = [*project["dependencies"]]
    for extra in extras:
        found += _extra(project["optional-dependencies"], extra)
    for group in groups:
        found += _group(pyproject["dependency-groups"], group)
    return sorted(set(found))


def _extra(tables: dict[str, list[str]], name: str) -> Iterator[str]:
    if name not in tables:
        raise SystemExit(f"error: etdev has no extra {name!r}\nhelp: use some of {', '.join(tables)}")
    for requirement in tables[name]:
        own = _OWN_EXTRAS.fullmatch(requirement)
        if own is None:
            yield requirement
        else:
            for included in own[1].split(","):
                yield from _extra(tables, included.strip())


def _group(tables: dict[str, list[Any]], name: str) -> Iterator[str]:
    if name not in tables:
        raise SystemExit(f"error: etdev has no dependency group {name!r}\nhelp: use some of {', '.join(tables)}")
    for requirement in tables[name]:
        if isinstance(requirement, str):
            yield requirement
        else:
            yield from _group(tables, requirement["include-group"])


def main() -> int:
    """Run pip up to four times; return the exit code of the first run that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default="", help="extras of etdev, separated by commas")
    parser.add_argument("--group", action="append", default=[], help="a dependency group of pyproject.toml; repeatable")
    parser.add_argument("--cpu", action="store_true", help="take torch's CPU build, from where pip's settings find it")
    parser.add_argument("--editable", action="store_true", help="install etdev from its sources in place")
    parser.add_argument("--executorch", help="a version of ExecuTorch; default: the one of constraints.txt")
    arguments = parser.parse_args()
    extras = [name.strip() for name in arguments.extras.split(",") if name.strip()]
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hashed = with_executorch(HASHED.read_text(encoding="utf-8"), arguments.executorch)
    wanted = requirements(pyproject, extras, arguments.group)
    if arguments.cpu:
        wanted.append(f"torch=={_version(_entry(hashed, 'torch'))}+cpu")

    with tempfile.TemporaryDirectory() as folder:
        newest = Path(folder) / "pip.txt"
        newest.write_text(_entry(hashed, "pip"), encoding="utf-8")  # Old pips take hashes with requirements only.
        pins = Path(folder) / "constraints.txt"
        pins.write_text(hashed, encoding="utf-8")
        own = [*(["--editable"] if arguments.editable else []), str(ROOT)]
        apart = ["--no-deps", "--upgrade", "--target", str(TOSA_TOOLS), "tosa-tools", "ml-dtypes"]
        for step in (
            ["--require-hashes", "--requirement", str(newest)],  # Old pips have no --build-constraint.
            ["--require-hashes", "--constraint", str(pins), "--build-constraint", str(pins), *wanted],
            ["--no-deps", "--build-constraint", str(pins), *own],
            *([["--require-hashes", "--constraint", str(pins), *apart]] if "ethos-u" in extras else []),
        ):
            # Without byte code: most of it is never imported.
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile"]
            code = subprocess.run([*pip, *step], check=False).returncode
            if code:
                return code
    return 0


def with_executorch(hashed: str, version: str | None) -> str:
    """Return hashed constraints with this version of ExecuTorch in place of the pinned one."""
    pinned = _entry(hashed, "executorch")
    if version is None or pinned.startswith(f"executorch=={version} "):
        return hashed
    older = {_version(entry): entry for entry in _entries(EXECUTORCH.read_text(encoding="utf-8"), "executorch")}
    if version not in older:
        known = ", ".join([_version(pinned), *older])
        raise SystemExit(f"error: .ci/ has no hashes of executorch {version}\nhelp: use one of {known}")
    return hashed.replace(pinned, older[version])


def _version(entry: str) -> str:
    return entry.split(maxsplit=1)[0].partition("==")[2]


def _entry(hashed: str, name: str) -> str:
    """Return the lines of the package `name` in a hashed constraints file."""
    (entry,) = _entries(hashed, name)
    return entry


def _entries(hashed: str, name: str) -> list[str]:
    return re.findall(rf"^{name}==(?:.*\\\n)*.*\n", hashed, re.MULTILINE)


if __name__ == "__main__":
    raise SystemExit(main())
