"""Required checks that cannot run for a target are found in the config, at the line that requires them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etdev.backends.opening import open_config
from etdev.cli import app
from etdev.config.references import check_references
from etdev.pipeline.project.required_checks import unmeasured_limits, unrunnable_checks
from etdev.runtime.native.toolchain import Missing
from support.projects import LINEAR, LINEAR_CONFIG, write_project

CUDA = 'partitioners = [{ backend = "cuda" }]'
REFERENCE = 'partitioners = [{ backend = "reference", device = "cuda:0" }]'
ON_HOST = 'partitioners = [{ backend = "reference" }]'
XNNPACK = 'partitioners = [{ backend = "xnnpack" }]'
METRIC = '[targets.gpu.verify.accuracy]\nfn = "model:Linear"\nmin = 1'
NOT_YET = "etdev cannot run delegates of the backend 'cuda' yet"
ETHOS_U = 'partitioners = [{ backend = "ethos-u", options = { target = "ethos-u55-128" } }]'
CORTEX_M = 'quantize = "int8"\npartitioners = [{ backend = "cortex-m" }]'
BOTH = 'quantize = "int4"\npartitioners = [{ backend = "xnnpack" }, { backend = "cortex-m" }]'
LATENCY = "budget.latency = { p50 = 1 }\n"
SCHEMES = """
[quantize.int8]
scheme = "cortex-m"
calibration = "model:samples"
[quantize.int4]
scheme = "8da4w"
"""
NO_BACKEND = "ExecuTorch's Python runtime has no backend {}"
NO_KERNELS = "ExecuTorch's Python runtime has no kernels of the library 'cortex-m'"
IGNORED = "ExecuTorch's Python runtime has no devices, and the target uses cuda:0"


def write(folder: Path, check: str, lines: str) -> Path:
    head = LINEAR_CONFIG.replace("\n    ", "\n")
    schemes = SCHEMES if "int" in lines else ""
    require = f'[targets.gpu.verify]\nrequire = ["bytes", "{check}"]\n'
    return write_project(folder, f"{head}{schemes}[targets.gpu]\n{lines}\n{require}")


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
        ("runtime", ON_HOST, NO_BACKEND.format("EtdevReferenceBackend")),
        ("replay", XNNPACK, "etdev cannot run delegates of the backend 'xnnpack' yet"),
        ("runtime", XNNPACK, None),
        ("device", "", "the target uses no device"),
        ("plan", CUDA, None),
        ("native", CUDA, "the native runtime has no backend CudaBackend"),
        ("native", REFERENCE, None),
        ("native", XNNPACK, None),
        ("native", "", None),
        ("runtime", ETHOS_U, NO_BACKEND.format("EthosUBackend")),
        ("latency", LATENCY + ETHOS_U, NO_BACKEND.format("EthosUBackend")),
        ("replay", ETHOS_U, None),
        ("native", ETHOS_U, "the native runtime has no backend EthosUBackend"),
        ("runtime", CORTEX_M, NO_KERNELS),
        ("native", CORTEX_M, "the native runtime has no kernels of the library 'cortex-m'"),
        ("replay", CORTEX_M, None),
        ("runtime", CORTEX_M.replace('quantize = "int8"', ""), None),
        ("runtime", BOTH, None),
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


@pytest.mark.parametrize(
    ("check", "remedy"), [("runtime", "require `replay` instead"), ("latency", "remove `latency`")]
)
@pytest.mark.parametrize("lines", [ETHOS_U, CORTEX_M])
def test_the_check_that_runs_the_program_is_named(lines: str, check: str, remedy: str, tmp_path: Path) -> None:
    (problem,) = unrunnable_checks(open_config(write(tmp_path, check, LATENCY + lines), environ={}))
    assert (problem.hint or "").startswith(remedy)


def test_imported_modules_may_have_the_kernels(tmp_path: Path) -> None:
    config = write(tmp_path, "runtime", CORTEX_M)
    config.write_text(config.read_text().replace("[project]", '[project]\nimports = ["kernels"]'))
    assert list(unrunnable_checks(open_config(config, environ={}))) == []


@pytest.mark.parametrize(
    ("check", "lines", "said", "hint"),
    [
        (
            "plan",
            "",
            "succeeds",
            "install CMake; or require the check `budget`, which then fails",
        ),
        (
            "budget",
            "",
            "ends with exit code 3",
            "install CMake; or remove the limit",
        ),
        ("plan", CUDA, "succeeds", "install CMake; or require"),
    ],
)
def test_a_limit_that_is_not_measured_here(
    check: str, lines: str, said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler, the build said *not run* and ended with exit code 0."""
    monkeypatch.delenv("ETDEV_NATIVE_HOST", raising=False)
    missing = Missing("no CMake", "install CMake")
    monkeypatch.setattr("etdev.pipeline.project.required_checks.find_toolchain", lambda: missing)
    config = write(tmp_path, check, f'budget.ram = "1KiB"\n{lines}')
    (problem,) = unmeasured_limits(open_config(config, environ={}))
    unless = "unless the known parts exceed it: no CMake"
    assert problem.message == (
        f"`targets.gpu.budget.ram`: this limit cannot be measured here, and a build {said} {unless}"
    )
    assert (problem.hint or "").startswith(hint)
    assert problem.line == config.read_text().splitlines().index('budget.ram = "1KiB"') + 1
    monkeypatch.setenv("ETDEV_NATIVE_HOST", "native-host")
    assert len(list(unmeasured_limits(open_config(config, environ={})))) == bool(lines)


def test_validate_warns_of_a_limit_that_is_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(tmp_path, "plan", f'{CUDA}\nbudget.ram = "1KiB"')
    (tmp_path / "model.py").write_text(LINEAR)
    assert app.run(["validate", "-c", str(config), "--output", "json"]) == 0
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning["rule"] == "not-judged"
    assert app.run(["validate", "-c", str(config), "--strict"]) == 2
