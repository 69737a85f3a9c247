"""E1: every key of the config, wrongly typed and misspelled, and every required key missing, in TOML and in YAML.

The cases come from the models: :func:`test_no_key_is_left_out` fails for a key that no case below covers.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from config.support import FORMATS, emit
from etdev.cli import app
from etdev.config.describe.grammar import (
    Anything,
    Leaf,
    ListOf,
    MapOf,
    Node,
    OneOf,
    TableOf,
    children,
    grammar_of,
    tables,
)
from etdev.config.describe.notation import kind
from etdev.config.keys import KeyPath, format_key
from etdev.config.models import Config

ROOT = grammar_of(Config)

_TARGET = {
    "quantize": "static",
    "partitioners": [
        {"backend": "xnnpack", "device": "cpu", "options": {"per_op_mode": True}, "compile_specs": {}},
        {"backend": "portable"},
    ],
    "lowering": "stock",
    "verify": {
        "atol": 0.1,
        "rtol": 0.1,
        "min_snr_db": 30,
        "min_agreement": 0.99,
        "min_close": 0.98,
        "require": ["runtime"],
        "accuracy": {"fn": "data:accuracy", "min": 0.5, "max": 1.5, "max_drop": 0.25, "max_rise": 0.5},
        "sessions": "data:sessions",
    },
    "memory": {
        "planner": "greedy",
        "alignment": 64,
        "tiling": "off",
        "order": "as-is",
        "banks": [
            {"name": "dtcm", "id": 2, "size": "128KiB", "alignment": 64, "cost": 1},
            {"name": "sram", "id": 1, "size": 1048576, "cost": 4.5},
        ],
        "pin": {
            "inputs": "sram",
            "outputs": {"0": "sram"},
            "state": {"blocks.0.keys": "sram"},
            "delegates": {"EthosUBackend": "sram"},
        },
    },
    "io": {"forward": {"inputs": "caller", "outputs": {"0": "caller"}, "quantized": ["image"]}},
    "elide": {"views": False, "slices": False, "cat": False, "write_back": False, "constants": False},
    "inplace": {"ops": ["relu"], "add": ["aten::mm.out"], "remove": ["aten.relu.default"]},
    "budget": {
        "file": "1MiB",
        "weights": "1MiB",
        "memory": {"cpu": "1MiB", "cuda:0": "1MiB", "dtcm": "64KiB"},
        "ram": "4MiB",
        "copies": "1KiB",
        "scratch": "1KiB",
        "fast_scratch": "1KiB",
        "delegated": 0.9,
        "latency": {"p50": "0.5ms", "p95": 0.5, "p99": "1.5 s", "method": "forward"},
        "growth": {"file": "0%", "weights": "1.5%", "memory": "1KiB", "copies": 1},
    },
    "external_weights": "weights.ptd",
    "selected_operators": True,
    "runner": True,
    "etrecord": True,
    "runtime": {"kernels": ["portable", "optimized"], "backends": ["XnnpackBackend"]},
}
_BOARD = {
    "target": "cpu",
    "uri": "sftp://board/srv/models",
    "keep": 2,
    "smoke": ["sh", "-c", "true"],
    "known_hosts": "hosts",
    "password_env": "BOARD_PASSWORD",
}
_CLOUD = {"target": "cpu", "uri": "s3://models/boards", "endpoint_url": "https://minio:9000"}
_METHOD = {
    "inputs": [{"name": "image", "dtype": "float32", "shape": ["batch", 8]}],
    "dims": {"batch": {"min": 2, "max": 8, "multiple_of": 2}},
    "samples": "data:samples",
}
_STATIC = {
    "scheme": "pt2e-xnnpack",
    "calibration": "data:calibration",
    "per_channel": True,
    "dynamic": False,
    "keep_float": ["head"],
}

BASES: dict[str, dict[str, Any]] = {
    "entry": {
        "version": 1,
        "extends": ["below.toml"],
        "project": {"name": "digits", "imports": ["my_ops"], "native_libraries": ["lib.so"], "out": "dist"},
        "model": {
            "entry": "model:make",
            "kwargs": {"width": 3},
            "weights": "w.safetensors",
            "inputs": ["vocab.txt"],
            "share_state": True,
        },
        "constants": {"size": 3, "sizes": [3, 4]},
        "methods": {"forward": _METHOD},
        "quantize": {
            "static": _STATIC,
            "grouped": {"scheme": "8da4w", "group_size": 32, "embedding_bits": 4, "keep_float": ["head"]},
            "npu": {"scheme": "arm-ethos-u", "target": "ethos-u55-128", "calibration": "data:calibration"},
            "mcu": {"scheme": "cortex-m", "calibration": "data:calibration"},
        },
        "targets": {"cpu": _TARGET},
        "baseline": {"from": "git:main"},
        "deploy": {"board": _BOARD, "cloud": _CLOUD},
        "run": {"executor": "ray", "jobs": 2, "ray_address": "head:6379"},
    },
    "hf": {
        "version": 1,
        "constants": "model:constants",
        "model": {"hf": "org/model", "revision": "0" * 40},
        "methods": {"forward": _METHOD},
        "quantize": {"static": {**_STATIC, "calibration": {"forward": "data:calibration"}}},
        "targets": {
            "cpu": {
                "quantize": "static",
                "memory": {"planner": "planners:mine"},
                "io": {"forward": {"inputs": {"image": "host"}, "outputs": "host", "quantized": "all"}},
                "inplace": {"ops": "none"},
                "runtime": {"operators": "ops.yaml"},
            }
        },
    },
    "pt2": {
        "version": 1,
        "model": {"pt2": "m.pt2", "trust": True},
        "targets": {"cpu": {"quantize": "static"}},
        "quantize": {"static": _STATIC},
    },
}
for _base in BASES.values():
    _inner = {key: value for key, value in _base.items() if key not in ("version", "extends")}
    _base["profiles"] = {"ci": copy.deepcopy(_inner)}


@dataclass(frozen=True)
class Case:
    """One change to a valid config, and what has to be said about it."""

    base: str
    change: str
    path: KeyPath
    """What is changed."""
    form: str

    @property
    def id(self) -> str:
        return f"{self.form}-{self.base}-{self.change}-{format_key(self.path)}"


def _walk(node: Node, value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node, TableOf | None]]:
    """Every value in the data with its grammar, and the table that has it as a key."""
    if isinstance(node, OneOf):
        fitting = [option for option in node.options if _fits(option, value)]
        node = fitting[0] if len(fitting) == 1 else node
    parts: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for part in parts:
        below = list(children(node, part))
        if path[:1] == ("profiles",) and len(path) == 1:
            below = [ROOT]
        for child in below[:1]:
            yield (*path, part), child, node if isinstance(node, TableOf) else None
            yield from _walk(child, value[part], (*path, part))


def _fits(node: Node, value: Any) -> bool:
    if isinstance(node, TableOf):
        return isinstance(value, dict) and all(
            not isinstance(key.node, Leaf) or not key.node.values or value.get(name) in key.node.values
            for name, key in node.keys.items()
            if name == "scheme"
        )
    return kind(value) in _kinds(node)


def _kinds(node: Node) -> set[str]:
    match node:
        case Leaf():
            return set(node.kinds)
        case ListOf():
            return {"list"}
        case OneOf():
            return set().union(*(_kinds(option) for option in node.options))
        case Anything():
            return set()
    return {"table"}


def _wrong(node: Node) -> Any:
    """A value of a type that the node does not take."""
    return next(value for value in (3, "many", True, [], 1.5, {}) if kind(value) not in _kinds(node))


def _cases() -> Iterator[Case]:
    seen = set()
    for name, base in BASES.items():
        for path, node, table in _walk(ROOT, base):
            changes = ["null", *(["wrong type"] if not isinstance(node, Anything) else [])]
            if table is not None:
                changes.append("misspelled")
                in_profile = path[0] == "profiles" and len(path) > 1
                if table.keys[str(path[-1])].required and (not in_profile or any(isinstance(p, int) for p in path)):
                    changes.append("missing")
            for change in changes:
                # Beyond the first base, only what it does not have.
                place = (path, change, id(table), repr(node))
                if place not in seen:
                    seen.add(place)
                    # TOML has no null.
                    forms = FORMATS if change != "null" else ("yaml",)
                    yield from (Case(name, change, path, form) for form in forms)


CASES = list(_cases())


def test_no_key_is_left_out() -> None:
    """E1: the "every"."""
    wanted = {(path, name) for path, table in tables(ROOT) for name in table.keys}
    for change in ("wrong type", "misspelled", "null"):
        covered = {_place(case.path) for case in CASES if case.change == change}
        assert wanted - covered == set()
        in_profiles = {_place(case.path[2:]) for case in CASES if case.change == change and len(case.path) > 2}
        overlaid = {place for place in wanted if (*place[0], place[1])[0] not in ("version", "extends", "profiles")}
        assert overlaid - in_profiles == set()
    required = {(path, name) for path, table in tables(ROOT) for name, key in table.keys.items() if key.required}
    assert required - {_place(case.path) for case in CASES if case.change == "missing"} == set()


@cache
def _place(path: KeyPath) -> tuple[KeyPath, str]:
    """The path as :func:`etdev.config.describe.grammar.tables` writes it."""
    node: Node = ROOT
    general: KeyPath = ()
    for part in path[:-1]:
        general = (*general, "*" if _is_map(node) else 0 if isinstance(part, int) else part)
        node = next(iter(children(node, part)), Anything())
    return general, str(path[-1])


def _is_map(node: Node) -> bool:
    return isinstance(node, MapOf) or (isinstance(node, OneOf) and any(map(_is_map, node.options)))


def _apply(case: Case) -> tuple[dict[str, Any], KeyPath, KeyPath]:
    """The changed data, the key that has to be named, and the path whose line has to be given."""
    data = copy.deepcopy(BASES[case.base])
    if case.path[0] != "profiles":
        del data["profiles"]  # Half of the config, in the time of each case.
    around: Any = data
    for part in case.path[:-1]:
        around = around[part]
    last = case.path[-1]
    if case.change == "wrong type":
        node = next(node for path, node, _ in _walk(ROOT, data) if path == case.path)
        around[last] = _wrong(node)
        return data, case.path, case.path
    if case.change == "null":
        around[last] = None
        return data, case.path, case.path
    value = around.pop(last)
    if case.change == "missing":
        return data, case.path, case.path[:-1]
    around[f"{last}x"] = value
    return data, (*case.path[:-1], f"{last}x"), (*case.path[:-1], f"{last}x")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("configs")
    (folder / "below.toml").write_text("[project]\n")
    return folder


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = app.run(["validate", *arguments, "--output", "json"])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, json.loads(captured.out)["problems"]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("form", FORMATS)
def test_the_configs_are_valid_before_they_are_changed(
    base: str, form: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    Path(f"base.{form}").write_text(emit(BASES[base], form)[0])
    assert _run(["-c", f"base.{form}"], capsys) == (0, [])


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    """Leave to the slow tests what another case covers.

    Both formats have the same checks behind their parsers, and keys of a profile have the types of the same keys
    outside of it. A key without a value is refused as a value of another type is, and each misspelled key by the same
    search for a similar name: of these cases, every fourth runs.
    """
    other_format = case.form == "yaml" and case.change not in ("null", "missing")
    other_place = case.path[0] == "profiles" and case.change in ("null", "wrong type")
    if other_format or other_place:
        return [pytest.mark.slow]
    return [pytest.mark.sampled] if case.change in ("null", "misspelled") else []


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id, marks=_marks(case)) for case in CASES])
def test_every_key(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """E1: exit 2 and one problem with file, line, key and a sentence that says what to do."""
    data, key, place = _apply(case)
    text, lines = emit(data, case.form)
    monkeypatch.chdir(folder)
    Path(f"case.{case.form}").write_text(text)

    code, found = _run(["-c", f"case.{case.form}"], capsys)

    assert code == 2
    assert len(found) == 1, "one mistake, one problem"
    (problem,) = found
    assert problem["key"] == format_key(key)
    assert (problem["source"], problem["line"]) == (f"case.{case.form}", lines[place])
    assert f"`{format_key(key)}`" in problem["message"]
    if case.change == "misspelled":
        assert problem["rule"] == "unknown-key"
        assert problem["hint"].startswith("did you mean `")
    else:
        assert problem["rule"] == ("missing-key" if case.change == "missing" else "wrong-type")
        assert "expected" in problem["message"]
    column = text.split("\n")[problem["line"] - 1][problem["column"] - 1 :]
    if case.change == "null":
        assert column.startswith("null")
    if case.change == "misspelled" and isinstance(case.path[-1], str):
        assert column.lstrip("[").startswith((str(key[-1]), json.dumps(key[-1])))


@pytest.mark.parametrize("change", ["wrong type", "misspelled", "missing"])
def test_through_the_real_command_line(change: str, tmp_path: Path) -> None:
    """E1: exit 2 and the place on stderr, nothing on stdout."""
    case = next(case for case in CASES if case.change == change and case.path[-1] in ("backend", "scheme"))
    data, key, place = _apply(case)
    text, lines = emit(data, case.form)
    (tmp_path / "below.toml").write_text("[project]\n")
    (tmp_path / f"case.{case.form}").write_text(text)

    command = [sys.executable, "-m", "etdev", "validate", "-c", f"case.{case.form}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: case.{case.form}:{lines[place]}:")
    assert f"`{format_key(key)}`" in ended.stderr
