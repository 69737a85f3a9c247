"""E2: what commands report to CI systems: annotations, SARIF and Markdown over one list of findings."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cli.test_render import GOOD_RUNTIME, RESULT, answer, checks, target
from etdev import errors
from etdev.cli import app
from etdev.cli.rendering.build_result import render_result
from etdev.cli.rendering.detail import Detail
from etdev.cli.reports import findings as found_in
from etdev.cli.reports import markdown
from etdev.cli.reports.findings import Finding, at
from etdev.cli.reports.github import MOST_ANNOTATIONS, as_github
from etdev.cli.reports.places import Places
from etdev.cli.reports.rules import RULES
from etdev.cli.reports.sarif import as_sarif
from etdev.config import issues
from etdev.config.check_names import BUILT_IN
from etdev.errors import ConfigError, EtdevError, LinkError, Problem, StageError, UsageError
from etdev.pipeline.cache.lock import LockStaleError
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.never_ran import never_ran
from etdev.pipeline.results.result import BuildResult, CheckResult, Failure, outcome
from etdev.program import write
from support.files import chain
from support.projects import LINEAR_CONFIG, write_project
from support.reports import write_report

HERE = Places(Path("/work"), Path("/work"))
FINDINGS = (
    Finding("wrong-value", "`a` is 100%\nwrong", "error", "sub folder/x,y.toml", 3, 5, "a", "fix: it"),
    Finding("unknown-key", "unknown key `b`", source="--set b=1", key="b"),
    Finding("file", "there is no config", hint="`etdev init`"),
    Finding("budget", "elsewhere", "warning", "/abs/é.toml", 1, key="c.d"),
    Finding("not-judged", "later", "note"),
)


# Workflow commands.


def test_github_commands_are_escaped() -> None:
    assert as_github(FINDINGS, HERE, summary=False) == (
        "::error file=sub folder/x%2Cy.toml,line=3,col=5,title=etdev%3A wrong-value::"
        "`a` is 100%25%0Awrong%0Ahelp: fix: it\n"
        "::error title=etdev%3A unknown-key::--set b=1: unknown key `b`\n"
        "::error title=etdev%3A file::there is no config%0Ahelp: `etdev init`\n"
        "::warning file=/abs/é.toml,line=1,title=etdev%3A budget::elsewhere\n"
        "::notice title=etdev%3A not-judged::later\n"
    )


@given(message=st.text(), source=st.text(), hint=st.none() | st.text())
def test_no_text_of_a_finding_ends_its_command(message: str, source: str, hint: str | None) -> None:
    """Names out of files may hold anything: line ends, and what begins another command."""
    text = as_github([Finding("file", message, source=source, line=1, hint=hint)], HERE, summary=False)

    assert text.endswith("\n")
    assert not set(text[:-1]) & set("\n\r")
    properties = text.split("::")[1].partition(" ")[2]
    assert [part.partition("=")[0] for part in properties.split(",")] == ["file", "line", "title"]


@pytest.mark.parametrize("number", [0, 1, MOST_ANNOTATIONS, MOST_ANNOTATIONS + 1, 50])
@pytest.mark.parametrize("summary", [False, True])
def test_at_most_ten_annotations(number: int, summary: bool) -> None:
    lines = as_github([Finding("budget", str(index)) for index in range(number)], HERE, summary=summary).splitlines()

    assert len(lines) == min(number, MOST_ANNOTATIONS)
    if number > MOST_ANNOTATIONS:
        place = "in the summary of this step" if summary else "see `--output text`"
        assert lines[-1] == f"::error title=etdev::{number - MOST_ANNOTATIONS + 1} more findings: {place}"


def test_places_are_those_of_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job may work in a folder of it."""
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path / "models")

    inside = Places.here({"GITHUB_WORKSPACE": str(tmp_path)})
    assert str(inside.path("etdev.toml")) == "models/etdev.toml"
    assert str(inside.path("../a b.toml")) == "a b.toml"
    assert inside.uri("../a b.toml") == "a%20b.toml"
    for environ in ({}, {"GITHUB_WORKSPACE": "/elsewhere"}):
        assert str(Places.here(environ).path("etdev.toml")) == "etdev.toml"


# SARIF.

