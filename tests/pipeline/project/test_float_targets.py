"""Targets without quantization whose backend takes only quantized ops: `validate`, the dry run and a build say it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from etdev.backends.opening import open_config
from etdev.cli import app
from etdev.pipeline.builder.summary import describe_unused
from etdev.pipeline.dry_run import dry_run
from etdev.pipeline.project import Project
from etdev.pipeline.project.float_targets import float_targets
from etdev.pipeline.project.options import BuildOptions
from etdev.program import model as m
from support.files import method, program, tensor
from support.projects import LINEAR, LINEAR_CONFIG, write_project

ETHOS_U = '{ backend = "ethos-u", options = { target = "ethos-u55-128" } }'
CORTEX_M = '{ backend = "cortex-m" }'
SCHEME = """
[quantize.mcu]
scheme = "cortex-m"
calibration = "model:samples"
"""
ABSENT = "the name of a table `quantize.NAME`"


def write(folder: Path, steps: str, more: str = "") -> Path:
    head = LINEAR_CONFIG.replace("\n    ", "\n")
    return write_project(folder, f"{head}{SCHEME}[targets.mcu]\npartitioners = [{steps}]\n{more}")


@pytest.mark.parametrize(
    ("steps", "index", "backend", "remedy"),
    [
        (CORTEX_M, 0, "cortex-m", '"mcu", with the scheme "cortex-m"'),
        (ETHOS_U, 0, "ethos-u", f'{ABSENT}, with the scheme "arm-ethos-u"'),
        (f"{CORTEX_M}, {ETHOS_U}", 1, "ethos-u", f'{ABSENT}, with the scheme "arm-ethos-u"'),
    ],
)
def test_the_place_and_the_scheme(steps: str, index: int, backend: str, remedy: str, tmp_path: Path) -> None:
    config = write(tmp_path, steps)
    (problem,) = float_targets(open_config(config, environ={}))
    assert problem.message == (
        f"`targets.mcu.partitioners[{index}].backend`: the backend {backend!r} takes only quantized ops, and the "
        "target has no `quantize`, so float ops stay on other kernels"
    )
    assert problem.hint == f"set `targets.mcu.quantize` to {remedy}"
    assert problem.line == config.read_text().splitlines().index(f"partitioners = [{steps}]") + 1


@pytest.mark.parametrize(("steps", "more"), [(CORTEX_M, 'quantize = "mcu"'), ("", ""), ('{ backend = "xnnpack" }', "")])
def test_targets_without_a_warning(steps: str, more: str, tmp_path: Path) -> None:
    assert list(float_targets(open_config(write(tmp_path, steps, more), environ={}))) == []


def test_a_saved_program_may_be_quantized(tmp_path: Path) -> None:
    config = tmp_path / "etdev.toml"
    config.write_text(
        f'version = 1\n[model]\npt2 = "a.pt2"\ntrust = true\n[targets.mcu]\npartitioners = [{CORTEX_M}]\n'
    )
    assert list(float_targets(open_config(config, environ={}))) == []


def test_a_model_that_uses_torchao_may_be_quantized(tmp_path: Path) -> None:
    """Nothing in the config could silence the warning, and `validate --strict` would end with exit code 2."""
    config = write(tmp_path, CORTEX_M)
    (tmp_path / "model.py").write_text("def make():\n    from torchao.quantization import pt2e\n")
    assert list(float_targets(open_config(config, environ={}))) == []


def test_validate_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A reproducer: `validate` said ok, and the build wrote a float program without a note."""
    config = write(tmp_path, CORTEX_M)
    (tmp_path / "model.py").write_text(LINEAR)
    assert app.run(["validate", "-c", str(config), "--output", "json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning["rule"] == "not-quantized"


def test_the_dry_run_says_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(dedent(LINEAR))
    loaded = open_config(write(tmp_path, CORTEX_M), environ={})
    (note,) = dry_run(Project(loaded), BuildOptions()).notes
    assert note.startswith("warning: ")
    assert "takes only quantized ops" in note
    assert note.endswith('set `targets.mcu.quantize` to "mcu", with the scheme "cortex-m"')


@pytest.mark.parametrize(("steps", "name"), [(CORTEX_M, "cortex-m"), (ETHOS_U, "ethos-u")])
def test_a_build_says_it(steps: str, name: str, tmp_path: Path) -> None:
    made = Project(open_config(write(tmp_path, steps), environ={}))
    found = program(method([tensor(8, at=0)], [], sizes=(32,)))
    (note,) = describe_unused(made, "mcu", found)
    assert note.startswith(f"the partitioner {name!r} took no op: it takes only quantized ops, and the target has no ")


@pytest.mark.parametrize(("steps", "count"), [(CORTEX_M, 0), (f"{CORTEX_M}, {ETHOS_U}", 1)])
def test_a_build_of_a_model_that_is_quantized_itself(steps: str, count: int, tmp_path: Path) -> None:
    """Another backend that took no op did so for another reason."""
    pytest.importorskip("executorch")
    made = Project(open_config(write(tmp_path, steps), environ={}))
    plan = method([tensor(8, at=0)], [], sizes=(32,))
    own = (m.Operator("cortex_m::quantized_add", "out"),)
    notes = list(describe_unused(made, "mcu", program(replace(plan, operators=own))))
    assert not any("takes only quantized ops" in note for note in notes)
    assert len(notes) == count
