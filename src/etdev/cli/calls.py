"""Arguments of the commands that take a program: the program, its inputs, method, runtime and workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from etdev import plugins
from etdev.cli.common import complete_target
from etdev.config.limits import MOST_WORKERS
from etdev.errors import UsageError
from etdev.plugins import WORKER_TRANSPORTS

if TYPE_CHECKING:
    from etdev.execution.bench import Against
    from etdev.execution.run_results import RuntimeName
    from etdev.pipeline.project import Project

RUNTIME_PHRASES = {
    "stock": "in the stock runtime",
    "native": "in ExecuTorch's C++ runtime",
    "replay": "by etdev's interpreter",
}
"""Maps the name of a runtime to a phrase for messages that state where a program ran."""

ProgramArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE|TARGET",
        help="A .pte from any toolchain, or a built target.",
        show_default=False,
        autocompletion=complete_target,
    ),
]
OneTargetOption = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--target",
        metavar="TARGET",
        help="A built target, instead of the argument.",
        autocompletion=complete_target,
        show_default=False,
    ),
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="[NAME=]VALUE",
        help="An input, by name or position (not needed for a single input): a .npy, .npz, .safetensors, .txt or "
        ".csv file, a number for an input with one element, or a list with the shape of the input, such as "
        "[[3, 5, 7]]. A .npz or .safetensors file without a name sets all inputs that it contains, by name. "
        "Repeatable: if an input is repeated, the next call begins, on the same state. An array with an additional "
        "first axis, or with a multiple of the rows, is a data set: each piece is a call. Floats for a quantized "
        "input are quantized.",
        show_default=False,
    ),
]
RandomOption = Annotated[bool, typer.Option("--random", help="Use random inputs of the maximum sizes.")]
SeedOption = Annotated[
    int, typer.Option(metavar="N", help="Seed for --random; another seed makes other inputs.", min=0)
]
MethodOption = Annotated[str, typer.Option(metavar="NAME", help="The method to call.")]
RuntimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="stock (ExecuTorch's Python runtime), native (its C++ runtime) or replay (etdev's interpreter). Default: "
        "stock if it can run the program and there is no --device-map.",
        show_default=False,
    ),
]
NativeLibraryOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--native-library",
        metavar="FILE",
        help="A shared library with backends or kernels in C++ that the program needs. Only with --runtime native; "
        "runs code of the library. Repeatable. Not needed for libraries in the config or of installed packages.",
        show_default=False,
    ),
]
TransportOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Kind of workers: process (default), thread, ray, or one from another package.",
        show_default=False,
    ),
]


class NamedProgram(NamedTuple):
    """The program that the user selects on the command line."""

    file: Path
    data: tuple[Path, ...]
    """Data files of the program."""
    project: Project | None
    """Project of the target; None if the user selected a file."""
    target: str | None
    """Name of the target; None if the user selected a file."""


def named_program(
    program: str | None,
    target: str | None,
    config: Path | None,
    data: Sequence[Path] | None = None,
    *,
    profile: str | None = None,
    alone: bool = True,
) -> NamedProgram:
    """Return the program for a command that accepts ``FILE|TARGET`` or ``--target``.

    Raises the errors of :func:`find_program`. Raises :class:`~etdev.errors.UsageError` unless exactly one of
    ``program`` and ``target`` is set, and for a ``profile`` with a file, if the program is the only one (``alone``).
    """
    if program is not None and target is not None:
        message = f"{program!r} and --target {target} both select a program"
        raise UsageError(message, where="--target", hint="use only one of them")
    name = program if target is None else target
    if name is None:
        raise UsageError(
            "Missing argument 'FILE|TARGET'.", hint="add the path of a .pte file, or the name of a built target"
        )
    found = find_program(name, config, data, is_target=target is not None, profile=profile)
    if alone:
        refuse_unused_profile(profile, found)
    return found


def refuse_unused_profile(profile: str | None, *programs: NamedProgram | Against) -> None:
    """Raise :class:`~etdev.errors.UsageError` for a profile if all programs are files, which have no project."""
    if profile is not None and all(program.project is None for program in programs):
        names = " and ".join(repr(str(program.file)) for program in programs)
        message = f"a profile is for targets, but {names} {'is a file' if len(programs) == 1 else 'are files'}"
        raise UsageError(message, where="--profile", hint="remove `--profile`, or name a target")


def find_program(
    name: str,
    config: Path | None,
    data: Sequence[Path] | None = None,
    *,
    is_target: bool = False,
    profile: str | None = None,
) -> NamedProgram:
    """Return the file or target with this name, and its data files.

    ``data`` replaces the data files that etdev knows for the target or file. A glob must match exactly one target. If a
    target and a file have the same name, return the target if ``config`` or ``profile`` is set, else the file. With
    ``is_target``, return only a target. The config is read with ``profile``.

    Print a note on stderr if code or weights changed since the target was built, or if the build overrode keys of the
    config. Raises :class:`~etdev.errors.UsageError` for a target that does not exist or is not built yet.
    """
    path, given = Path(name), tuple(data or ())
    is_file = not is_target and (path.suffix == ".pte" or (path.exists() and not path.is_dir()))
    if config is None and is_file and (profile is None or path.suffix == ".pte"):
        return _named_file(path, given)
    if config is None and not is_file:
        require_config(name)
    from etdev.pipeline.api import open_project

    project = open_project(config, profile=profile)
    if name not in project.config.targets and is_file:
        return _named_file(path, given)
    name = _one_target(name, project.config.targets)
    built = project.artifact(name)
    if not built.is_file():
        from etdev.pipeline.project.commands import build_command

        hint = f"run `{build_command(project, name)}`"
        raise UsageError(f"the target {name!r} was not built: there is no {built}", hint=hint)
    from etdev.pipeline.project.places import data_places

    _note_differences(project, name)
    return NamedProgram(_shown(built), given or data_places(project, name), project, name)


def _note_differences(project: Project, target: str) -> None:
    """Print a note if the build overrode settings of the config, and a note if files changed since the build."""
    from etdev.cli.rendering.output import note
    from etdev.cli.rendering.verdict import override_texts
    from etdev.pipeline.project.commands import build_command
    from etdev.pipeline.project.places import report_place
    from etdev.pipeline.results.report import find_report
    from etdev.pipeline.since_built import altered_file, since_built

    report = find_report(report_place(project, target))
    if report is not None:
        texts = [text for built in report.targets for text in override_texts(report, built)]
        if texts:
            note(f"{target}: it was built with settings that are not from the config: {', '.join(texts)}")
        for built in report.targets:
            if built.name == target and (change := altered_file(project, built)) is not None:
                again = f"run `{build_command(project, target)}` to build it again"
                note(f"{target}: its file is not the one that the build wrote: {change}: {again}")
    said = since_built(project, target, settings=False).said
    if said is not None:
        note(f"{target}: {said}")


def _named_file(path: Path, given: tuple[Path, ...]) -> NamedProgram:
    from etdev.inspection.provenance import known_data

    return NamedProgram(path, given or known_data(path), None, None)


def _one_target(name: str, targets: Collection[str]) -> str:
    """Return the only target that matches a name or a glob. Raise an error if no target or several targets match."""
    from etdev.config.keys import nearest

    found = [name] if name in targets else [target for target in targets if fnmatchcase(target, name)]
    if len(found) > 1:
        raise UsageError(
            f"{name!r} matches {', '.join(found)}, but this command takes one target", hint="use the name of one target"
        )
    if not found:
        near = nearest(name, targets)
        others = f"the targets are {', '.join(targets)}"
        raise UsageError(f"there is no target {name!r}", hint=f"did you mean {near!r}? {others}" if near else others)
    return found[0]


def _shown(path: Path) -> Path:
    """Return a path for messages: relative to the working folder if the path is inside that folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def require_config(name: str) -> None:
    """Raise :class:`~etdev.errors.UsageError` if this folder has no config that can define a target ``name``."""
    from etdev.config.parsing.config_files import has_config

    if not has_config(Path.cwd()):
        raise UsageError(
            f"{name!r} is not a file, and cannot be a target because this folder has no config",
            hint="use the path of a .pte file, or set the config with -c",
        )


