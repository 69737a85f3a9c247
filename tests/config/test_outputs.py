"""E1: what ``validate``, ``config show``, ``config explain`` and ``schema`` write."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from config.support import FORMATS, MINIMAL, emit, load
from config.test_every_key import BASES, CASES, _apply
from etdev.cli import app
from etdev.config.describe.schema import json_schema
from etdev.config.diagnostics import as_json
from etdev.config.parsing.document import MAX_BYTES, MAX_DEPTH
from etdev.config.reference import reference
from etdev.config.types import TIME_UNITS, UNITS
from etdev.errors import Problem
from support import draws

PROBLEM = Problem("unknown key `b`", "b", "--set b=1", rule="unknown-key")


@pytest.fixture
def etdev(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Run the command line in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = app.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_json() -> None:
    document = json.loads(as_json((PROBLEM,)))
    assert document["format"] == 1
    assert document["problems"][0] == {
        "rule": "unknown-key",
        "message": "unknown key `b`",
        "hint": None,
        "key": "b",
        "source": "--set b=1",
        "line": None,
        "column": None,
    }


def test_validate(etdev: Any, tmp_path: Path) -> None:
    """E1: text on stderr, machine output alone on stdout, exit code 2."""
    assert etdev("validate")[0] == 2
    (tmp_path / "model.py").write_text("def make(): ...\n")
    (tmp_path / "etdev.toml").write_text(MINIMAL + "[profiles.a]\n[profiles.b]\n")
    assert etdev("validate") == (0, "etdev.toml: ok (1 target, 1 method, 2 profiles)\n", "")
    assert etdev("validate", "-q") == (0, "", "")
    assert etdev("validate", "--output", "github") == (0, "", "")
    assert etdev("validate", "--output", "json")[1] == as_json(())

    code, out, err = etdev("validate", "--set", "nope=1", "--output", "sarif=log.sarif", "--output", "text=log.txt")
    assert (code, out) == (2, "")
    assert err.startswith("error: --set nope=1: unknown key `nope`\n")
    assert json.loads(Path("log.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "unknown-key"
    assert Path("log.txt").read_text().startswith("--set nope=1: unknown key `nope`\n")

    code, out, err = etdev("validate", "-p", "c", "--output", "github")
    assert (code, err) == (2, "")
    assert out.startswith("::error title=etdev%3A reference::--profile c: there is no profile `c`")
    code, out, err = etdev("validate", "-p", "c", "--output", "json", "--output", "text")
    assert json.loads(out)["problems"][0]["key"] == "profiles"
    assert err.startswith("error: --profile c:")


def test_validate_asks_the_backends(etdev: Any, tmp_path: Path) -> None:
    text = MINIMAL + "[[targets.cpu.partitioners]]\nbackend = 'xnnpack'\noptions = { per_op_mod = true }\n"
    (tmp_path / "etdev.toml").write_text(text)
    code, _, err = etdev("validate")
    assert code == 2
    assert err.startswith("error: etdev.toml:9:13: unknown key `targets.cpu.partitioners[0].options.per_op_mod`\n")
    assert "did you mean `per_op_mode`?" in err


def test_validate_several_files(etdev: Any, tmp_path: Path) -> None:
    """As pre-commit calls it; a problem of a file that two configs extend is one problem."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "etdev.toml").write_text("extends = ['../base.toml']\n")
    base = tmp_path / "base.toml"
    base.write_text(MINIMAL)
    (tmp_path / "model.py").write_text("def make(): ...\n")
    files = ("a/etdev.toml", "b/etdev.toml")
    summaries = "".join(f"{file}: ok (1 target, 1 method, 0 profiles)\n" for file in files)
    assert etdev("validate", *files) == (0, summaries, "")

    base.write_text(MINIMAL + "nope = 1\n")
    (tmp_path / "a" / "etdev.toml").write_text("extends = ['../base.toml']\nversion = 2\n")
    code, out, _ = etdev("validate", *files, "--output", "json")
    found = [(problem["source"], problem["key"]) for problem in json.loads(out)["problems"]]
    assert (code, sorted(found)) == (2, [("a/etdev.toml", "version"), ("base.toml", "targets.cpu.nope")])

    code, _, err = etdev("validate", *files, "-c", "a/etdev.toml")
    assert (code, err.splitlines()[0]) == (
        2,
        "error: --config: config files cannot be passed both as arguments and with --config",
    )
    code, _, err = etdev("validate", *files, "--output", "md=b/etdev.toml")
    assert code == 2
    assert "is a file that the command itself reads or writes" in err


