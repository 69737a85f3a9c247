"""What ``etdev doctor`` finds, on machines that have and that lack things."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etdev import tosa_tools
from etdev.backends import base
from etdev.backends.ethos_u import vela
from etdev.cli import app
from etdev.pipeline import doctor
from etdev.pipeline.doctor import NativeState, RuntimeState
from support.commands import break_package, run_etdev
from support.plugins import Site

COMPLETE = {"torch": "2.13.0+cpu", "executorch": "1.5.1", "torchao": "0.18.0", "safetensors": "0.8.0"}
RUNTIME = RuntimeState(True, "executorch 1.5.1", ("OpenvinoBackend", "XnnpackBackend"))
ARM = COMPLETE | {"ethos-u-vela": "5.2.0", "tosa-tools": "2026.8.0"}
NPU = 'ethos-u"\noptions.target = "ethos-u55-128'
NO_RUNTIME = RuntimeState(False, "executorch is not installed")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An empty folder on a machine that has everything for ``etdev[build]`` and nothing else."""
    monkeypatch.chdir(tmp_path)
    _install(monkeypatch, COMPLETE, RUNTIME)
    return monkeypatch


def _install(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], runtime: RuntimeState) -> None:
    monkeypatch.setattr(doctor, "package_version", versions.get)
    monkeypatch.setattr(vela, "version", lambda: versions.get(vela.DISTRIBUTION))
    lacking = None if tosa_tools.DISTRIBUTION in versions else "the package 'tosa-tools' is missing"
    monkeypatch.setattr(tosa_tools, "problem", lambda: lacking)
    monkeypatch.setattr(doctor, "_runtime", lambda: runtime)
    monkeypatch.setattr(base.importlib.util, "find_spec", lambda name: object() if name in versions else None)


def _doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = app.run(["doctor", *arguments])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, captured.out


