"""Functions that read ``report.json`` and ``results.json``. Both files contain a :class:`BuildResult`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etdev.errors import EtdevError
from etdev.files import describe_os_error, read_file

if TYPE_CHECKING:
    from etdev.pipeline.results.result import BuildResult

REPORT = "report.json"
"""Name of the file with the report on one target; the file is in the target's folder."""


class ReportError(EtdevError):
    """Error for a report that cannot be read or comes from another version of etdev."""


def report_beside(file: Path) -> Path:
    """Return the path of the report next to a built file."""
    return file.with_name(REPORT)


def read_report(place: Path) -> BuildResult | None:
    """Return the content of a report; None if the file does not exist.

    Raises :class:`ReportError` if the file is invalid. The error describes the first invalid field.
    """
    try:
        content = read_file(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReportError(f"cannot read the report: {describe_os_error(error)[0]}", where=str(place)) from error
    from pydantic import ValidationError  # Slow to import, and not needed without a report.

    from etdev.pipeline.results.result import BuildResult

    try:
        return BuildResult.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        flaw = f"{key}: {first['msg']}" if key else first["msg"]
        message = f"this report is damaged or is of another version of etdev: {flaw}"
        raise ReportError(
            message, where=str(place), hint="build the target again with this version of etdev"
        ) from error


def find_report(place: Path) -> BuildResult | None:
    """Return the content of a report; None if the file is missing or this version of etdev cannot read it."""
    try:
        return read_report(place)
    except ReportError:
        return None
