"""Required checks that cannot run for a target are found in the config, at the line that requires them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etdev.backends.opening import open_config
from etdev.cli import app
from etdev.config.references import check_references
from etdev.pipeline.project.required_checks import unrunnable_checks
from support.projects import LINEAR, LINEAR_CONFIG, write_project

CUDA = 'partitioners = [{ backend = "cuda" }]'
REFERENCE = 'partitioners = [{ backend = "reference", device = "cuda:0" }]'
ON_HOST = 'partitioners = [{ backend = "reference" }]'
XNNPACK = 'partitioners = [{ backend = "xnnpack" }]'
METRIC = '[targets.gpu.verify.accuracy]\nfn = "model:Linear"\nmin = 1'
NOT_YET = "etdev cannot run delegates of the backend 'cuda' yet"
IGNORED = "ExecuTorch's Python runtime has no devices, and the target uses cuda:0"


def write(folder: Path, check: str, lines: str) -> Path:
    head = LINEAR_CONFIG.replace("\n    ", "\n")
    return write_project(
        folder, f'{head}[targets.gpu]\n{lines}\n[targets.gpu.verify]\nrequire = ["bytes", "{check}"]\n'
    )


@pytest.mark.parametrize(
    ("check", "lines", "reason"),
    [
        ("device", CUDA, NOT_YET),
        ("replay", CUDA, NOT_YET),
        ("runtime", CUDA, IGNORED),
        ("latency", CUDA, "the config sets no limit"),
        ("accuracy", CUDA, "the config names no metric"),
        ("device", REFERENCE, None),
        ("replay", REFERENCE, None),
        ("runtime", REFERENCE, IGNORED),
        ("device", ON_HOST, "the target uses no device"),
        ("runtime", ON_HOST, None),
        ("replay", XNNPACK, "etdev cannot run delegates of the backend 'xnnpack' yet"),
        ("runtime", XNNPACK, None),
        ("device", "", "the target uses no device"),
        ("plan", CUDA, None),
        ("native", CUDA, "the native runtime has no backend CudaBackend"),
        ("native", REFERENCE, None),
        ("native", XNNPACK, None),
        ("native", "", None),
    ],
)
def test_what_cannot_run(check: str, lines: str, reason: str | None, tmp_path: Path) -> None:
    problems = list(unrunnable_checks(open_config(write(tmp_path, check, lines), environ={})))
    if reason is None:
        assert problems == []
        return
    (problem,) = problems
    said = f"the check `{check}` cannot run, so every build ends with exit code 3: {reason}"
    assert problem.message == f"`targets.gpu.verify.require[1]`: {said}"
    text = (tmp_path / "etdev.toml").read_text().splitlines()
    assert problem.line is not None
    assert text[problem.line - 1].startswith("require = ")
    assert (problem.hint or "").endswith(f"remove `{check}` from `require`")


def test_a_library_may_have_the_backend(tmp_path: Path) -> None:
    config = write(tmp_path, "native", CUDA)
    config.write_text(config.read_text().replace("[project]", '[project]\nnative_libraries = ["lib.so"]'))
    loaded = open_config(config, environ={})
    assert list(unrunnable_checks(loaded)) == []
    (absent,) = (problem for problem in check_references(loaded).absent if "native_libraries" in problem.message)
    assert absent.message == f"`project.native_libraries[0]`: there is no file {tmp_path / 'lib.so'}"


@pytest.mark.parametrize(("lines", "reason"), [(CUDA, NOT_YET), (REFERENCE, None)])
def test_accuracy_on_a_device_needs_the_interpreter(lines: str, reason: str | None, tmp_path: Path) -> None:
    config = write(tmp_path, "accuracy", lines)
    config.write_text(f"{config.read_text()}{METRIC}\n")
    found = [problem.message.rpartition(": ")[2] for problem in unrunnable_checks(open_config(config, environ={}))]
    assert found == ([] if reason is None else [reason])


def test_validate_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(tmp_path, "device", CUDA)
    (tmp_path / "model.py").write_text(LINEAR)
    assert app.run(["validate", "-c", str(config), "--output", "json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert (warning["rule"], warning["line"]) == ("unrunnable-check", len(config.read_text().splitlines()))
