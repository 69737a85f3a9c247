"""Partitioners of a config against their backends, with positions (E1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.backends.check import check_partitioners
from etdev.config.loader import load_config
from etdev.errors import ConfigError

CONFIG = """version = 1
model.entry = "model:make"
[methods.forward]
inputs = [{{ name = "x", dtype = "float32", shape = [2, {size}] }}]
{more}
[[targets.cpu.partitioners]]
backend = "xnnpack"
[[targets.cpu.partitioners]]
{step}
"""
KEY = "targets.cpu.partitioners[1]"

CASES = {
    "unknown, a near name": (
        'backend = "xnnpak"',
        "9:11",
        f"{KEY}.backend",
        "there is no backend 'xnnpak'",
        "did you mean 'xnnpack'?",
        "unknown-backend",
    ),
    "unknown": (
        'backend = "qnn"',
        "9:11",
        f"{KEY}.backend",
        "there is no backend 'qnn'",
        "backends here: portable, xnnpack, openvino",
        "unknown-backend",
    ),
    "misspelled option": (
        'backend = "xnnpack"\noptions = { per_op_modes = true }',
        "10:13",
        f"{KEY}.options.per_op_modes",
        f"unknown key `{KEY}.options.per_op_modes`",
        "did you mean `per_op_mode`?",
        "unknown-key",
    ),
    "wrongly typed option": (
        'backend = "xnnpack"\noptions.per_op_mode = 1',
        "10:23",
        f"{KEY}.options.per_op_mode",
        f"`{KEY}.options.per_op_mode` is 1; expected true or false",
        None,
        "wrong-type",
    ),
    "wrong choice": (
        'backend = "xnnpack"\noptions.precisions = ["fp32", "int8"]',
        "10:31",
        f"{KEY}.options.precisions[1]",
        f'`{KEY}.options.precisions[1]` is "int8"; expected one of "fp32", "static_quant", "dynamic_quant"',
        None,
        "wrong-value",
    ),
    "option of a backend that has none": (
        'backend = "portable"\noptions = { speed = 3 }',
        "10:13",
        f"{KEY}.options.speed",
        f"unknown key `{KEY}.options.speed`",
        "this table has no keys",
        "unknown-key",
    ),
    "compile spec of a backend that reads none": (
        'backend = "xnnpack"\ncompile_specs = { level = 3 }',
        "10:27",
        f"{KEY}.compile_specs.level",
        "the backend 'xnnpack' reads no compile specs, so 'level' would have no effect",
        None,
        "compile-spec",
    ),
    "unknown compile spec": (
        'backend = "openvino"\ncompile_specs = { devise = "CPU" }',
        "10:28",
        f"{KEY}.compile_specs.devise",
        "openvino knows no compile spec 'devise'",
        "it takes 'device', for example \"CPU\"",
        "compile-spec",
    ),
    "compile spec of the wrong type": (
        'backend = "openvino"\ncompile_specs = { device = 3 }',
        "10:28",
        f"{KEY}.compile_specs.device",
        "openvino's compile spec 'device' is a name, for example \"CPU\"",
        None,
        "compile-spec",
    ),
    "dynamic dimensions": (
        'backend = "openvino"',
        "9:11",
        f"{KEY}.backend",
        "the backend 'openvino' needs static shapes, and method 'forward' has dynamic dimensions",
        "write numbers in the shapes of forward",
        "dynamic-shapes",
    ),
}


@pytest.mark.parametrize(("step", "place", "key", "message", "hint", "rule"), CASES.values(), ids=CASES)
def test_each_mistake_has_its_place(
    tmp_path: Path, step: str, place: str, key: str, message: str, hint: str | None, rule: str
) -> None:
    dynamic = rule == "dynamic-shapes"
    text = CONFIG.format(step=step, size='"n"' if dynamic else 4, more="dims.n = { max = 8 }" if dynamic else "")
    (tmp_path / "etdev.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, cwd=tmp_path, checks=(check_partitioners,))
    (problem,) = caught.value.problems
    assert (problem.where, problem.key, problem.message, problem.hint, problem.rule) == (
        f"etdev.toml:{place}",
        key,
        message,
        hint,
        rule,
    )


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"targets": 3},
        {"targets": {"cpu": 3}},
        {"targets": {"cpu": {"partitioners": 3}}},
        {"targets": {"cpu": {"partitioners": [3, {}, {"backend": 3}]}}},
        {"targets": {"cpu": {"partitioners": [{"backend": "xnnpack", "options": 3, "compile_specs": 3}]}}},
        {"methods": {"forward": 3}, "targets": {"cpu": {"partitioners": [{"backend": "xnnpack"}]}}},
    ],
)
def test_what_is_wrong_otherwise_is_left_to_the_models(data: dict[str, object]) -> None:
    assert list(check_partitioners(data)) == []
