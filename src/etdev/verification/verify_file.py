"""Verification of a ``.pte`` without the config that it was built from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from etdev.errors import UsageError
from etdev.execution.availability import describe_map
from etdev.files import describe_os_error, file_sha256, open_file
from etdev.inspection.provenance import known_data
from etdev.pipeline.project.versions import versions
from etdev.pipeline.results.file_result import FileResult, FilesResult
from etdev.pipeline.results.result import outcome
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.stock import StockRuntime
from etdev.verification.order import verify
from etdev.verification.subject import Subject


def verify_files(
    files: Sequence[str | os.PathLike[str]],
    *,
    require: Sequence[str] = (),
    device_map: DeviceMap = NO_MAP,
    data: Sequence[Path] = (),
) -> FilesResult:
    """Run the checks that do not need a config on ``.pte`` files from any toolchain.

    ``data`` contains the programs' data files. etdev finds the data files of a deployed release itself. It also finds
    data files that a build left next to the program. The stock runtime only provides its lists of kernels and backends;
    it does not load the files. The interpreter runs the programs, with limits on instructions and memory. No file is
    written.

    Raises :class:`~etdev.errors.UsageError` if a file is missing or cannot be read.
    """
    paths = [Path(file) for file in files]
    for path in paths:
        try:
            open_file(path).close()
        except FileNotFoundError as error:
            raise UsageError("there is no such file", where=str(path)) from error
        except OSError as error:
            cause, remedy = describe_os_error(error)
            raise UsageError(f"cannot read the file: {cause}", where=str(path), hint=remedy) from error
    with StockRuntime() as runtime:
        results = tuple(
            _verify_file(Subject.read(path, tuple(data) or known_data(path), runtime, device_map), tuple(require))
            for path in paths
        )
    notes = tuple(describe_map((item.checks for item in results), device_map))
    return FilesResult(versions=versions(), files=results, notes=notes)


def _verify_file(subject: Subject, required: tuple[str, ...]) -> FileResult:
    checks = verify(subject)
    return FileResult(
        file=str(subject.path),
        size=subject.path.stat().st_size,
        sha256=file_sha256(subject.path),
        status="good" if outcome(checks) == "built" else "rejected",
        checks=checks,
        required=required,
    )