# The parts of sarif-schema-2.1.0.json that the log uses, with its own required keys and types.
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name"],
                                "properties": {
                                    "rules": {"type": "array", "uniqueItems": True, "items": {"required": ["id"]}}
                                },
                            }
                        },
                    },
                    "results": {
                        "type": "array",
                        "items": {
                            "required": ["message"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "ruleIndex": {"type": "integer", "minimum": 0},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"]},
                                "locations": {
                                    "items": {
                                        "minProperties": 1,
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "properties": {"uri": {"pattern": r"^[!-~]+$"}}
                                                    },
                                                    "region": {
                                                        "properties": {
                                                            "startLine": {"type": "integer", "minimum": 1},
                                                            "startColumn": {"type": "integer", "minimum": 1},
                                                        }
                                                    },
                                                },
                                            }
                                        },
                                    }
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def test_sarif() -> None:
    log = json.loads(as_sarif(FINDINGS, HERE))
    jsonschema.validate(log, SARIF)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [finding.rule for finding in FINDINGS]
    assert [result["level"] for result in run["results"]] == [finding.level for finding in FINDINGS]
    assert uris(log) == ["sub%20folder/x%2Cy.toml", "file:///abs/%C3%A9.toml"]
    assert json.loads(as_sarif((), HERE))["runs"][0]["results"] == []


def test_a_finding_without_a_place_is_about_the_config() -> None:
    """Code scanning drops results without a location."""
    log = json.loads(as_sarif(FINDINGS, HERE, about="etdev.toml"))
    jsonschema.validate(log, SARIF)
    assert uris(log).count("etdev.toml") == 3


def uris(log: Any) -> list[str]:
    return [
        location["physicalLocation"]["artifactLocation"]["uri"]
        for result in log["runs"][0]["results"]
        for location in result.get("locations", [])
        if "physicalLocation" in location
    ]


def test_every_rule_has_a_description(repository: Path) -> None:
    """And stands in the docs: code scanners keep the identifiers."""
    stages = {kind.rule for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, StageError)}
    config = {value for name, value in vars(issues).items() if name.isupper() and isinstance(value, str)}
    assert (stages | config | set(BUILT_IN)) - set(RULES) == set()
    docs = (repository / "docs" / "ci.md").read_text(encoding="utf-8")
    assert [rule for rule, text in RULES.items() if f"| `{rule}` | {text} |" not in docs] == []


# Where findings come from.


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (None, (None, None, None, "")),
        ("etdev.toml:3:9 (model.entry)", ("etdev.toml", 3, 9, "model.entry")),
        ("a b/etdev.toml:3:9", ("a b/etdev.toml", 3, 9, "")),
        ("model.py:31", ("model.py", 31, None, "")),
        ("x:1:2:3", ("x:1", 2, 3, "")),
        ("build/x.pte", ("build/x.pte", None, None, "")),
        ("--set a.b=1:2 (a.b)", ("--set a.b=1", 2, None, "a.b")),
        ("method 'forward', instruction 3", ("method 'forward', instruction 3", None, None, "")),
    ],
)
def test_places_of_errors(where: str | None, expected: tuple[object, ...]) -> None:
    found = at(Finding("usage", "x"), where)
    assert (found.source, found.line, found.column, found.key) == expected


@pytest.mark.parametrize(
    ("error", "rule"),
    [
        (UsageError("x"), "usage"),
        (LinkError("x"), "link"),
        (errors.MissingRequirementError("x"), "environment"),
        (errors.UnlinkableError("x"), "program"),
        (LockStaleError("x"), "lock"),
        (EtdevError("x"), "build"),
    ],
)
def test_rules_of_errors(error: EtdevError, rule: str) -> None:
    (found,) = found_in.of_error(error)
    assert (found.rule, found.message) == (rule, "x")


def test_a_config_error_is_all_of_its_problems() -> None:
    error = ConfigError((Problem("a", "b", "c", 1, 2, "d", "duplicate"), Problem("e", "f")))
    assert [finding.message for finding in found_in.of_error(error)] == ["a", "e"]
    assert found_in.of_error(error)[0] == Finding("duplicate", "a", "error", "c", 1, 2, "b", "d")


def judged(**changes: Any) -> BuildResult:
    """The first target of the golden result, with another check."""
    (first, *_) = RESULT.targets
    check = CheckResult(**{"name": "budget", "status": "failed", "summary": "x", **changes})
    checks = tuple(check if item.name == check.name else item for item in first.checks)
    target = first.model_copy(update={"checks": checks, "status": outcome(checks)})
    return RESULT.model_copy(update={"targets": (target,)})


def test_each_limit_is_a_finding_at_its_own_place() -> None:
    failures = (
        Failure(message="a", where="etdev.toml:3:4 (targets.portable.budget.file)", hint="b"),
        Failure(message="c", where="etdev.toml:5:6 (targets.portable.budget.memory)", hint="d"),
    )
    found = found_in.of_result(judged(gate=True, problems=("a", "c"), failures=failures, where="all", hint="all"))

    assert [(item.rule, item.message, item.line, item.hint) for item in found] == [
        ("budget", "target 'portable': a", 3, "b"),
        ("budget", "target 'portable': c", 5, "d"),
    ]


