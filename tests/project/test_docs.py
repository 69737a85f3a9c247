"""The hand-written docs name what the code has."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from etdev import backends
from etdev.backends.cuda import _CHOICES, _PATH
from etdev.config.check_names import BUILT_IN
from etdev.config.models import Config
from etdev.templates import TEMPLATES, render, shared_files
from etdev.verification.compare import RELATIVE_TOLERANCE
from support import pages


def _codes(text: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", text))


def test_every_backend_with_its_options_is_documented(repository: Path) -> None:
    named = _codes((repository / "docs" / "backends.md").read_text())
    built_in = [name for name in backends.names() if name in ("portable", "xnnpack", "openvino")]
    assert len(built_in) == 3
    for name in built_in:
        backend = backends.get(name)
        assert {name, *backend.delegate_ids, *backend.options.model_fields} <= named


def test_every_compile_spec_of_cuda_is_documented_with_its_values(repository: Path) -> None:
    text = (repository / "docs/backends.md").read_text()
    rows = re.findall(r"^\| `cuda` \| (.+?) \| .+? \| (.+) \|$", text, re.MULTILINE)
    values = {key: _codes(meaning) for keys, meaning in rows for key in _codes(keys)}

    assert {key: set(_CHOICES[key]) for key in _CHOICES} == {key: values[key] for key in _CHOICES}
    assert values.keys() == {*_CHOICES, _PATH}


def test_every_check_and_tolerance_is_documented(repository: Path) -> None:
    text = (repository / "docs" / "verification.md").read_text()
    assert set(BUILT_IN) <= _codes(text)
    for dtype, share in RELATIVE_TOLERANCE.items():
        assert dtype in text
        assert f"{share:g}" in text


def test_every_command_of_a_page_is_one_line_of_a_shell(repository: Path) -> None:
    """The tests that run them need minutes; this one finds a quote without its end."""
    count = 0
    for page in (repository / "docs").glob("*.md"):
        for command in pages.commands(page.read_text(encoding="utf-8")):
            count += 1
            try:
                shlex.split(command.line, comments=True)
            except ValueError as error:
                pytest.fail(f"{page.name}: {command.line}: {error}")
    assert count >= 100


def test_the_readmes_config_is_valid(repository: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (repository / "README.md").read_text(), re.DOTALL)
    assert Config.model_validate(tomllib.loads(block)).targets


def test_every_template_is_documented_and_which_files_are_never_replaced(repository: Path) -> None:
    named = _codes((repository / "docs" / "templates.md").read_text())
    assert TEMPLATES.keys() <= named
    assert {file for template in TEMPLATES for file in shared_files(template)} <= named


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_installs_etdev_says_where_from(name: str) -> None:
    """Its commands have to hold before etdev is on PyPI, too."""
    for path, content in render(name, "net").items():
        if b'pip install "etdev[' in content:
            assert b"PyPI" in content, path


def test_every_input_and_output_of_the_action_is_documented(repository: Path) -> None:
    action = YAML(typ="safe", pure=True).load(repository / "action.yml")
    named = _codes((repository / "docs" / "ci.md").read_text())
    assert action["inputs"].keys() | action["outputs"].keys() <= named


def test_every_figure_of_the_comparison_is_one_of_the_benchmarks(repository: Path) -> None:
    page = (repository / "docs" / "comparison.md").read_text()
    measured = set(re.findall(r"\d[\d,]*(?:\.\d+)?", (repository / "benchmarks" / "README.md").read_text()))
    tables = page.partition("## Gains")[2].partition("## When ExecuTorch alone")[0]
    figures = re.findall(r"(?<![\w-])\d[\d,]*\.\d+", tables)
    assert len(figures) >= 30
    assert not [figure for figure in figures if figure not in measured]
