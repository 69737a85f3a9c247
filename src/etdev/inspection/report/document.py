"""Content of report pages: about one file, or about all targets of a build."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from etdev import program as pte
from etdev._version import __version__
from etdev.config.limits import PRODUCTS
from etdev.errors import ProgramError, UsageError
from etdev.files import atomic_write_text, describe_os_error, file_sha256, real_path
from etdev.inspection.inspect import describe
from etdev.inspection.planned_memory import method_memories
from etdev.inspection.provenance import Provenance, built_by, files_read, provenance
from etdev.inspection.report.methods import method_page
from etdev.inspection.report.sections import data_page, sections
from etdev.page import Document, render
from etdev.page.model import CheckRow, FilePage, ProgramPage, Texts
from etdev.pipeline.project.places import REJECTED_SUFFIX
from etdev.pipeline.results.reasons import NOTHING_TO_ASK
from etdev.pipeline.results.result import BuildResult, CheckResult, TargetResult
from etdev.pipeline.results.verdict import is_verified, target_verdict
from etdev.pipeline.stages.link.nested import device_memory
from etdev.program import Program
from etdev.program.bank_report import counted_calls
from etdev.program.data_files.joined import DataArgument, data_paths, read_joined
from etdev.program.info import ProgramInfo
from etdev.program.sidecar.notes import noted_inputs


@dataclass(frozen=True)
class ReadProgram:
    """A program, and the known facts about its build."""

    program: Program
    file: Path
    sha256: str
    known: Provenance


def report(
    file: str | os.PathLike[str],
    place: str | os.PathLike[str] | None = None,
    *,
    data: DataArgument = (),
) -> Path:
    """Write a report page about a ``.pte`` from any toolchain, and return the page's path.

    ``place`` is the path of the page, by default next to the file. ``data`` contains the program's data files, by
    default those in the build's report. The page includes facts from the build's files next to the ``.pte``, if these
    belong to exactly this file.

    Raises :class:`~etdev.errors.ProgramError` if a file cannot be read or is malformed, or if a data file belongs to
    another program. Raises :class:`~etdev.errors.UsageError` if ``place`` is an input file of the page or has the
    suffix of a program. Raises :class:`~etdev.errors.WriteError` if the page cannot be written.
    """
    path, weights = Path(file), data_paths(data)
    target = page_place(path) if place is None else Path(place)
    if real_path(target) in {real_path(read) for read in files_read(path, weights)}:
        raise UsageError(f"{str(target)!r} is an input file of the page", hint="write the page to another path")
    if target.suffix in PRODUCTS:
        raise UsageError(f"a page cannot have the name {str(target)!r}", hint="use a name that ends in .html")
    atomic_write_text(target, file_page(path, weights))
    return target


def file_page(file: Path, data: Sequence[Path] = ()) -> str:
    """Return the HTML page for a program and its data files. Raises :class:`~etdev.errors.ProgramError`."""
    return render(file_document(file, data))


def build_page(build: BuildResult) -> str:
    """Return the HTML page for all targets of a build, including rejected ones."""
    return render(build_document(build))


def page_place(file: Path) -> Path:
    """Return the default path of a file's page."""
    return file.with_name(file.name.removesuffix(REJECTED_SUFFIX)).with_suffix(".html")


def file_document(file: Path, data: Sequence[Path] = ()) -> Document:
    """Return the content of the page for a program and its data files. Raises :class:`~etdev.errors.ProgramError`."""
    texts = Texts()
    found = read_program(file, data)
    return _document((program_page(found, texts),), found.known.build, texts)


def read_program(file: Path, data: Sequence[Path] = ()) -> ReadProgram:
    """Read a program, and find facts about its build. Raises :class:`~etdev.errors.ProgramError`."""
    program = pte.read(file)
    if data:
        read_joined(file, data)  # This checks that the data files belong to the program.
    try:
        digest = file_sha256(file)
    except OSError as error:
        raise ProgramError(f"cannot read the program: {describe_os_error(error)[0]}", where=str(file)) from error
    known = provenance(file, digest)
    if data:
        known = replace(known, data=tuple(data), without=())
    return ReadProgram(program, file, digest, known)


def program_page(found: ReadProgram, texts: Texts) -> ProgramPage:
    """Return the part of a page that describes one program."""
    program, file, known = found.program, found.file, found.known
    memories = method_memories(program, noted_inputs(known.notes))
    target = known.target
    info = describe(program, file, memories, known)
    methods = [
        method_page(program, plan, memory, described, known, texts)
        for plan, memory, described in zip(program.execution_plan, memories, info.methods, strict=True)
        if not described.describes_end  # The tables of the method itself show these constants.
    ]
    # The page opens with the first method. ExecuTorch sorts methods by name.
    methods.sort(key=lambda method: -sum(buffer.info.size for buffer in method.buffers))
    return ProgramPage(
        name=target.name if target is not None else file.name,
        file=file.name,
        size=info.size,
        sha256=found.sha256,
        status=target.status if target is not None else None,
        verdict=target_verdict(target) if target is not None else None,
        verified=target is not None and is_verified(target),
        problem=None,
        facts=_facts(target, info),
        memory=info.memory,
        nested={device: inside for device, (_, inside) in device_memory(program).items() if inside},
        sources=known.unnoted,
        files=tuple(_files(program, info, known)),
        without="; ".join(known.without) or _unnamed(info, known),
        methods=tuple(methods),
        checks=tuple(map(_check, target.checks)) if target is not None else (),
        unverified=known.unbuilt,
        notes=_notes(target, info),
    )