@pytest.mark.parametrize("broken", ["nope = 1\n", "[", ""], ids=["unknown key", "syntax", "right"])
@pytest.mark.parametrize("command", ["validate", "build"])
def test_no_output_replaces_what_a_config_extends(etdev: Any, tmp_path: Path, command: str, broken: str) -> None:
    """Whether the config is right or wrong, and whichever of its files is."""
    base = tmp_path / "base.toml"
    base.write_text(MINIMAL)
    (tmp_path / "middle.toml").write_text("extends = ['base.toml']\n")
    (tmp_path / "etdev.toml").write_text(f"extends = ['middle.toml', 'other.toml']\n{'nope = 1' if broken else ''}\n")
    (tmp_path / "other.toml").write_text(broken or "version = 1\n")
    for arguments in ([], ["-c", "etdev.toml"]):
        code, out, err = etdev(command, *arguments, "--output", "json=./base.toml")
        assert (code, out) == (2, "")
        assert err.startswith("error: --output: 'base.toml' is a file that the command itself reads or writes\n")
    assert base.read_text() == MINIMAL


def test_show(etdev: Any, tmp_path: Path) -> None:
    (tmp_path / "etdev.toml").write_text(MINIMAL + "budget.file = '1KiB'\n[profiles.ci]\nproject.out = 'dist'\n")
    code, out, err = etdev("config", "show", "-p", "ci", "--set", "project.name=x")
    assert (code, err) == (0, "")
    lines = {line[2:].split("  ")[0]: line.split() for line in out.splitlines() if not line.startswith("#")}
    assert out.startswith("# etdev.toml < profile ci < command line\n")
    assert lines["project.out"] == ["*", "project.out", '"dist"', "etdev.toml:9:15", "(profile)"]
    assert lines["project.name"] == ["*", "project.name", '"x"', "--set", "project.name=x"]
    assert lines["targets.cpu.budget.file"] == ["*", "targets.cpu.budget.file", "1024", "etdev.toml:7:15"]
    assert lines["model.trust"] == ["model.trust", "false", "default"]
    assert lines["model.hf"] == ["model.hf", "(not", "set)", "default"]

    code, out, _ = etdev("config", "show", "-p", "ci", "--output", "toml")
    assert tomllib.loads(out)["project"]["out"] == "dist"
    code, out, _ = etdev("config", "show", "--output", "json")
    document = json.loads(out)
    assert document["config"]["targets"]["cpu"]["budget"]["file"] == 1024
    budget = next(key for key in document["keys"] if key["key"] == "targets.cpu.budget.file")
    assert budget["origin"] == {"layer": "file", "source": "etdev.toml", "line": 7, "column": 15, "base": str(tmp_path)}


@pytest.mark.parametrize("base", BASES)
def test_the_effective_config_of_every_key_loads_to_itself(base: str, etdev: Any, tmp_path: Path) -> None:
    (tmp_path / "below.toml").write_text("")
    first = load(tmp_path, emit(BASES[base], "toml")[0])
    code, out, _ = etdev("config", "show", "--output", "toml")
    assert code == 0
    assert load(tmp_path, out).config == first.config


