"""Reading of ``report.json`` and ``results.json``, the files in which a build stores its :class:`BuildResult`."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from etdev.errors import EtdevError
from etdev.files import describe_os_error, read_file
from etdev.pipeline.results.result import BuildResult

REPORT = "report.json"
"""Name of the file with the report on one target, in the folder of the target's files."""


class ReportError(EtdevError):
    """The error if a report cannot be read or comes from another version of etdev."""


def report_beside(file: Path) -> Path:
    """Return the path at which the report on a file is, unless someone has moved the file since it was built."""
    return file.with_name(REPORT)


def read_report(place: Path) -> BuildResult | None:
    """Return the content of a report; None if the file does not exist.

    Raises :class:`ReportError`, which names the first flaw of the file.
    """
    try:
        return BuildResult.model_validate_json(read_file(place))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReportError(f"cannot read the report: {describe_os_error(error)[0]}", where=str(place)) from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        flaw = f"{key}: {first['msg']}" if key else first["msg"]
        message = f"this is not a report of this version of etdev: {flaw}"
        raise ReportError(message, where=str(place), hint="build the target again with this version") from error


def find_report(place: Path) -> BuildResult | None:
    """Return the content of a report; None if it is missing or this version of etdev cannot read it."""
    try:
        return read_report(place)
    except ReportError:
        return None
