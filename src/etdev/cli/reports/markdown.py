"""Markdown reports, for comments on a pull request and for the summary of a CI run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from etdev.cli.rendering.text import escaped, printable
from etdev.cli.rendering.verdict import describe_files, describe_verdict, file_verdict, override_texts
from etdev.cli.reports.findings import Finding
from etdev.pipeline.results.verdict import target_verdict
from etdev.units import format_share, format_size

if TYPE_CHECKING:
    from etdev.pipeline.results.file_result import FileResult, FilesResult
    from etdev.pipeline.results.result import BuildResult, CheckResult, TargetResult

_CODE = re.compile(r"(`[^`\n]+`)")
_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~#@])")
_MOST_FINDINGS = 50


def prose(text: str) -> str:
    """Return a message as Markdown for a table or a line; keep code in backquotes, and escape other markup."""
    parts = _CODE.split(" ".join(escaped(text).split("\n")))
    return "".join(_in_a_cell(part) if at % 2 else _plain(part) for at, part in enumerate(parts))


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _in_a_cell(span: str) -> str:
    """Return code as Markdown for a cell of a table.

    Markdown splits a row at bars that are not escaped, before it looks for code. A bar after a backslash cannot be
    escaped, so code with such a bar becomes plain text.
    """
    return _plain(span) if "\\|" in span else span.replace("|", "\\|")


def code(text: str) -> str:
    """Return a name as code in Markdown."""
    shown = printable(text)
    fence = "``" if "`" in shown else "`"
    pad = " " if fence == "``" else ""
    return _in_a_cell(f"{fence}{pad}{shown}{pad}{fence}")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the cells must be Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def details(summary: str, blocks: Iterable[str]) -> str:
    """Return Markdown blocks that are folded under a summary. A click on the summary shows the blocks."""
    return "\n\n".join([f"<details><summary>{summary}</summary>", *blocks, "</details>"])


def findings_table(findings: Sequence[Finding]) -> list[str]:
    """Return a list with one table, which has a row for each finding. Without findings, the list is empty."""
    if not findings:
        return []
    rows = [
        (
            item.level,
            code(_place(item)) if item.source else "",
            prose(item.message) + (f"<br>{prose(item.hint)}" if item.hint else ""),
        )
        for item in findings[:_MOST_FINDINGS]
    ]
    rest = len(findings) - len(rows)
    return [table(("", "where", "what"), rows), *([f"and {rest:,} more"] if rest else [])]


def of_findings(heading: str, findings: Sequence[Finding]) -> str:
    """Return a Markdown report that has only a heading and findings."""
    return "\n\n".join([f"### {heading}", *findings_table(findings)]) + "\n"


def of_result(result: BuildResult, findings: Sequence[Finding]) -> str:
    """Return the report of a build or a verification: verdict, figures of each target, findings, checks."""
    missing = [*(target.name for target in result.failed), *result.not_built]
    blocks = [f"### etdev: {prose(result.project)}, {prose(describe_verdict(result))}"]
    head = ("target", "result", "file", "memory", "copies in a call", "delegated")
    rows = [*map(_target_row, result.targets), *((code(name), "not built", "", "", "", "") for name in missing)]
    blocks.append(table(head, rows))
    blocks += findings_table(findings)
    for target in result.targets:
        lines = [f"* set: {code(text)}" for text in override_texts(result, target)]
        lines += [*_check_lines(target.checks), *(f"* note: {prose(note)}" for note in target.notes)]
        blocks.append(details(code_html(target.name), ["\n".join(lines)]))
    blocks += [f"note: {prose(note)}" for note in result.notes]
    return "\n\n".join(blocks) + "\n"


def of_files(result: FilesResult, findings: Sequence[Finding]) -> str:
    """Return the report on files that were verified without a config."""
    blocks = [f"### etdev: {prose(describe_files(result))}"]
    rows = [(code(file.file), _file_status(file), format_size(file.size)) for file in result.files]
    blocks.append(table(("file", "result", "size"), rows))
    blocks += findings_table(findings)
    blocks += [details(code_html(file.file), ["\n".join(_check_lines(file.checks))]) for file in result.files]
    blocks += [f"note: {prose(note)}" for note in result.notes]
    return "\n\n".join(blocks) + "\n"


def code_html(text: str) -> str:
    """Return a name as code in HTML, for places where Markdown is not interpreted, such as ``<summary>``."""
    shown = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return f"<code>{shown}</code>"


def _target_row(target: TargetResult) -> tuple[str, ...]:
    figures = target.figures
    verdict = prose(target_verdict(target))
    status = f"**{verdict}**" if target.exit_code else verdict
    if target.unmet and target.status != "built":
        status += ", a required check did not run"
    if figures is None:
        return code(target.name), status, format_size(target.size), "", "", ""
    banks = {f"bank {prose(name)}": size for name, size in (figures.banks or {}).items()}
    memory = ", ".join(f"{place} {format_size(size)}" for place, size in {**figures.memory, **banks}.items())
    share = "" if figures.delegated is None else format_share(figures.delegated)
    return code(target.name), status, format_size(figures.file), memory, format_size(figures.copies), share


def _file_status(file: FileResult) -> str:
    verdict = prose(file_verdict(file))
    return f"**{verdict}**" if file.status == "rejected" or file.unmet else verdict


def _check_lines(checks: Sequence[CheckResult]) -> Iterator[str]:
    """Yield a line for each check that ran, then a line for each reason why checks did not run."""
    for check in checks:
        if check.status != "not run":
            yield f"* {check.name}: {check.status}, {prose(check.summary)}"
    for reason in Counter(check.summary for check in checks if check.status == "not run"):
        names = ", ".join(check.name for check in checks if check.status == "not run" and check.summary == reason)
        yield f"* not run: {names}: {prose(reason)}"


def _place(finding: Finding) -> str:
    parts = (finding.source, finding.line, finding.column)
    return ":".join(str(part) for part in parts if part is not None)