def test_show_only_what_was_changed(etdev: Any, tmp_path: Path) -> None:
    """Keys that have their default are left out, in text and in JSON; TOML is the complete config."""
    (tmp_path / "etdev.toml").write_text(MINIMAL)
    code, out, _ = etdev("config", "show", "--changed")
    stated = [line[2:].split()[0] for line in etdev("config", "show")[1].splitlines() if line.startswith("* ")]
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if not line.startswith("#")] == stated
    assert 0 < len(stated) < 20

    keys = json.loads(etdev("config", "show", "--changed", "--output", "json")[1])["keys"]
    assert [key["key"] for key in keys] == stated
    assert etdev("config", "show", "--changed", "--output", "toml")[0] == 2


def test_show_says_which_paths_belong_elsewhere(etdev: Any, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/below.toml").write_text("model.weights = 'w.safetensors'\n")
    (tmp_path / "etdev.toml").write_text("extends = 'sub/below.toml'\n" + MINIMAL)
    out = etdev("config", "show", "--output", "toml")[1]
    assert out.startswith(f'# model.weights = "w.safetensors" is relative to {tmp_path / "sub"}\n')


@pytest.mark.parametrize(
    ("setting", "is_path"),
    [
        ('targets.cpu.memory.planner = "planners:mine"', True),
        ('targets.cpu.memory.planner = "naive"', False),
        ('targets.cpu.verify.sessions = "data:sessions"', True),
        ('model.inputs = ["vocab.txt"]', True),
        ('targets.cpu.io.forward.inputs = "caller"', False),
    ],
)
def test_show_tells_modules_from_names(etdev: Any, tmp_path: Path, setting: str, is_path: bool) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/below.toml").write_text(f"{setting}\n")
    (tmp_path / "etdev.toml").write_text("extends = 'sub/below.toml'\n" + MINIMAL)
    out = etdev("config", "show", "--output", "toml")[1]
    assert out.startswith(f"# {setting} is relative to") == is_path


def test_explain(etdev: Any, tmp_path: Path) -> None:
    code, out, err = etdev("config", "explain", "targets.cpu.budget.file")
    assert (code, err) == (0, "")
    assert out == (
        "targets.cpu.budget.file\n"
        "  Maximum size of the `.pte` file, without external weights.\n\n"
        '  type     a size such as "64KiB" (units: B, kB, MB, GB, KiB, MiB, GiB) or a whole number of bytes\n'
        "  default  not set\n"
    )
    (tmp_path / "etdev.toml").write_text(MINIMAL + "budget.file = '1KiB'\n[targets.b]\n")
    out = etdev("config", "explain", "targets.*.budget.file", "--set", "targets.cpu.budget.file='2KiB'")[1]
    assert out.endswith(
        "  targets.cpu.budget.file  2048\n"
        "    set by --set targets.cpu.budget.file='2KiB': \"2KiB\"\n"
        '    over   etdev.toml:7:15: "1KiB"\n\n'
        "  targets.b.budget.file  not set\n"
        "    the default; no layer sets it\n"
    )
    (tmp_path / "etdev.toml").write_text("broken")
    code, out, err = etdev("config", "explain", "version")
    assert (code, out.splitlines()[0]) == (0, "version")
    assert "see `etdev validate`" in err


@pytest.mark.parametrize(
    ("short", "key"),
    [
        ("budget.file", "targets.*.budget.file"),
        ("cpu.budget.file", "targets.cpu.budget.file"),
        ("atol", "targets.*.verify.atol"),
        ("partitioners[0].backend", "targets.*.partitioners[0].backend"),
        ("growth.memory", "targets.*.budget.growth.memory"),
    ],
)
def test_explain_finds_the_only_key_that_ends_so(short: str, key: str, etdev: Any) -> None:
    code, out, _ = etdev("config", "explain", short)
    assert (code, out.splitlines()[0]) == (0, key)
    assert out == etdev("config", "explain", key)[1]


@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("targets.cpu.budgt.file", "there is no key `targets.cpu.budgt.file`", "did you mean `targets.cpu.budget`?"),
        (
            "file",
            "several keys end with `file`",
            "write one of `targets.*.budget.file`, `targets.*.budget.growth.file`",
        ),
        ("budget.fil", "there is no key `budget.fil`", "did you mean `targets.*.budget`?"),
        ("version.x", "there is no key `version.x`", "`version` has no keys"),
        ("a b", '"a b" is not a key', "write names separated by dots: targets.cpu.budget.file"),
        (".a", '".a" is not a key', "write names separated by dots: targets.cpu.budget.file"),
        ("", '"" is not a key', "write names separated by dots: targets.cpu.budget.file"),
    ],
)
def test_explain_of_what_is_no_key(key: str, message: str, hint: str, etdev: Any) -> None:
    assert etdev("config", "explain", key) == (2, "", f"error: {message}\nhelp: {hint}\n")