@pytest.mark.parametrize(("check", "level"), [("growth", "note"), ("latency", "warning")])
def test_a_limit_that_is_not_judged_is_pointed_out(check: str, level: str) -> None:
    where = f"etdev.toml:7:1 (targets.portable.budget.{check})"
    (found,) = found_in.of_result(judged(name=check, status="not run", summary="no reason", unjudged=where))

    assert (found.rule, found.level, found.line) == ("not-judged", level, 7)
    assert found.message == f"target 'portable': {check} was not checked: no reason"


def test_findings_of_all_targets() -> None:
    """What failed, what was required and did not run, and programs that nothing ran; no check that is not required."""
    found = found_in.of_result(RESULT)
    failed = sum(len(r.problems) for t in RESULT.targets for r in t.checks if r.status == "failed")
    unmet = sum(len(target.unmet) for target in RESULT.targets)

    assert failed
    assert unmet
    never = [target for target in RESULT.targets if never_ran(target)]
    assert len(never) == 3
    assert len(found) == failed + unmet + len(never)
    assert {item.rule for item in found} <= set(RULES)


# Markdown.


@given(st.text(), st.text())
@example("", "\\|")
@example("`a\\|b`", "")
@example("`a\\\\|b`", "`\\|`")
def test_a_row_stays_a_row(message: str, source: str) -> None:
    lines = markdown.findings_table([Finding("file", message, source=source or "x", hint=message)])[0].split("\n")

    assert len(lines) == 3
    unescaped = lines[2].replace("\\\\", "").replace("\\|", "")
    assert unescaped.count("|") == 4
    assert not set(lines[2]) & set("\r\v\f\x1c\x85\u2028")


def test_only_code_is_markup() -> None:
    text = markdown.prose("`a.b_c|d` is *not* <b>, see @someone and [x](y) or `unfinished")
    assert text == (r"`a.b_c\|d` is \*not\* \<b\>, see \@someone and \[x\](y) or \`unfinished")


def test_the_report_of_a_build() -> None:
    text = markdown.of_result(RESULT, found_in.of_result(RESULT))
    title, _, rows = text.partition("\n\n")

    assert title.startswith("### etdev: digits, ")
    assert rows.startswith("| target | result | file | memory | copies in a call | delegated |\n")
    for built in RESULT.targets:
        assert f"| `{built.name}` | " in rows
        assert f"<summary><code>{built.name}</code></summary>" in rows


def test_the_report_of_a_build_has_the_verdict_of_the_terminal() -> None:
    text = markdown.of_result(RESULT, [])
    last = render_result(RESULT, Detail.LINE, io.StringIO()).splitlines()[-1]

    assert text.splitlines()[0] == f"### etdev: {last.replace(': ', ', ', 1)}"
    assert "| `unmet` | **without a required check (device)** | " in text
    assert "| `several-methods` | **missed a gate (runtime)** | " in text


def test_a_limit_that_was_not_compared_is_in_the_report_of_a_build() -> None:
    ram = answer("budget", "not run", summary="budget.ram: no CMake was found", unjudged="etdev.toml:9:1")
    found = target("cpu", checks(runtime=GOOD_RUNTIME, budget=ram))
    verdict = "good except for a limit that was not compared (budget)"
    text = markdown.of_result(RESULT.model_copy(update={"targets": (found,)}), [])

    assert text.startswith(f"### etdev: digits, 1 target, 1 {verdict}\n")
    assert f"| `cpu` | {verdict} | " in text


def test_overrides_are_in_the_report_of_a_build() -> None:
    """The report on a trial must not pass for that of the config."""
    portable, gpu = markdown.of_result(RESULT, []).split("<summary>")[1:3]

    assert '* set: `methods.forward.samples = "data:few"`\n' in portable
    assert '* set: `targets.portable.memory.planner = "naive"`\n' in portable
    assert [line for line in gpu.splitlines() if "targets." in line] == ["* set: `targets.gpu.budget.copies = 7`"]


def test_the_memory_of_banks_is_in_the_report_of_a_build(tmp_path: Path) -> None:
    write(chain(1), tmp_path / "m.pte")
    figures = Figures(file=1, weights=0, memory={"cpu": 3072}, banks={"dtcm": 2048, "sram": 1024}, copies=0)
    text = markdown.of_result(write_report(tmp_path / "m.pte", figures=figures), [])
    assert "| cpu 3.00 KiB, bank dtcm 2.00 KiB, bank sram 1.00 KiB |" in text


