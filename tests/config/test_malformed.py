"""E1: files that are no config at all: a sentence with the place, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.support import MINIMAL, load, problems
from etdev.config.parsing.document import MAX_BYTES

TOML = {
    "no value": ("a =\n", 1, 4, "not valid TOML: invalid value"),
    "no quotes": ("[model]\nentry = model:make\n", 2, 9, "not valid TOML: invalid value"),
    "unclosed list": ("a = [1,\n", 1, 8, "not valid TOML: invalid value"),
    "unclosed text": ('a = "x\n', 1, 7, "not valid TOML: illegal character '\\n'"),
    "yaml": ("version: 1\n", 1, 8, "not valid TOML: expected '=' after a key in a key/value pair"),
    "twice": ("é.x = 1\na = 1\na = 2\n", 1, 1, "not valid TOML: invalid statement"),
    "twice, dotted": (
        '"é".x = 1\n"é".y = 1\n"é".x = 2\n',
        3,
        5,
        '`"é".x` is defined twice; the first time at etdev.toml:1:5',
    ),
    "twice, inline": ("a = { b = 1, b = 2 }\n", 1, 14, "`a.b` is defined twice; the first time at etdev.toml:1:7"),
    "twice, table": ("[a]\n[b]\n[a]\n", 3, 2, "`a` is defined twice; the first time at etdev.toml:1:2"),
    "list and array of tables": ("a = []\n[[a]]\n", 2, 3, "`a` is defined twice; the first time at etdev.toml:1:1"),
    "added to an inline table": (
        "a = {b = 1}\n[a.c]\nd = 1\n",
        2,
        5,
        "not valid TOML: this adds to a table or value that is already complete",
    ),
    "deep": ("a = " + "[" * 5000, 1, 37, "nested more than 32 levels deep"),
    "deep, closed": ("a = " + "[" * 5000 + "]" * 5000, 1, 37, "nested more than 32 levels deep"),
    "deep inline tables": ("a = " + "{a=" * 5000, 1, 101, "nested more than 32 levels deep"),
    "deep dotted key": ("a." * 40000 + "b = 1", 1, 1, "nested more than 32 levels deep"),
    "deep header": ("[" + "a." * 40000 + "b]", 1, 2, "nested more than 32 levels deep"),
    "long number": ("a = " + "1" * 5000, 1, 5, "this number has too many digits"),
    "control character": ('a = "\x01"\n', 1, 6, "not valid TOML: illegal character '\\x01'"),
}
YAML = {
    "list at the top": ("- a\n", 1, 1, "expected keys and values at the start of the file"),
    "text at the top": ("hello\n", 1, 1, "expected keys and values at the start of the file"),
    "unclosed list": ("a: [1,\n", 2, 1, "not valid YAML: expected the node content, but found '<stream end>'"),
    "tab": ("a:\n\tb: 2\n", 2, 1, "not valid YAML: found character '\\t' that cannot start any token"),
    "two colons": ("a: b: c\n", 1, 5, "not valid YAML: a `:` is at a position where a key is not allowed"),
    "twice": ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, 3, "`b.c` is defined twice; the first time at etdev.yaml:3:3"),
    "anchor": ("a: &x 1\nb: 2\n", 1, 4, "anchors (`&x`) are not supported"),
    "alias": ("a: *x\n", 1, 4, "aliases (`*x`) are not supported"),
    "anchor on a table": ("a: &x {b: 1}\n", 1, 4, "anchors (`&x`) are not supported"),
    "merge key": ("a:\n  <<: {b: 1}\n", 2, 3, "merge keys (`<<`) are not supported"),
    "python tag": ("a: !!python/object:os.system x\n", 1, 4, "the tag `!!python/object:os.system` is not supported"),
    "own tag on a table": ("a: !mine {b: 1}\n", 1, 4, "the tag `!mine` is not supported"),
    "bad base64": ("a: !!binary '&&'\n", 1, 4, "this is not base64"),
    "two documents": ("a: 1\n---\nb: 2\n", 2, 1, "a config must be one YAML document, but a second one begins here"),
    "old version": ("%YAML 1.1\n---\na: 1\n", 1, 1, "only YAML 1.2 is supported"),
    "key that is a list": ("? [a]\n: b\n", 1, 3, "a key must be text"),
    "deep": ("a: " + "[" * 20000, 1, 35, "nested more than 32 levels deep"),
    "deep block": ("".join(" " * n + f"k{n}:\n" for n in range(200)), 33, 33, "nested more than 32 levels deep"),
    "long number": ("a: " + "1" * 5000, 1, 4, "this number has too many digits"),
    "control character": ("a: \x01\n", 1, 4, "not valid YAML: the character U+0001 is not allowed"),
}


def _check(folder: Path, name: str, case: tuple[str, int, int, str]) -> None:
    text, line, column, message = case
    (found,) = problems(folder, text, name)
    assert found.message.startswith(message)
    assert (found.source, found.line, found.column) == (name, line, column)


@pytest.mark.parametrize("case", TOML)
def test_toml(case: str, tmp_path: Path) -> None:
    _check(tmp_path, "etdev.toml", TOML[case])


@pytest.mark.parametrize("case", YAML)
def test_yaml(case: str, tmp_path: Path) -> None:
    _check(tmp_path, "etdev.yaml", YAML[case])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[model]\nentry = model:make\n", 'text needs quotes: "model:make"'),
        ("a = True\n", "write `true`"),
        ("version: 1\n", "write `key = value` for TOML; for YAML, name the file .yaml"),
        ("a = [1,\nb = 2\n", "the `[` at line 1, column 5 is not closed"),
    ],
)
def test_hints_for_syntax(text: str, hint: str, tmp_path: Path) -> None:
    (found,) = problems(tmp_path, text)
    assert found.hint == hint


@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"", 1, "the file is empty"),
        (b"\n# nothing\n", 1, "the file is empty"),
        (b"\xef\xbb\xbf", 1, "the file is empty"),
        ("version = 1".encode("utf-16"), None, "the file is UTF-16 text"),
        (b"a = 1\n# caf\xe9 \n", 2, "the byte 0xe9 is not UTF-8 text"),
        (b"a = 1\n" * (MAX_BYTES // 6 + 1), None, "the file is larger than 256 KiB"),
    ],
)
@pytest.mark.parametrize("name", ["etdev.toml", "etdev.yaml"])
def test_content_that_is_no_config(name: str, content: bytes, line: int | None, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    (found,) = problems(tmp_path, name=name)
    assert (found.source, found.line) == (name, line)
    assert found.message.startswith(message)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeff" + MINIMAL).where("version") == "etdev.toml:1:11"


def test_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "etdev.toml").write_bytes((MINIMAL + "nope = 1\n").replace("\n", "\r\n").encode())
    (found,) = problems(tmp_path)
    assert found.where == "etdev.toml:7:1"


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "folder").mkdir()
    assert problems(tmp_path, name="folder")[0].message == "this is a folder"
    assert problems(tmp_path, name=".")[0].message == "this is a folder"
    (tmp_path / "loop.toml").symlink_to("loop.toml")
    assert problems(tmp_path, name="folder.toml")[0].message == "this is a folder"
    assert problems(tmp_path, name="none.toml")[0].message == "there is no such file"
    assert problems(tmp_path, name="loop.toml")[0].message.startswith("cannot read the file:")
    assert problems(tmp_path, "a = 1", name="etdev.json")[0].message.endswith("ends in .toml, .yaml or .yml")
    assert problems(tmp_path, "[tool.x]\n", name="pyproject.toml")[0].message.startswith(
        "this file has no table `tool.etdev`"
    )


NULLS = {"absent": "", "tilde": "~", "lower": "null", "title": "Null", "upper": "NULL", "tag": "!!null ''"}
"""All ways of YAML to write null."""


@pytest.mark.parametrize("spelling", NULLS)
def test_null_is_refused_where_a_key_is_optional(spelling: str, tmp_path: Path) -> None:
    null = NULLS[spelling]
    text = (
        "version: 1\nextends: below.yaml\nmodel: {pt2: m.pt2, trust: true}\n"
        f"targets:\n  cpu:\n    quantize: {null}\n    budget: {{file: 1MiB}}\n    verify:\n      accuracy: {null}\n"
        f"profiles:\n  ci:\n    targets:\n      cpu:\n        budget:\n          file: {null}\n"
    )
    # The main file states this key, so that only reading each file by itself finds the null.
    (tmp_path / "below.yaml").write_text(f"targets:\n  cpu:\n    budget:\n      file: {null}\n")
    (tmp_path / "etdev.yaml").write_text(text)

    expected = [
        ("etdev.yaml", 6, 5, "targets.cpu.quantize"),
        ("etdev.yaml", 9, 7, "targets.cpu.verify.accuracy"),
        ("etdev.yaml", 15, 11, "profiles.ci.targets.cpu.budget.file"),
        ("below.yaml", 4, 7, "targets.cpu.budget.file"),
    ]
    for profile in (None, "ci"):
        found = problems(tmp_path, name="etdev.yaml", profile=profile)
        # A null without a text of its own stands where its key does.
        places = [(p.source, p.line, p.column - (len(p.key.split(".")[-1]) + 2) * bool(null), p.key) for p in found]
        assert places == expected
        assert {p.rule for p in found} == {"wrong-type"}
        assert all(p.message.startswith(f"`{p.key}` is null; expected ") for p in found)
        assert all(p.hint and "remove the key" in p.hint for p in found)


def test_null_in_lists_and_beside_what_cannot_be_read(tmp_path: Path) -> None:
    text = (
        "version: ~\nextends: none.toml\nproject: {imports: [a, ~]}\nmodel: {pt2: m.pt2, trust: ~, kwargs: {a: [~]}}\n"
        "targets: {cpu: {quantise: ~}}\n"
    )
    found = problems(tmp_path, text, "etdev.yaml")
    assert [(p.line, p.key) for p in found if "is null" in p.message] == [
        (1, "version"),
        (3, "project.imports[1]"),
        (4, "model.trust"),
        (4, "model.kwargs.a[0]"),
        (5, "targets.cpu.quantise"),
    ]
    assert len(found) == 6
    assert found[2].hint == "remove the element"
    (unknown,) = problems(
        tmp_path, "version: 1\nmodel: {entry: 'm:f'}\nmethods: {f: {inputs: []}}\n" + text[-30:], "etdev.yaml"
    )
    assert unknown.message == "unknown key `targets.cpu.quantise`"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(tmp_path: Path) -> None:
    (tmp_path / "etdev.toml").touch(mode=0)
    assert problems(tmp_path)[0].message == "cannot read the file: permission denied"
