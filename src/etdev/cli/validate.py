"""``etdev validate``: check a config, and say everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from etdev.cli.common import ConfigOption, OutputOption, ProfileOption, QuietOption, SetOption, VerboseOption
from etdev.cli.output import TEXT, Outputs, parse_outputs
from etdev.errors import ConfigError, ExitCode, Problem

if TYPE_CHECKING:
    from etdev.cli.reports import Report
    from etdev.config.loader import LoadedConfig


def validate(
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    output: OutputOption = None,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> int:
    """Check a config, with all of its profiles, without running any code that it names.

    Exit code 2 when something is wrong. Formats of --output: text, json, github, sarif, md.
    """
    from etdev.backends.opening import open_config
    from etdev.cli.reports import ALL_FORMATS, Report, error_report, refuse_config
    from etdev.cli.reports.markdown import prose

    outputs = parse_outputs(output, allowed=ALL_FORMATS)
    refuse_config(outputs, config)
    try:
        loaded = open_config(config, profile=profile, overrides=overrides)
    except ConfigError as error:
        return _report(error, error_report(error, "validate"), outputs)
    outputs.refuse(*loaded.files)
    summary = _summary(loaded)
    report = Report((), lambda: f"### {prose(summary)}\n", loaded.name)
    _write(outputs, report, (), lambda: "" if quiet else summary)
    return ExitCode.DONE


def _report(error: ConfigError, report: Report, outputs: Outputs) -> int:
    """Write what was asked for; text for the terminal is what any command prints for this error, on stderr."""
    from etdev.config.diagnostics import as_text

    on_terminal = [item for item in outputs.items if item.path is None and item.format == TEXT]
    elsewhere = Outputs(tuple(item for item in outputs.items if item not in on_terminal))
    _write(elsewhere, report, error.problems, partial(as_text, error.problems))
    if on_terminal:
        raise error
    return error.exit_code


def _write(outputs: Outputs, report: Report, problems: tuple[Problem, ...], text: Callable[[], str]) -> None:
    from etdev.cli.reports import write_report
    from etdev.config.diagnostics import as_json

    write_report(outputs, report, {TEXT: text, "json": partial(as_json, problems)})


def _summary(loaded: LoadedConfig) -> str:
    config = loaded.config
    counts = (("target", config.targets), ("method", config.methods), ("profile", config.profiles))
    listed = ", ".join(f"{len(items)} {name}{'' if len(items) == 1 else 's'}" for name, items in counts)
    return f"{loaded.name}: ok ({listed})"
