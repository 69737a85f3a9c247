"""``manifest.json``: the files of a release, its requirements, and the results of its verification."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MANIFEST = "manifest.json"

FileName = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
"""Pattern for the names of files in a release. All operating systems allow names that match it."""


class ManifestError(ValueError):
    """Error for a manifest that cannot be read."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ReleasedFile(_Part):
    """A file in a release. The manifest itself is not listed."""

    name: str = Field(pattern=rf"^{FileName.pattern}$")
    size: int = Field(ge=0)
    """Size in bytes."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Needs(_Part):
    """Requirements that a machine must meet to run the program."""

    executorch: str | None
    """Version of ExecuTorch with which the program was built, or None if unknown.

    An older runtime may be unable to load the program.
    """
    devices: tuple[str, ...] = Field(strict=False)
    """Devices other than the host that the program uses, such as ``cuda:0``."""
    operators: tuple[str, ...] = Field(strict=False)
    """Names of the kernels that the program calls, such as ``aten::add.out``."""
    delegates: tuple[str, ...] = Field(strict=False)
    """Names of the backends that the program calls, such as ``XnnpackBackend``."""
    libraries: tuple[str, ...] = Field(strict=False)
    """ExecuTorch's libraries that contain the kernels: some of ``portable``, ``optimized`` and ``quantized``."""
    memory: dict[str, int]
    """Maps a device to the size in bytes of its planned memory."""


class Check(_Part):
    """Result of one check of the program."""

    name: str
    status: Literal["passed", "not run"]
    summary: str
    """Summary of the result, or the reason why the check did not run."""


class Manifest(_Part):
    """Manifest of a release: the files and facts about them.

    Equal manifests describe equal files. The manifest does not depend on the time or the author of the deployment.
    """

    format: Literal[1] = 1
    project: str
    target: str
    program: str
    """Name of the ``.pte`` file, which is one of ``files``."""
    files: tuple[ReleasedFile, ...] = Field(strict=False)
    versions: dict[str, str]
    """Maps a package of the build (``etdev``, ``python``, ``torch``, ``executorch``) to its version."""
    needs: Needs
    verification: tuple[Check, ...] = Field(strict=False)
    lock: str | None
    """SHA-256 of the lock next to the config, or None if there is no lock."""

    def to_bytes(self) -> bytes:
        """Return the content of ``manifest.json``. Equal manifests produce equal content."""
        return (self.model_dump_json(indent=2) + "\n").encode()


def digest_of(content: bytes) -> str:
    """Return the first twelve hexadecimal digits of a manifest's SHA-256. The release's name ends with these digits."""
    return hashlib.sha256(content).hexdigest()[:12]


def parse_manifest(content: bytes) -> Manifest:
    """Parse the content of a manifest. Raise :class:`ManifestError` if the content is not a valid manifest."""
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ManifestError(f"{place}: {first['msg']}" if place else first["msg"]) from None