def build_document(build: BuildResult) -> Document:
    """Return the content of a build's page."""
    texts = Texts()
    pages = tuple(_target_page(build, target, texts) for target in build.targets)
    return _document(pages, build, texts)


def _document(programs: tuple[ProgramPage, ...], build: BuildResult | None, texts: Texts) -> Document:
    title = programs[0].file if len(programs) == 1 else build.project if build is not None else ""
    return Document(
        title=title,
        made_by=f"etdev {__version__}",
        programs=programs,
        texts=texts.all(),
        versions=build.versions if build is not None else {},
        notes=(*_not_built(build), *build.notes) if build is not None else (),
    )


def _not_built(build: BuildResult) -> Iterator[str]:
    for target in build.failed:
        for error in target.errors:
            yield f"{target.name} was not built: {error.message}"
    for name in build.not_built:
        yield f"{name} was not started"


def _target_page(build: BuildResult, target: TargetResult, texts: Texts) -> ProgramPage:
    file = build.path(target.name)
    try:
        program = pte.read(file)
    except ProgramError as error:
        return ProgramPage(
            name=target.name,
            file=file.name,
            size=target.size,
            sha256=target.sha256,
            status=target.status,
            verdict=target_verdict(target),
            verified=False,
            problem=error.message,
            facts=_facts(target, None),
            memory=target.memory,
            sources=None,
            checks=tuple(map(_check, target.checks)),
            notes=target.notes,
        )
    reported = provenance(file, target.sha256)  # The page is the same whether the target was built now or before.
    known = built_by(build, target, file) if reported.target is None else reported
    return program_page(ReadProgram(program, file, target.sha256, known), texts)


def _files(program: Program, info: ProgramInfo, known: Provenance) -> Iterator[FilePage]:
    yield FilePage(Path(info.file).name, info.size, sections(program, info, known))
    for data in known.data:
        yield data_page(info, data, known)


def _unnamed(info: ProgramInfo, known: Provenance) -> str | None:
    """Return a message if the program needs a data file but no data file is known; otherwise None."""
    if known.data or not info.external_data:
        return None
    return (
        f"no file next to the program is known to contain {info.external_data[0]!r}: name the data file with "
        "`etdev report --data FILE`"
    )


def _facts(target: TargetResult | None, info: ProgramInfo | None) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str | None]] = []
    if target is not None:
        found += [
            ("target", target.name),
            ("quantized by", target.quantize),
            ("planner", target.planner),
            ("shared state", ", ".join(target.shared_state) or None),
            *_bank_facts(target),
            ("has to run", ", ".join(target.required) or None),
            *((f"data file {one.name}", f"{one.size:,} bytes, SHA-256 {one.sha256}") for one in target.data),
        ]
    if info is not None:
        found += [
            ("methods", ", ".join(method.name for method in info.methods if not method.describes_end)),
            ("memory is planned for", _largest_inputs(target, info)),
            ("weights", _weights(target, info)),
            ("data in other files", ", ".join(info.external_data) or None),
            ("not known to this version of etdev", ", ".join(info.unknown_fields) or None),
        ]
    return tuple((label, text) for label, text in found if text is not None)


def _largest_inputs(target: TargetResult | None, info: ProgramInfo) -> str | None:
    """Return the largest shapes of the inputs with dynamic sizes; None if there are no such inputs."""
    methods = [method for method in info.methods if not method.describes_end]
    names = {method.name: method.input_names for method in target.methods} if target is not None else {}
    found = []
    for method in methods:
        known = names.get(method.name, ())
        prefix = f"{method.name}: " if len(methods) > 1 else ""
        for position, argument in enumerate(method.inputs):
            if argument.dynamism == "bounded" and argument.shape is not None:
                name = known[position] if position < len(known) else f"input {position}"
                found.append(f"{prefix}{name} [{', '.join(map(str, argument.shape))}]")
    return f"the largest sizes: {', '.join(found)}" if found else None


def _bank_facts(target: TargetResult) -> Iterator[tuple[str, str]]:
    calls = counted_calls(method.buffers for method in target.methods)
    for bank in target.banks.banks if target.banks is not None else ():
        greedy = "does not fit" if bank.greedy_traffic is None else f"{bank.greedy_traffic:,} bytes"
        used = f"{bank.used:,} of {bank.capacity:,} bytes in buffer {bank.index}"
        yield f"bank {bank.name}", f"{used}; {bank.traffic:,} bytes moved {calls}; ExecuTorch's planner: {greedy}"


def _weights(target: TargetResult | None, info: ProgramInfo) -> str:
    if target is not None and target.figures is not None:
        return f"{target.figures.weights:,} bytes, including data that delegates look up by name"
    return f"{info.weights_bytes:,} bytes outside of delegates"


def _notes(target: TargetResult | None, info: ProgramInfo) -> tuple[str, ...]:
    unknown = tuple(f"{one.name}: {one.memory_unknown}" for one in info.methods if one.memory_unknown is not None)
    warnings = target.warnings if target is not None else ()
    told = (f"warning: {found.message}, at {found.where}; help: {found.hint}" for found in warnings)
    return (*told, *(target.notes if target is not None else ()), *unknown)


def _check(check: CheckResult) -> CheckRow:
    hint = None if check.hint is None else f"help: {check.hint}"
    details = (*check.problems, *(text for text in (check.where, hint) if text is not None))
    status = "not needed" if check.status == "not run" and check.summary in NOTHING_TO_ASK else check.status
    return CheckRow(check.name, status, check.summary, tuple(text for text in details if text != check.summary))
