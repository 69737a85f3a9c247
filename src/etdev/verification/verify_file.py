"""Verification of a ``.pte`` without the config that it was built from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from etdev.backends.base import BUILD_EXTRA, find_packages
from etdev.config.models import CheckName
from etdev.errors import MissingRequirementError, UsageError
from etdev.execution.availability import describe_map
from etdev.files import describe_os_error, file_sha256, open_file
from etdev.pipeline.project.runtime_contents import Requirements, RuntimeContents, requirements
from etdev.pipeline.project.versions import versions
from etdev.pipeline.results.file_result import FileResult, FilesResult
from etdev.pipeline.results.result import CHECKS, CheckResult, outcome
from etdev.program import Program
from etdev.runtime.device_map import NO_MAP, DeviceMap
from etdev.runtime.stock import StockRuntime
from etdev.verification.checks.bytes import check_bytes
from etdev.verification.checks.device import check_device
from etdev.verification.checks.kernels import check_kernels
from etdev.verification.checks.placement import check_placement
from etdev.verification.checks.plan import check_alone
from etdev.verification.order import not_run
from etdev.verification.standalone_replay import replay_alone

_NEED_A_CONFIG: tuple[CheckName, ...] = ("budget", "growth", "runtime", "accuracy", "latency")
"""Checks that compare with a limit, with a model or with data."""
_ALIGNMENT = 16
"""Default alignment of allocators, in bytes."""


def verify_files(
    files: Sequence[str | os.PathLike[str]],
    *,
    require: Sequence[CheckName] = (),
    device_map: DeviceMap = NO_MAP,
    data: Sequence[Path] = (),
) -> FilesResult:
    """Answer the checks that need no config, for ``.pte`` files from any toolchain with their ``data`` files.

    The stock runtime reports its kernels and backends and does not load the file. The interpreter runs the file, within
    bounds. Nothing is written. Raises :class:`~etdev.errors.UsageError` for a file that is missing or cannot be read.
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
        results = tuple(_verify_file(path, data, tuple(require), runtime, device_map) for path in paths)
    notes = tuple(describe_map((item.checks for item in results), device_map))
    return FilesResult(versions=versions(), files=results, notes=notes)


def _verify_file(
    path: Path, data: Sequence[Path], required: tuple[CheckName, ...], runtime: StockRuntime, device_map: DeviceMap
) -> FileResult:
    answers = {check: not_run(check, "the check `bytes` failed") for check in CHECKS}
    for check in _NEED_A_CONFIG:
        answers[check] = not_run(check, "only the config that the file was built from can tell")
    answers["bytes"], found = check_bytes(path, data)
    if found is not None:
        answers |= _ask(found, runtime, device_map, complete=answers["bytes"].status == "passed")
    checks = tuple(answers[check] for check in CHECKS)
    return FileResult(
        file=str(path),
        size=path.stat().st_size,
        sha256=file_sha256(path),
        status="good" if outcome(checks) == "built" else "rejected",
        checks=checks,
        required=required,
    )


def _ask(
    found: Program, runtime: StockRuntime, device_map: DeviceMap, *, complete: bool
) -> dict[CheckName, CheckResult]:
    """Answer the other checks for a file that can be read; a file that is not ``complete`` is not run."""
    plan, placement = check_alone(found, foreign=True), check_placement(found)
    sound = complete and "failed" not in (plan.status, placement.status)
    reason = "a check before it failed, so nothing is run"
    replay = replay_alone(found, device_map) if sound else not_run("replay", reason)
    device = check_device(found, device_map, replay, alignment=_ALIGNMENT) if sound else not_run("device", reason)
    return {
        "plan": plan,
        "placement": placement,
        "kernels": _check_kernels(requirements(found), runtime),
        "replay": replay,
        "device": device,
    }


def _check_kernels(required: Requirements, runtime: StockRuntime) -> CheckResult:
    """Run the check *kernels* against the wheel's runtime, if it is installed."""
    package = find_packages("executorch", remedy=BUILD_EXTRA)
    if not package.available:
        return not_run("kernels", f"{package.reason}; `{package.remedy}` brings a runtime to compare with")
    try:
        contents = RuntimeContents(runtime.operators, runtime.backends, closed=False)
    except MissingRequirementError as error:
        return not_run("kernels", error.message)
    check = check_kernels(contents, required)
    if check.status == "failed":
        hint = "if it is for another runtime, say in a config what that has: `targets.NAME.runtime`"
        return check.model_copy(update={"hint": hint})
    if check.status == "not run":
        unknown = {name for names in required.delegates.values() for name in names} - runtime.backends
        return not_run("kernels", f"the wheel's runtime does not know {', '.join(sorted(unknown))}")
    return check
