"""``--output``: what it accepts, and where text and machine formats go."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.cli import app
from etdev.cli.rendering.output import Output, parse_outputs
from etdev.errors import UsageError
from support.projects import LINEAR, LINEAR_CONFIG, write_project

FORMATS = ("text", "json", "sarif")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (None, [Output("text", None)]),
        (["json"], [Output("json", None)]),
        (["json=-"], [Output("json", None)]),
        (["json=out/x=y.json"], [Output("json", Path("out/x=y.json")), Output("text", None)]),
        (["text", "json"], [Output("text", None), Output("json", None)]),
        (["json", "sarif=a"], [Output("json", None), Output("sarif", Path("a"))]),
    ],
)
def test_accepted(values: list[str] | None, expected: list[Output]) -> None:
    assert list(parse_outputs(values, allowed=FORMATS).items) == expected


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        (["xml"], "unknown format 'xml'", "use one of: text, json, sarif"),
        (["json="], "'json=' has no file name after `=`", "write `--output json=FILE`"),
        (["json", "sarif"], "json and sarif cannot both go to standard output", "`--output sarif=FILE`"),
        (["json=a", "sarif=a"], "two formats are written to the same file", "use another file"),
    ],
)
def test_refused(values: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_outputs(values, allowed=FORMATS)
    assert caught.value.message == message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("name", ["w.ptd", "new/m.pte", "m.etrecord"])
def test_a_report_has_no_name_of_a_product(name: str) -> None:
    """It would pass for one, and take the place of one that the command does not know of."""
    with pytest.raises(UsageError, match=rf"a report cannot be written to '{name}': the suffix"):
        parse_outputs([f"json={name}"], allowed=FORMATS).refuse()
    parse_outputs([f"json={name}.json"], allowed=FORMATS).refuse()


@pytest.mark.parametrize(
    "command", [("config", "show"), ("doctor",), ("cache", "why"), ("validate",), ("build",), ("verify",)], ids=" ".join
)
def test_no_command_writes_over_the_config(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_project(tmp_path, f"{LINEAR_CONFIG}[targets.cpu]\n", model=LINEAR)
    before = config.read_bytes()
    for options in ((), ("-c", "etdev.toml")):
        assert app.run([*command, *options, "--output", "json=./etdev.toml"]) == 2
        assert "'etdev.toml' is a file that the command itself reads or writes" in capfd.readouterr().err
    assert config.read_bytes() == before


def test_a_command_without_text_shows_none() -> None:
    assert parse_outputs(["json=a"], allowed=("json",)).items == (Output("json", Path("a")),)


def test_a_machine_format_has_stdout_to_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "out.sarif"
    outputs = parse_outputs(["json", "text", f"sarif={file}"], allowed=FORMATS)
    outputs.write({"text": lambda: "for people", "json": lambda: "{}\n", "sarif": lambda: "[]"})

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("{}\n", "for people\n")
    assert file.read_text() == "[]\n"


def test_text_alone_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    parse_outputs(None, allowed=FORMATS).write({"text": lambda: "for people"})
    assert capsys.readouterr().out == "for people\n"