def test_explain_knows_every_key(etdev: Any) -> None:
    for case in CASES:
        if case.change == "misspelled" and "profiles" not in case.path:
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in case.path).lstrip(".")
            code, out, _ = etdev("config", "explain", path)
            assert code == 0
            assert "  type     " in out


SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_the_schema_is_one(etdev: Any, tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    code, out, err = etdev("schema")
    assert (code, json.loads(out), err) == (0, SCHEMA, "")
    assert etdev("schema", "-o", "etdev.schema.json") == (0, "", "")
    assert json.loads((tmp_path / "etdev.schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize("base", BASES)
def test_the_schema_takes_what_validates(base: str) -> None:
    assert list(VALIDATOR.iter_errors(BASES[base])) == []


def test_the_schema_refuses_what_does_not() -> None:
    """E1: an editor marks every misspelled and wrongly typed key, and required keys that are missing.

    Without ``--slow``, every fourth case.
    """
    cases = [case for case in CASES if case.form == "toml" or case.change == "null"]
    for case in cases[:: min(draws.SHARE, 4)]:
        data, _, _ = _apply(case)
        if case.change == "missing" and data.get("extends"):
            data.pop("extends")
        assert not VALIDATOR.is_valid(data), case.id


def test_the_schema_describes_every_key() -> None:
    for name, table in {"": SCHEMA, **SCHEMA["$defs"]}.items():
        assert table["additionalProperties"] is False, name
        for key, value in table["properties"].items():
            assert value.get("description") or "$ref" in value, (name, key)


def test_the_reference_is_current(repository: Path) -> None:
    """``python -m etdev.config.reference`` writes the keys; limits and units in the text are those of the code."""
    page = (repository / "docs/config.md").read_text()
    assert page == reference(page)
    for said in (f"(units: {UNITS})", f"(units: {TIME_UNITS})", f"{MAX_BYTES // 2**10} KiB", f"{MAX_DEPTH} levels"):
        assert said in " ".join(page.split())


def _examples(repository: Path) -> dict[str, str]:
    """The first example of each format in the reference."""
    page = (repository / "docs/config.md").read_text()
    return {form: page.partition(f"```{form}\n")[2].partition("```")[0] for form in FORMATS}


def test_the_examples_of_the_reference_are_the_same_config(tmp_path: Path, repository: Path) -> None:
    examples = _examples(repository)
    in_toml = load(tmp_path, examples["toml"])
    assert in_toml.config == load(tmp_path, examples["yaml"], "etdev.yaml").config


def test_nothing_heavy_is_imported(tmp_path: Path, repository: Path) -> None:
    """No torch, executorch or numpy; ruamel for YAML only, tree-sitter for TOML only."""
    for form, example in _examples(repository).items():
        (tmp_path / f"a.{form}").write_text(example)
    script = (
        "import sys; from pathlib import Path; from etdev.config.loader import load_config\n"
        "load_config(Path(sys.argv[1]), environ={}, cwd=Path.cwd())\n"
        "heavy = {'torch', 'executorch', 'numpy', 'ruamel', 'tree_sitter', 'tomli_w', 'rich', 'typer'}\n"
        "print(*sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    imported = [
        subprocess.run([sys.executable, "-c", script, name], cwd=tmp_path, capture_output=True, text=True, check=True)
        for name in ("a.toml", "a.yaml")
    ]
    assert [run.stdout.split() for run in imported] == [["tree_sitter"], ["ruamel"]]
