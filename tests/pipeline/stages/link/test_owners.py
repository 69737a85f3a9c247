"""What a config asks of inputs and outputs in vain is an error of the config, at its place and by its name (B8)."""

from __future__ import annotations

from pathlib import Path

import pytest

import etdev
from etdev.errors import ConfigError, ExitCode
from support.projects import LINEAR, LINEAR_CONFIG, write_project

pytest.importorskip("torch", reason="needs the extra `build`")

CONFIG = LINEAR_CONFIG + "    [targets.cpu]\n"
KEY = "targets.cpu.io.forward"
NOT_READ = "input 'x' of method 'forward' cannot stay on a device: no delegate on a device reads it"
NOT_COMPUTED = "output 0 of method 'forward' cannot stay on a device: no delegate on a device computes it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a project whose object program is made once."""
    folder = tmp_path_factory.mktemp("linear")
    etdev.build(write_project(folder, CONFIG, model=LINEAR), verify=False, environ={})
    return folder


@pytest.mark.parametrize(
    ("ends", "key", "column", "message", "hint"),
    [
        ('inputs = { x = "device" }', "inputs.x", 16, NOT_READ, 'set this input to "host"'),
        ('inputs = "device"', "inputs", 10, NOT_READ, 'set this input to "host"'),
        ('outputs = { 0 = "device" }', "outputs.0", 17, NOT_COMPUTED, 'set this output to "host"'),
        ('outputs = "device"', "outputs", 11, NOT_COMPUTED, 'set this output to "host"'),
        ('outputs = { 3 = "host" }', "outputs.3", 17, "method 'forward' has no output '3'", "its outputs: 0"),
    ],
)
@pytest.mark.sampled(2)
def test_what_cannot_be_is_told_at_its_place_and_by_its_name(
    folder: Path, ends: str, key: str, column: int, message: str, hint: str
) -> None:
    before = CONFIG + "[targets.cpu.io.forward]\n"
    path = write_project(folder, before + ends + "\n", model=LINEAR)
    with pytest.raises(ConfigError) as caught:
        etdev.build(path, verify=False, environ={})

    (problem,) = caught.value.problems
    assert caught.value.exit_code == ExitCode.CONFIG
    assert (problem.key, problem.message) == (f"{KEY}.{key}", f"`{KEY}.{key}`: {message}")
    assert (problem.line, problem.column) == (len(before.strip().splitlines()) + 1, column)
    assert problem.hint == hint
