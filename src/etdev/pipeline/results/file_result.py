"""Results of files that are verified without a config: the content of ``verify FILE --json``."""

from __future__ import annotations

from typing import Literal

from etdev.errors import ExitCode
from etdev.pipeline.results.result import CheckResult, Part, unmet


class FileResult(Part):
    """A file and the results of its checks."""

    file: str
    size: int
    """Size of the file in bytes."""
    sha256: str
    status: Literal["good", "rejected"]
    """``rejected`` if a check failed."""
    checks: tuple[CheckResult, ...]
    required: tuple[str, ...] = ()
    """Names of the checks that must run."""

    @property
    def unmet(self) -> tuple[CheckResult, ...]:
        """Required checks that did not run."""
        return unmet(self.checks, self.required)


class FilesResult(Part):
    """Results of all files of one run."""

    format: Literal[1] = 1
    versions: dict[str, str]
    """Versions of etdev, Python and the packages that the checks used."""
    files: tuple[FileResult, ...]
    notes: tuple[str, ...] = ()
    """Notes on missing devices that can be simulated, and on unused entries of the device map."""

    @property
    def exit_code(self) -> ExitCode:
        """Worst exit code of all files.

        The code for a rejected file is worse than the code for a required check that did not run.
        """
        if any(file.status == "rejected" for file in self.files):
            return ExitCode.BUILD_FAILED
        return ExitCode.ENVIRONMENT if any(file.unmet for file in self.files) else ExitCode.DONE
