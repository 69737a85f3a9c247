"""Search for the data files of a deployed release, on the machine that runs the release's program."""

from __future__ import annotations

from pathlib import Path

from etdev.deployment.manifest import MANIFEST, ManifestError, parse_manifest
from etdev.errors import UsageError
from etdev.files import read_file
from etdev.program.flat_tensor.model import SUFFIX


def released_data(program: Path) -> tuple[Path, ...]:
    """Return the data files of the release that a program belongs to; empty if the program is not in a release.

    The manifest next to the program lists the data files. Raises :class:`~etdev.errors.UsageError` if a data file is
    missing.
    """
    try:
        manifest = parse_manifest(read_file(program.with_name(MANIFEST)))
    except (OSError, ManifestError):  # Another program may have a file of this name.
        return ()
    if manifest.program != program.name:
        return ()
    found = tuple(program.with_name(file.name) for file in manifest.files if file.name.endswith(SUFFIX))
    for path in found:
        if not path.is_file():
            raise UsageError(
                f"a data file of the release is missing: {path.name}",
                where=str(program),
                hint="deploy the release again, or pass the file with `--data`",
            )
    return found