def check_runtime(name: str | None) -> RuntimeName | None:
    """Return ``name`` unchanged. Raises :class:`~etdev.errors.UsageError` if no runtime has this name."""
    if name is not None and name not in RUNTIME_PHRASES:
        raise UsageError(
            f"there is no runtime {name!r}", where="--runtime", hint=f"use one of: {', '.join(RUNTIME_PHRASES)}"
        )
    return cast("RuntimeName | None", name)


def native_libraries(
    given: Sequence[Path] | None, runtime: RuntimeName | None, project: Project | None
) -> tuple[Path, ...]:
    """Return the libraries that the native runtime opens: those of the project's config, and the ``given`` ones.

    Raises :class:`~etdev.errors.UsageError` if libraries are given for another runtime.
    """
    if runtime != "native":
        if given:
            message = "only the native runtime opens native libraries"
            raise UsageError(message, where="--native-library", hint="add `--runtime native`")
        return ()
    if project is None:
        return tuple(given or ())
    from etdev.pipeline.project.places import native_library_places

    return (*native_library_places(project), *(given or ()))


def check_transport(name: str | None) -> str:
    """Return ``name``, or ``process`` if ``name`` is None.

    Raises :class:`~etdev.errors.UsageError` if no transport has this name.
    """
    known = plugins.names(WORKER_TRANSPORTS)
    if name is not None and name not in known:
        raise UsageError(f"there is no transport {name!r}", where="--transport", hint=f"use one of: {', '.join(known)}")
    return name or "process"


def is_worker_count(text: str) -> bool:
    """Return True if the text is a valid number of workers."""
    return text.isascii() and text.isdigit() and 0 < int(text) <= MOST_WORKERS