# The commands.

Etdev = Callable[..., tuple[int, str, str]]


@pytest.fixture
def etdev(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Etdev:
    """Run the command line in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = app.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize("command", ["validate", "build", "verify"])
def test_a_broken_config_reaches_every_format(command: str, etdev: Etdev, tmp_path: Path) -> None:
    write_project(tmp_path, LINEAR_CONFIG + "[targets.cpu]\nbudgt.file = 1\n")

    code, out, err = etdev(
        command,
        "--output",
        "github",
        "--output",
        "sarif=out/log.sarif",
        "--output",
        "md=out/log.md",
        "--output",
        "text=-",
    )

    assert code == 2
    assert out.startswith(
        "::error file=etdev.toml,line=9,col=1,title=etdev%3A unknown-key::unknown key `targets.cpu.budgt`"
    )
    assert err.startswith("error: etdev.toml:9:1: unknown key")
    log = json.loads(Path("out/log.sarif").read_text())
    jsonschema.validate(log, SARIF)
    assert uris(log) == ["etdev.toml"]
    assert Path("out/log.md").read_text().startswith(f"### `etdev {command}` failed\n\n|  | where | what |\n")


@pytest.mark.parametrize("command", ["build", "verify"])
def test_an_error_of_a_stage_reaches_every_format(command: str, etdev: Etdev, tmp_path: Path) -> None:
    write_project(tmp_path, LINEAR_CONFIG + "[targets.cpu]\n")

    code, out, err = etdev(command, *(("--dry-run",) if command == "build" else ()), "--output", "github")

    assert code == (2 if command == "build" else 4)
    assert out.startswith("::error ")
    assert "title=etdev%3A load::" in out
    assert err.removeprefix("verifying cpu\n").startswith("error: ")


def test_a_report_that_cannot_be_written_hides_no_error(etdev: Etdev, tmp_path: Path) -> None:
    write_project(tmp_path, LINEAR_CONFIG + "[targets.cpu]\n")
    Path("file").write_text("")

    code, out, err = etdev("verify", "--output", "sarif=file/log.sarif")

    assert (code, out) == (4, "")
    assert "error: file/log.sarif: " in err
    assert "error: target 'cpu' has no artifact: " in err


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("etdev.toml", ""),
        ("below.toml", ""),
        ("build/cpu/report.json", ""),
        ("etdev.toml", "nope = 1\n"),
        ("below.toml", "nope = 1\n"),
    ],
)
def test_no_report_takes_the_place_of_the_projects_files(name: str, broken: str, etdev: Etdev, tmp_path: Path) -> None:
    (tmp_path / "build" / "cpu").mkdir(parents=True)
    (tmp_path / "build" / "cpu" / "report.json").write_text("a report")
    (tmp_path / "below.toml").write_text(broken)
    write_project(tmp_path, "extends = 'below.toml'\n" + LINEAR_CONFIG.replace("    ", "") + "[targets.cpu]\n")
    content = Path(name).read_bytes()

    code, out, err = etdev("build", "--output", f"sarif={name}")

    assert (code, out) == (2, "")
    assert "is a file that the command itself reads or writes" in err
    assert Path(name).read_bytes() == content


def test_the_summary_of_the_step_has_everything(etdev: Etdev, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    wrong = "".join(f"wrong_{index} = {index}\n" for index in range(20))
    write_project(tmp_path, LINEAR_CONFIG + "[targets.cpu]\n" + wrong)

    _, out, _ = etdev("validate", "--output", "github")

    assert len(out.splitlines()) == MOST_ANNOTATIONS
    assert out.splitlines()[-1] == "::error title=etdev::11 more findings: in the summary of this step"
    text = summary.read_text()
    assert text.startswith("before\n### `etdev validate` failed\n")
    assert text.count("| error | `etdev.toml:") == 20
    etdev("validate")
    assert summary.read_text() == text, "nobody asked for it"


@pytest.mark.integration
def test_files_without_a_config(etdev: Etdev) -> None:
    write(chain(1), "good.pte")
    Path("bad.pte").write_bytes(b"no program at all")

    code, out, _ = etdev("verify", "good.pte", "bad.pte", "--output", "github", "--output", "md=found.md")

    assert code == 4
    (line,) = out.splitlines()
    assert line.startswith("::error title=etdev%3A bytes::bad.pte: the file is malformed: ")
    text = Path("found.md").read_text()
    assert text.startswith("### etdev: 2 files, 1 good in all checks that ran, 1 rejected (bytes)\n")
    assert "| `bad.pte` | **rejected (bytes)** | 17 B |" in text
    assert "| `good.pte` | good in all checks that ran | " in text
