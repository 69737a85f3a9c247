"""The command ``etdev validate``, which checks configs and reports all of their problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.common import ConfigOption, OutputOption, ProfileOption, QuietOption, SetOption, VerboseOption
from etdev.cli.rendering.output import TEXT, Outputs, parse_outputs
from etdev.cli.rendering.text import count
from etdev.errors import ConfigError, ExitCode, Problem, UsageError

if TYPE_CHECKING:
    from etdev.cli.reports import Report
    from etdev.config.loader import LoadedConfig


def validate(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Config files, instead of --config.", show_default=False),
    ] = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Return exit code 2 also for a warning.")] = False,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Check configs, including all of their profiles. No code of the project runs.

    A file that does not exist yet causes a warning. So do a required check that cannot run, a limit `budget.ram` that
    cannot be measured on this machine, and float ops for a backend that takes only quantized ops. The exit code is 2
    if there is an error, or with --strict also if there is a warning. Formats of --output: text, json, github, sarif,
    md.
    """
    from etdev.backends.opening import open_config
    from etdev.backends.option_files import check_content, option_file_keys
    from etdev.cli.reports import ALL_FORMATS, error_report, refuse_config
    from etdev.config.references import check_references
    from etdev.pipeline.project.empty_inputs import empty_inputs
    from etdev.pipeline.project.float_targets import float_targets
    from etdev.pipeline.project.required_checks import unmeasured_limits, unrunnable_checks

    if files and config is not None:
        raise UsageError(
            "config files cannot be passed both as arguments and with --config",
            where="--config",
            hint="pass all files as arguments",
        )
    outputs = parse_outputs(output, allowed=ALL_FORMATS)
    opened: list[LoadedConfig] = []
    summaries: list[str] = []
    problems: dict[Problem, None] = {}  # A mapping, to avoid duplicates, because configs may share a file.
    warnings: dict[Problem, None] = {}
    wanted = files or (config,)
    for file in wanted:
        refuse_config(outputs, file)
    for file in wanted:
        try:
            opened.append(open_config(file, profile=profile, overrides=overrides))
        except ConfigError as error:
            problems |= dict.fromkeys(error.problems)
            continue
        found = check_references(opened[-1], option_file_keys(opened[-1]))
        problems |= dict.fromkeys((*found.wrong, *check_content(opened[-1])))
        own = dict.fromkeys(found.absent)
        for check in (unrunnable_checks, unmeasured_limits, float_targets, empty_inputs):
            own |= dict.fromkeys(check(opened[-1]))
        warnings |= own
        summaries.append(_summary(opened[-1], len(own), strict=strict))
    if problems:
        wrong = ConfigError(tuple(problems))
        return _report(wrong, error_report(wrong, "validate"), outputs)
    refused = strict and bool(warnings)
    shown = [] if quiet and not refused else summaries
    report = _good(summaries, warnings, opened[0].name)
    _write(outputs, report, (), lambda: _text(shown, tuple(warnings)), tuple(warnings))
    return ExitCode.CONFIG if refused else ExitCode.DONE


def _good(summaries: Sequence[str], warnings: Iterable[Problem], about: str) -> Report:
    """Return the report on configs without errors, which may have warnings."""
    from etdev.cli.reports import Report
    from etdev.cli.reports.findings import of_problems
    from etdev.cli.reports.markdown import findings_table, prose

    findings = of_problems(warnings, "warning")
    headings = [f"### {prose(summary)}" for summary in summaries]
    return Report(findings, lambda: "\n\n".join([*headings, *findings_table(findings)]) + "\n", about)


def _text(summaries: Sequence[str], warnings: Sequence[Problem]) -> str:
    from etdev.config.diagnostics import as_warnings

    return "".join(f"{summary}\n" for summary in summaries) + as_warnings(warnings)


def _report(error: ConfigError, report: Report, outputs: Outputs) -> int:
    """Write all requested outputs, except text for the terminal. If that text was requested, raise the error.

    The command line then prints the error on stderr.
    """
    from etdev.config.diagnostics import as_text

    on_terminal = [item for item in outputs.items if item.path is None and item.format == TEXT]
    elsewhere = Outputs(tuple(item for item in outputs.items if item not in on_terminal))
    _write(elsewhere, report, error.problems, partial(as_text, error.problems))
    if on_terminal:
        raise error
    return error.exit_code


def _write(
    outputs: Outputs,
    report: Report,
    problems: Sequence[Problem],
    text: Callable[[], str],
    warnings: Sequence[Problem] = (),
) -> None:
    from etdev.cli.reports import write_report
    from etdev.config.diagnostics import as_json

    write_report(outputs, report, {TEXT: text, "json": partial(as_json, problems, warnings)})


def _summary(loaded: LoadedConfig, warnings: int, *, strict: bool) -> str:
    config = loaded.config
    verdict = [] if strict and warnings else ["ok"]
    verdict += [count(warnings, "warning")] if warnings else []
    counts = (("target", config.targets), ("method", config.methods), ("profile", config.profiles))
    listed = ", ".join(f"{len(items)} {name}{'' if len(items) == 1 else 's'}" for name, items in counts)
    return f"{loaded.name}: {', '.join(verdict)} ({listed})"
