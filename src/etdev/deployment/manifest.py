"""``manifest.json``: what a release holds, what it needs, and what verification said about it."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MANIFEST = "manifest.json"

FileName = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""What a file of a release may be called: a plain name everywhere."""


class ManifestError(ValueError):
    """A manifest that cannot be read."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ReleasedFile(_Part):
    """One file of a release, beside the manifest."""

    name: str = Field(pattern=rf"^{FileName.pattern}$")
    size: int = Field(ge=0)
    """Bytes."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Needs(_Part):
    """What the program asks of the machine that runs it."""

    executorch: str | None
    """The version that the program was made with: older runtimes may refuse it. None if that is not known."""
    devices: tuple[str, ...] = Field(strict=False)
    """Beside the host: ``cuda:0``."""
    operators: tuple[str, ...] = Field(strict=False)
    """Kernels: ``aten::add.out``."""
    delegates: tuple[str, ...] = Field(strict=False)
    """Backends: ``XnnpackBackend``."""
    libraries: tuple[str, ...] = Field(strict=False)
    """ExecuTorch's kernel libraries that have the kernels: ``portable``, ``optimized``, ``quantized``."""
    memory: dict[str, int]
    """Planned bytes per device."""


class Check(_Part):
    """One check of the verification of the program."""

    name: str
    status: Literal["passed", "not run"]
    summary: str
    """What was seen, or why it did not run."""


class Manifest(_Part):
    """A release. Two releases with equal manifests are the same, whenever and by whom they were deployed."""

    format: Literal[1] = 1
    project: str
    target: str
    program: str
    """Name of the ``.pte`` among ``files``."""
    files: tuple[ReleasedFile, ...] = Field(strict=False)
    versions: dict[str, str]
    """Of etdev, Python and the packages that built the program."""
    needs: Needs
    verification: tuple[Check, ...] = Field(strict=False)
    lock: str | None
    """SHA-256 of ``etdev.lock`` beside the config; None without one."""

    def to_bytes(self) -> bytes:
        """The file's content; equal manifests give equal bytes."""
        return (self.model_dump_json(indent=2) + "\n").encode()


def digest_of(content: bytes) -> str:
    """The first twelve digits of a manifest's SHA-256, which name the release."""
    return hashlib.sha256(content).hexdigest()[:12]


def parse_manifest(content: bytes) -> Manifest:
    """Read a manifest. Raises :class:`ManifestError`."""
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ManifestError(f"{place}: {first['msg']}" if place else first["msg"]) from None
