"""Files that options of backends name, checked by ``etdev validate`` before any build. Vela is not needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import run_etdev
from support.projects import LINEAR, LINEAR_CONFIG, write_project

CONFIG = (
    LINEAR_CONFIG
    + """
    [quantize.int8]
    scheme = "arm-ethos-u"
    target = "ethos-u55-128"
    calibration = "model:samples"
    [targets.npu]
    quantize = "int8"
    [[targets.npu.partitioners]]
    backend = "ethos-u"
    [targets.npu.partitioners.options]
    target = "ethos-u55-128"
    config = "part.ini"
    memory_mode = "Mine"
"""
)


def validate(folder: Path, content: str | None) -> tuple[int, str]:
    config = write_project(folder, CONFIG, model=f"{LINEAR}\n    def samples():\n        return []\n")
    if content is not None:
        (folder / "part.ini").write_text(content)
    done = run_etdev("validate", str(config), folder=folder)
    return done.returncode, done.stdout + done.stderr


def test_a_file_that_does_not_exist_is_a_warning(tmp_path: Path) -> None:
    """As with any file of a config: a step before the build may make it. The build refuses it."""
    code, shown = validate(tmp_path, None)
    assert code == 0
    assert f"`targets.npu.partitioners[0].options.config`: there is no file {tmp_path / 'part.ini'}" in shown


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[Memory_Mode.Nine]\n", "has no section [Memory_Mode.Mine]"),
        ("not an ini file", "is not a config file of Vela"),
    ],
)
@pytest.mark.sampled(1)
def test_a_file_with_wrong_content_is_an_error(tmp_path: Path, content: str, problem: str) -> None:
    code, shown = validate(tmp_path, content)
    assert code == 2
    assert problem in shown


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "part.ini").mkdir()
    code, shown = validate(tmp_path, None)
    assert code == 2
    assert "is a folder" in shown


def test_a_right_file(tmp_path: Path) -> None:
    code, shown = validate(tmp_path, "[Memory_Mode.Mine]\n")
    assert (code, "warning" in shown) == (0, False)
