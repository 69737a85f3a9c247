"""Every fenced block of the docs: what can be checked is, and what is not run is listed here with the reason."""

from __future__ import annotations

import ast
import copy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from etdev.config.models import Config
from support import pages
from support.pages import Block

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
BLOCKS = [block for page in PAGES for block in pages.blocks(page)]

RUN = {
    "start.md": "test_guides.py",
    "state.md": "test_guides.py",
    "cpp.md": "test_guides.py",
    "faq.md": "test_guides.py",
    "find-memory.md": "test_guides.py",
    "fit.md": "test_guides.py",
    "index.md": "test_guides.py: the second target of start.md's build",
    "models.md": "test_models_page.py",
    "mcu.md": "test_mcu_page.py",
    "extending.md": "test_extending.py",
    "llm.md": "../templates/test_llm.py",
}
"""Pages all of whose commands and programs a test runs, or compares with what it ran."""
OUTPUT_NOT_RUN = {
    ("memory.md", "memory"): "the target `portable` of examples/transformer, which takes a minute",
    ("planning.md", "etdev build portable -v --set targets.portable.memory.planner=planners"): "the page's own planner",
    ("planning.md", "error: --set targets.portable.memory.planner=planners"): "the page's own planner",
    ("memory.md", "etdev relink kinds.pte"): "tests/cli/test_relink.py has such files",
    ("memory.md", "4 instructions moved"): "a model of benchmarks/order.py",
    ("relink.md", "etdev inspect vit.pte"): "a model of transformers",
    ("relink.md", "etdev relink vit.pte"): "a model of transformers",
    ("relink.md", "etdev diff vit.pte"): "a model of transformers",
    ("relink.md", "etdev relink counters.pte"): "tests/cli/test_relink.py has such files",
    ("relink.md", "etdev relink gpt.pte"): "a model of transformers",
    ("relink.md", "etdev relink two-conds.pte"): "tests/pipeline/test_stock_is_wrong.py makes such files",
    ("planning.md", "id,lower,upper,size"): "the input of the command above it",
    ("verification.md", "etdev verify two-devices.pte"): "tests/verification has such files",
    (
        "verification.md",
        "runtime    failed   output 0 of 'decode'",
    ): "tests/verification/test_agreement.py compares the same message",
    ("quantization.md", "etdev run build"): "an image of the reader's own",
    ("quantization.md", "replay"): "needs tosa-tools",
    ("backends.md", "etdev build npu"): "needs Vela and tosa-tools",
    ("runner.md", "build/digits_runner"): "tests/runner compiles and runs projects",
    ("deploy.md", "etdev build cpu"): "connects to a board; tests/deployment has targets",
    ("README.md", "etdev inspect vit.pte"): "a model of transformers",
}
"""Blocks of output that no test compares, by page and beginning, and why."""
RUN_HERE = {("planning.md", "python -m etdev.planner"): "test_the_planner_of_a_file"}
LANGUAGES_NOT_RUN = {
    "kotlin": "needs the SDK of Android",
    "swift": "needs Xcode",
    "objc": "needs Xcode",
}
PYTHON_NOT_RUN = {
    "python.md": "definitions without bodies; the first block runs in test_guides.py",
    "README.md": "tests/test_api.py calls the same functions",
    "deploy.md": "tests/pipeline/test_deploy.py calls the same function",
    "memory.md": "parts of programs of the reader's own",
    "planning.md": "parts of programs of the reader's own",
    "verification.md": "parts of programs of the reader's own",
    "workers.md": "tests/orchestrator runs such programs",
}
"""Python that is parsed only, and why."""

SKELETON: dict[str, Any] = {
    "version": 1,
    "model": {"entry": "model:make"},
    "methods": {"forward": {"inputs": [{"name": "image", "dtype": "float32", "shape": [1, 3, 32, 32]}]}},
    "targets": {},
}


def _id(block: Block) -> str:
    return f"{block.page}:{block.line}"


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def whole_config(part: dict[str, Any]) -> dict[str, Any]:
    """A config around a part of one: what the part refers to and does not have is added."""
    config = copy.deepcopy(SKELETON)
    for key, value in part.items():
        config[key] = {**config[key], **value} if isinstance(config.get(key), dict) else value
    if {"pt2", "hf"} & config["model"].keys():
        config["model"].pop("entry")
    config.pop("extends", None)
    targets = config["targets"]
    for deployment in config.get("deploy", {}).values():
        targets.setdefault(deployment.get("target", "cpu"), {})
    targets = targets or config["targets"].setdefault("cpu", {})
    for target in config["targets"].values():
        if target.get("quantize") and target["quantize"] not in config.get("quantize", {}):
            config.setdefault("quantize", {})[target["quantize"]] = {"scheme": "8da4w"}
    return config


@pytest.mark.parametrize("block", of("toml"), ids=_id)
def test_a_toml_block_is_a_config_or_a_part_of_one(block: Block) -> None:
    found = tomllib.loads(block.text)
    if block.page == "extending.md":
        return  # Parts of `pyproject.toml`, which test_extending.py installs, and of configs with these extensions.
    assert Config.model_validate(whole_config(found)).targets


@pytest.mark.parametrize("block", of("yaml"), ids=_id)
def test_a_yaml_block_is_yaml_and_a_config_is_one(block: Block) -> None:
    found = YAML(typ="safe", pure=True).load(block.text)
    if isinstance(found, dict) and "version" in found:
        assert Config.model_validate(found).targets


@pytest.mark.parametrize("block", of("python"), ids=_id)
def test_a_python_block_is_python(block: Block) -> None:
    ast.parse(block.text)
    assert block.page in RUN or block.page in PYTHON_NOT_RUN, "run this block in a test, or list it with the reason"


def test_every_other_block_is_run_or_listed() -> None:
    from project.test_digits_pages import SHOWN

    known = {"", "toml", "yaml", "python", "cpp", "cmake", *LANGUAGES_NOT_RUN}
    assert {block.language for block in BLOCKS} <= known
    assert {block.page for block in of("cpp", "cmake")} <= RUN.keys()
    listed = {*OUTPUT_NOT_RUN, *RUN_HERE, *((case.page, case.begins) for case in SHOWN)}
    unlisted = []
    used = set()
    for block in of(""):
        key = next((key for key in listed if key[0] == block.page and _beginning(block).startswith(key[1])), None)
        used.add(key)
        if key is None and block.page not in RUN:
            unlisted.append((_id(block), _beginning(block)))
    assert not unlisted, "compare this output in a test, or list it with the reason"
    assert not listed - used, "listed, and not in the docs"


def test_pages_that_are_said_to_be_run_are_run() -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    from project import test_guides

    guides = {page for page, test in RUN.items() if test == "test_guides.py"}
    assert guides == {"start.md", *test_guides.AFTER, *test_guides.ALONE}
    assert all((ROOT / "tests" / "project" / test.partition(":")[0]).is_file() for test in RUN.values())


def test_the_planner_of_a_file(tmp_path: Path) -> None:
    (given,) = [block for block in BLOCKS if block.text.startswith("id,lower,upper,size")]
    (shown,) = [block for block in BLOCKS if block.text.startswith("$ python -m etdev.planner")]
    (tmp_path / "example.csv").write_text(given.text)
    line, _, expected = shown.text.removeprefix("$ python ").partition("\n")
    command = [sys.executable, *line.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    pages.assert_shown(expected, done.stdout)


def _beginning(block: Block) -> str:
    return block.text.removeprefix("$ ").lstrip()
