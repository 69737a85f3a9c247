"""Packages that a wheel of etdev needs, as they are installed in this environment."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
_NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD 2-Clause": "BSD-2-Clause",
    "BSD 3-Clause": "BSD-3-Clause",
    "BSD": "BSD-3-Clause",
    "BSD-3": "BSD-3-Clause",
    "Eclipse Public License v2.0": "EPL-2.0",
    "MIT License": "MIT",
    "ISC License": "ISC",
    "OSI Approved": "",
    "OSI Approved :: Apache Software License": "Apache-2.0",
}
"""SPDX identifiers of names that packages use."""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package."""

    name: str
    version: str
    licence: str
    """SPDX expression if the package has one, else its own words or classifiers, else empty."""
    needed_by: str
    """``etdev``, or ``etdev[EXTRA]``."""
    direct: bool
    """Whether etdev itself requires it, not only another package."""
    requires: tuple[str, ...]
    """Canonical names of the packages that it needs on this platform, without extras."""


def licence() -> str:
    """Return the SPDX expression of etdev's wheel."""
    return str(_project()["license"])


def packages() -> list[Package]:
    """Return what the wheel and each of its extras need, sorted by name; extras name their own requirements only.

    Packages that are not installed here are left out.
    """
    project = _project()
    found: dict[str, Package] = {}
    _add(found, project["dependencies"], "etdev", deep=True)
    for extra, requirements in project["optional-dependencies"].items():
        own = [text for text in requirements if not text.startswith("etdev[")]
        _add(found, own, f"etdev[{extra}]", deep=False)
    return sorted(found.values(), key=lambda package: package.name.lower())


def missing() -> list[str]:
    """Return the requirements of the wheel and of its extras that are not installed here."""
    project = _project()
    texts = [*project["dependencies"], *(text for some in project["optional-dependencies"].values() for text in some)]
    names = {Requirement(text).name for text in texts if _applies(text)} - {"etdev"}
    return sorted(name for name in names if _installed(name) is None)


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _add(
    found: dict[str, Package], requirements: Iterable[str], needed_by: str, *, deep: bool, direct: bool = True
) -> None:
    new = []
    for text in requirements:
        name = canonicalize_name(Requirement(text).name)
        installed = _installed(name)
        if name in found or not _applies(text) or installed is None:
            continue
        needs = [text for text in installed.requires or () if _applies(text)]
        found[name] = Package(
            installed.metadata["Name"],
            installed.version,
            _licence(installed),
            needed_by,
            direct,
            tuple(sorted(canonicalize_name(Requirement(text).name) for text in needs)),
        )
        new += needs
    if deep and new:  # All that etdev names first: what it names is direct, even if another package needs it, too.
        _add(found, new, needed_by, deep=True, direct=False)


def _applies(text: str) -> bool:
    marker = Requirement(text).marker
    return marker is None or marker.evaluate({"extra": ""})


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def _licence(installed: Distribution) -> str:
    metadata = installed.metadata
    expression = metadata.get("License-Expression")  # type: ignore[attr-defined]
    if expression:
        return str(expression)
    classified = [text for text in metadata.get_all("Classifier", []) if text.startswith("License :: ")]
    names = [_spdx(text.rpartition(" :: ")[2]) for text in classified]
    if any(names):
        return ", ".join(dict.fromkeys(name for name in names if name))
    stated = str(metadata.get("License") or "").strip()  # type: ignore[attr-defined]
    return _spdx(stated) if "\n" not in stated else _spdx(stated.splitlines()[0])


def _spdx(name: str) -> str:
    plain = re.sub(r"^The | \(.*\)$", "", name).strip()
    return _NAMES.get(plain, plain)
