"""Findings as SARIF 2.1.0, the format of code scanners."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from etdev._version import __version__
from etdev.cli.rendering.text import escaped
from etdev.cli.reports.findings import Finding
from etdev.cli.reports.places import Places
from etdev.cli.reports.rules import RULES


def as_sarif(findings: Sequence[Finding], places: Places, *, about: str | None = None) -> str:
    """Return the findings as a SARIF log with one run.

    Findings without a file get the file ``about``, because scanners ignore findings without a file.
    """
    rules = sorted({finding.rule for finding in findings})
    driver = {
        "name": "etdev",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": RULES.get(rule, rule)}} for rule in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, rules.index(finding.rule), places, about) for finding in findings],
    }
    document = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _result(finding: Finding, rule_index: int, places: Places, about: str | None) -> dict[str, Any]:
    text = f"{finding.message} ({finding.hint})" if finding.hint else finding.message
    located = finding.line is not None and finding.source is not None
    if finding.source and not located:
        text = f"{finding.source}: {text}"
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.level,
        "message": {"text": escaped(text)},
    }
    location: dict[str, Any] = {}
    if located and finding.source is not None:
        column = {} if finding.column is None else {"startColumn": finding.column}
        region = {"startLine": finding.line, **column}
        location["physicalLocation"] = {"artifactLocation": {"uri": places.uri(finding.source)}, "region": region}
    elif about is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": places.uri(about)}}
    if finding.key:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.key}]
    return result | ({"locations": [location]} if location else {})