def _line(text: str, start: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    (line,) = [line for line in lines if line.startswith(start)]
    return line


def test_a_complete_machine(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = _doctor(capsys)
    assert code == 0
    assert _line(text, "torch ") == "torch 2.13.0+cpu for models, export"
    assert _line(text, "tosa-tools").endswith(", or set ETDEV_TOSA_TOOLS to a folder that contains both packages")
    assert _line(text, "xnnpack").startswith("xnnpack yes")
    assert _line(text, "xnnpack").endswith("(devices: cpu); the runtime here has this backend")
    assert "the package 'openvino' is not installed: pip install" in _line(text, "openvino no")
    assert _line(text, "cuda no").startswith("cuda no the package 'triton' is not installed, without which ")
    assert "ExecuTorch's runtimes cannot (devices: cpu, cuda)" in _line(text, "reference yes")


def test_another_version_is_a_warning(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(machine, COMPLETE | {"executorch": "1.5.0"}, RUNTIME)
    code, text = _doctor(capsys)
    assert code == 0
    assert "warning: etdev was tested with 1.5.1 and 1.4.1" in _line(text, "executorch 1.5.0")


def test_a_machine_without_torch(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(machine, {}, NO_RUNTIME)
    code, text = _doctor(capsys)
    assert code == 0
    assert 'pip install "etdev[build]"' in _line(text, "torch -")
    assert _line(text, "not available") == "not available: executorch is not installed"


@pytest.mark.parametrize(
    ("versions", "runtime", "partitioner", "needs"),
    [
        pytest.param(COMPLETE, RUNTIME, "xnnpack", [], id="all met"),
        pytest.param(
            COMPLETE, RUNTIME, "openvino", ["targets.cpu.partitioners[0].backend"], id="backend not installed"
        ),
        pytest.param(
            COMPLETE,
            RuntimeState(True, "executorch 1.5.1", ()),
            "xnnpack",
            ["targets.cpu.partitioners[0].backend"],
            id="backend not in the runtime",
        ),
        pytest.param(COMPLETE, RUNTIME, "reference", [], id="a backend that no machine has a runtime for"),
        pytest.param(ARM, RUNTIME, NPU, [], id="a backend that no host has a runtime for"),
        pytest.param(COMPLETE, RUNTIME, "vulkan", ["targets.cpu.partitioners[0].backend"], id="no runtime with Vulkan"),
        pytest.param(COMPLETE, RUNTIME, "cuda", ["targets.cpu.partitioners[0].backend"], id="no triton"),
        pytest.param(
            {},
            NO_RUNTIME,
            "xnnpack",
            ["model", "model", "model.weights", "targets.cpu.partitioners[0].backend"],
            id="nothing installed",
        ),
    ],
)
def test_needs_of_a_config(
    machine: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    versions: dict[str, str],
    runtime: RuntimeState,
    partitioner: str,
    needs: list[str],
) -> None:
    _install(machine, versions, runtime)
    assert app.run(["init", "-q"]) == 0
    config = Path("etdev.toml")
    config.write_text(
        config.read_text()
        .replace('backend = "xnnpack"', f'backend = "{partitioner}"', 1)
        .replace('shape = ["batch", 4]', "shape = [1, 4]")
        .replace("dims.batch", "# dims.batch")
    )

    code, text = _doctor(capsys, "--output", "json")
    assert code == (3 if needs else 0)
    assert [need["key"] for need in json.loads(text)["needs"]] == needs

    code, text = _doctor(capsys)
    assert code == (3 if needs else 0)
    assert ("all requirements are installed" in text) == (not needs)
    assert ("the program runs on the Ethos-U processor only" in text) == (partitioner == NPU)


def test_packages_that_the_model_imports(machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without transformers, everything was said to be installed, and the build of the template `llm` failed."""
    _install(machine, COMPLETE | {"numpy": "2"}, RUNTIME)
    assert app.run(["init", "--template", "llm", "--name", "x"]) == 0
    assert 'Next: pip install "etdev[hf]" && etdev build\n' in capsys.readouterr().err
    code, text = _doctor(capsys)
    assert code == 3
    assert "  model.entry: the model imports the package 'transformers', which is not installed\n" in text
    assert text.endswith('    pip install "etdev[hf]"\n')

    Path("model.py").write_text("import torchfoo.nn\n")
    code, text = _doctor(capsys)
    assert (code, text.splitlines()[-1]) == (3, "    install the package that provides 'torchfoo'")


def test_a_broken_torch_is_a_line_of_the_table(tmp_path: Path) -> None:
    """The runtime's process cannot start; all else is said as ever."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    broken = break_package(tmp_path / "broken", "torch")
    done = run_etdev("doctor", folder=tmp_path, env=broken)
    assert (done.returncode, done.stderr) == (0, "")
    assert _line(done.stdout, "not available").startswith("not available: ExecuTorch's runtime cannot start")
    assert "libtorch_cpu.so" in _line(done.stdout, "not available")
    assert _line(done.stdout, "executorch ")


def test_the_installed_runtime_says_which_delegates_it_has() -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    assert "XnnpackBackend" in doctor.diagnose().runtime.backends


TOY = """
from etdev.backends.base import Availability, NoOptions

class Toy:
    name, summary, device_types, delegate_ids = "toy", "nothing", ("cpu",), ("ToyBackend",)
    options, compute_dtype, dynamic_shapes = NoOptions, "float32", True
    def check_compile_specs(self, specs): return ()
    def availability(self): return Availability(True, "here")
    def partitioner(self, options, specs, method): return None

backend = Toy()

def library():
    return {path!r}
"""


@pytest.mark.parametrize("state", ["no library", "missing", "there", "of the config"])
def test_a_native_library_of_a_backend(
    machine: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, state: str
) -> None:
    """A program with a delegate that only a native library has can run here, if the library is there."""
    machine.setattr(doctor, "_native", lambda: NativeState(True, "compiled before", None))
    library = tmp_path / "lib.so"
    if state in ("there", "of the config"):
        library.touch()
    points = {"etdev.backends": {"toy": "toy:backend"}}
    if state in ("missing", "there"):
        points["etdev.native_libraries"] = {"ToyBackend": "toy:library"}
    Site(tmp_path / "site", machine).install("toy", points, {"toy.py": TOY.format(path=str(library))})
    assert app.run(["init", "-q"]) == 0
    config = Path("etdev.toml")
    text = config.read_text().replace('backend = "xnnpack"', 'backend = "toy"', 1)
    text = text.replace("[targets.cpu.budget]", '[targets.cpu.budget]\nram = "1GiB"', 1)
    if state == "of the config":
        text = text.replace("[project]", '[project]\nnative_libraries = ["lib.so"]')
    config.write_text(text)
    needs = {need["key"]: need["message"] for need in json.loads(_doctor(capsys, "--output", "json")[1])["needs"]}
    line = _line(_doctor(capsys)[1], "toy yes")
    assert ("and the native runtime has it" in line) == (state == "there")
    lacks = "the installed runtime lacks the delegate of the backend 'toy': programs cannot run here"
    backend, required = "targets.cpu.partitioners[0].backend", "targets.cpu.budget.ram"
    assert (
        needs
        == {
            "no library": {backend: lacks, required: "the native runtime has no backend ToyBackend"},
            "missing": {backend: lacks, required: f"{library}: there is no such native library"},
            "there": {},
            "of the config": {},
        }[state]
    )
