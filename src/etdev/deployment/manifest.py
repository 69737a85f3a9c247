"""``manifest.json``: the files of a release, its requirements, and the results of its verification."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MANIFEST = "manifest.json"

FileName = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Pattern of valid file names in a release. Such names are valid on every operating system."""


class ManifestError(ValueError):
    """Error for a manifest that cannot be read."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ReleasedFile(_Part):
    """A file of a release, other than the manifest."""

    name: str = Field(pattern=rf"^{FileName.pattern}$")
    size: int = Field(ge=0)
    """Size in bytes."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Needs(_Part):
    """Requirements of the program on the machine that runs it."""

    executorch: str | None
    """Version of ExecuTorch that built the program, or None if unknown. Older runtimes may refuse the program."""
    devices: tuple[str, ...] = Field(strict=False)
    """Devices other than the host that the program uses, such as ``cuda:0``."""
    operators: tuple[str, ...] = Field(strict=False)
    """Names of the kernels that the program calls, such as ``aten::add.out``."""
    delegates: tuple[str, ...] = Field(strict=False)
    """Names of the backends that the program calls, such as ``XnnpackBackend``."""
    libraries: tuple[str, ...] = Field(strict=False)
    """Kernel libraries of ExecuTorch with these kernels: ``portable``, ``optimized``, ``quantized``."""
    memory: dict[str, int]
    """Planned bytes per device."""


class Check(_Part):
    """Result of one check of the program."""

    name: str
    status: Literal["passed", "not run"]
    summary: str
    """Result of the check in words, or the reason why the check did not run."""


class Manifest(_Part):
    """Manifest of a release.

    Releases with equal manifests have equal files, independent of who deployed them and when.
    """

    format: Literal[1] = 1
    project: str
    target: str
    program: str
    """Name of the ``.pte`` file, which is one of ``files``."""
    files: tuple[ReleasedFile, ...] = Field(strict=False)
    versions: dict[str, str]
    """Versions of etdev, Python and the packages that built the program."""
    needs: Needs
    verification: tuple[Check, ...] = Field(strict=False)
    lock: str | None
    """SHA-256 of the ``etdev.lock`` next to the config, or None if there is no lock."""

    def to_bytes(self) -> bytes:
        """Return the content of ``manifest.json``. Equal manifests have equal content."""
        return (self.model_dump_json(indent=2) + "\n").encode()


def digest_of(content: bytes) -> str:
    """Return the first twelve digits of a manifest's SHA-256. The release's name contains these digits."""
    return hashlib.sha256(content).hexdigest()[:12]


def parse_manifest(content: bytes) -> Manifest:
    """Return the manifest with this content. Raise :class:`ManifestError` if the content is not a valid manifest."""
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ManifestError(f"{place}: {first['msg']}" if place else first["msg"]) from None
