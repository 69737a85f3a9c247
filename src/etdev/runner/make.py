"""Generation of a project from a program's file: read the file, measure the pools, write the project."""

from __future__ import annotations

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from etdev import compat
from etdev._version import __version__
from etdev.errors import ProgramError, RunnerError, UsageError
from etdev.files import describe_os_error, file_sha256, read_file
from etdev.inspection.provenance import provenance
from etdev.program import Program, parse
from etdev.program.analysis.quantized_ends import quantized_ends
from etdev.program.blob import Blob
from etdev.program.sidecar.notes import noted_inputs
from etdev.runner.facts import Facts, check_program, collect_facts
from etdev.runner.folder import is_made_from, write_project
from etdev.runner.generate import project_files
from etdev.runner.layout import plan_alignment
from etdev.runner.pools import PoolSizes
from etdev.runner.source import ProgramFile


@dataclass(frozen=True, slots=True)
class Project:
    """Result of writing a project."""

    facts: Facts
    changed: tuple[str, ...]
    """Names of the files that were written; empty if the folder already contained the whole project."""


def renew_project(
    folder: Path, file: Path, data: Sequence[Path] = (), *, embed: bool = False, alignment: int | None = None
) -> None:
    """Write a project for a program, unless the folder already contains the project of this program.

    If the folder already contains the project, the pools are not measured. The arguments and errors are the same as in
    :func:`make_project`.
    """
    source = _read(file, data, alignment)
    if not is_made_from(folder, _made_from(source, embed=embed)):
        make_project(folder, file, data, embed=embed, alignment=alignment)


def make_project(
    folder: Path,
    file: Path,
    data: Sequence[Path] = (),
    *,
    embed: bool = False,
    alignment: int | None = None,
    notify: Callable[[str], None] = lambda _: None,
) -> Project:
    """Write a project for a program and its data files to a folder.

    ``alignment`` is the alignment of the memory plan in bytes. If it is None, it is derived from the addresses in the
    plan. ``notify`` receives a message before a slow step.

    Raises :class:`~etdev.errors.RunnerError` if no project can be generated for the program. Raises
    :class:`~etdev.errors.MissingRequirementError` if the pools cannot be measured on this machine. Also raises the
    errors of :func:`write_project`.
    """
    source = _read(file, data, alignment)
    check_program(source)
    source = replace(
        source, pools=_measured_pools(file, source.program, data, notify), measured=f"with {_environment()}"
    )
    changed = write_project(folder, project_files(source, embed=embed), _made_from(source, embed=embed))
    return Project(collect_facts(source, embed=embed), changed)


def _read(file: Path, data: Sequence[Path], alignment: int | None) -> ProgramFile:
    twice = [name for name, count in Counter(path.name for path in data).items() if count > 1]
    if twice:
        raise UsageError(f"several data files have the name {twice[0]}", where="--data", hint="rename one of them")
    try:
        content = read_file(file)
        files = {path.name: read_file(path) for path in data}
        known = provenance(file, file_sha256(file))
    except OSError as error:
        cause, remedy = describe_os_error(error)
        raise ProgramError(f"cannot read the file: {cause}", where=str(error.filename or file), hint=remedy) from error
    program = parse(Blob(content), where=str(file))
    report = known.target.banks if known.target is not None else None
    banks = report.banks if report is not None else ()
    least = plan_alignment(program) if alignment is None else alignment
    return ProgramFile(
        name=file.name,
        content=content,
        program=program,
        pools={},
        measured="",
        data=files,
        delegate_inputs=noted_inputs(known.notes),
        target=known.target.name if known.target is not None else None,
        alignment=max((least, *(bank.alignment for bank in banks))),
        banks=banks,
    )


def _made_from(source: ProgramFile, *, embed: bool) -> str:
    """Return a digest of everything that determines a project's files."""
    contents = {name: hashlib.sha256(content).hexdigest() for name, content in source.data.items()}
    program = hashlib.sha256(source.content).hexdigest()
    banks = [(bank.name, bank.index, bank.capacity) for bank in source.banks]
    facts = (__version__, _environment(), source.name, program, contents, source.target, source.alignment, banks, embed)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _measured_pools(
    file: Path, program: Program, data: Sequence[Path], notify: Callable[[str], None]
) -> dict[str, PoolSizes]:
    """Measure the pools and the heap: call each method once with random inputs of the largest sizes.

    Return a mapping from each method to these sizes.
    """
    from etdev.execution.native import open_native
    from etdev.execution.random_inputs import random_inputs
    from etdev.runtime.child import ProgramFailureError
    from etdev.runtime.native import measure_memory

    ends = quantized_ends(program)
    calls = [(plan.name, random_inputs(plan, 0, ends.get(plan.name, ()))) for plan in program.execution_plan]
    try:
        with open_native(program, watch=False, notify=notify) as runtime:
            found = measure_memory(runtime, program, file, calls, data=data)
    except ProgramFailureError as error:
        raise RunnerError(
            f"the pools cannot be measured, because the program fails on random inputs: {error}",
            where=str(file),
            hint="check the file with `etdev verify`, and pass the program's data files with `--data`",
        ) from error
    return {name: PoolSizes(pools.method_pool, pools.temporary_pool, pools.heap) for name, pools in found.items()}


def _environment() -> str:
    return f"executorch {compat.installed()} on {platform.machine()}"
