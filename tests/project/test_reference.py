"""Pages of docs/ that are generated, and hand-written tables that list what the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docsite.generated import generated
from etdev.cli.app import Commands
from etdev.errors import ExitCode
from etdev.program import write
from support.files import chain

jsonschema = pytest.importorskip("jsonschema")


def test_generated_pages_are_current(repository: Path) -> None:
    for name, text in generated().items():
        assert (repository / "docs" / name).read_text(encoding="utf-8") == text, f"docs/{name}: run `make docs`"


def test_every_command_is_in_the_readme(repository: Path) -> None:
    table = (repository / "README.md").read_text(encoding="utf-8").partition("## Commands")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `etdev ([a-z]+)", table, re.MULTILINE))
    assert named == set(Commands.entries)


def test_every_exit_code_is_documented(repository: Path) -> None:
    table = (
        (repository / "docs" / "ci.md").read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    )
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted(ExitCode)


def test_schemas_are_schemas_and_describe_what_is_written(repository: Path, tmp_path: Path) -> None:
    from etdev.inspection.inspect import inspect

    schemas = {path.name: json.loads(path.read_text()) for path in (repository / "docs" / "schemas").glob("*.json")}
    assert {f"{name}.schema.json" for name in ("report", "program", "manifest", "lock")} == schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    write(chain(3), tmp_path / "a.pte")
    jsonschema.validate(json.loads(inspect(tmp_path / "a.pte").to_json()), schemas["program.schema.json"])
