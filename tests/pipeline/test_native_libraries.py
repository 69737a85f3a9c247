"""Backends of other packages in ExecuTorch's C++ runtime: from the build to a program of a deployed release. 18.7."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.cli import app
from etdev.execution.native import open_native
from etdev.pipeline.results.result import CheckResult, TargetResult
from etdev.program import model as m
from program.hand import tensor
from runner.compiled import tools
from support.files import method, program
from support.native import native_host, saved
from support.plugins import Site
from support.projects import write_project
from support.scale_backends import FOLDER_VARIABLE, POINTS, compile_libraries

pytestmark = pytest.mark.integration

MODEL = """
    import torch

    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([0.5, -2.0, 3.0, 0.1]))
            self.b = torch.nn.Parameter(torch.tensor([1.0, 0.3, -0.7, 0.0]))

        def forward(self, x):
            return x * self.w + self.b
"""
CONFIG = """
    version = 1
    [project]
    name = "scale"
    [model]
    entry = "model:Scale"
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [3, 4] }]
    [targets.tagged]
    partitioners = [{ backend = "tagged" }]
    verify.require = ["native"]
    budget.ram = "1MiB"
    [targets.forced]
    partitioners = [{ backend = "forced" }]
    verify.require = ["native"]
    [deploy.tagged]
    target = "tagged"
    uri = "file:place/tagged"
    [deploy.forced]
    target = "forced"
    uri = "file:place/forced"
"""
FILES = {"tagged": ["scale_b.ptd", "scale_w.ptd"], "forced": ["forced_scale_blob.ptd"]}
X = torch.linspace(-2, 2, 12).reshape(3, 4)
SITE: list[Site] = []
"""The folder that the backends are installed to."""
EXPECTED = X * torch.tensor([0.5, -2.0, 3.0, 0.1]) + torch.tensor([1.0, 0.3, -0.7, 0.0])


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the libraries of both backends, which are installed."""
    native_host()
    folder = tmp_path_factory.mktemp("libraries")
    compile_libraries(tools(), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder))
        SITE.append(Site(tmp_path_factory.mktemp("site"), patch))
        SITE[0].install("scale", POINTS)
        yield folder


@pytest.fixture
def unregistered(libraries: Path) -> Iterator[Path]:
    """The folder with the libraries, which no package registers."""
    SITE[0].install("scale", {"etdev.backends": POINTS["etdev.backends"], "etdev.native_libraries": {}})
    yield libraries
    SITE[0].install("scale", POINTS)


@pytest.fixture(scope="module")
def built(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a project that was built and deployed."""
    config = write_project(tmp_path_factory.mktemp("scale"), CONFIG, model=MODEL)
    result = etdev.build(config)
    assert result.ok, [(check.name, check.summary, check.problems) for item in result.targets for check in item.checks]
    for name in FILES:
        etdev.deploy(config, name)
    return config.parent


def check_of(folder: Path, target: str) -> dict[str, CheckResult]:
    text = (folder / "build" / target / "report.json").read_text()
    result = TargetResult.model_validate(json.loads(text)["targets"][0])
    return {check.name: check for check in result.checks}


@pytest.mark.parametrize("target", FILES)
def test_a_build_runs_it(built: Path, target: str) -> None:
    checks = check_of(built, target)
    assert (checks["native"].status, checks["native"].problems) == ("passed", ())


# From a deployed release


@pytest.fixture
def release(built: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a release, with the input as a file."""
    target = getattr(request, "param", "tagged")
    folder = Path(shutil.copytree(built / "place" / target / "current", tmp_path / target))
    np.save(tmp_path / "x.npy", X.numpy())
    return folder


def run(release: Path, *arguments: str) -> tuple[int, torch.Tensor | None]:
    """Exit code and output of `etdev run` in the native runtime."""
    out = release.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    source = str(release.parent / "x.npy")
    more = ["--runtime", "native", "--input", source, "--save", str(out), "-q"]
    code = app.run(["run", str(release / "scale.pte"), *more, *arguments])
    return code, torch.from_numpy(np.load(next(out.glob("*.npy")))) if code == 0 else None


@pytest.mark.parametrize("release", FILES, indirect=True)
@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_release_runs(release: Path, workers: tuple[str, ...]) -> None:
    """The libraries are the packages' own, and the release has all data files: nothing else has to be said."""
    assert sorted(path.name for path in release.glob("*.ptd")) == FILES[release.name]
    code, found = run(release, *workers)
    assert code == 0
    assert found is not None
    assert torch.equal(found, EXPECTED)


def test_a_release_is_measured_and_verified(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(release / "scale.pte")
    more = ["--random", "--runtime", "native", "--calls", "1", "--workers", "1", "--output", "json", "-q"]
    assert app.run(["bench", file, *more]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["runtime"] == "native"
    assert measured["memory"]["outside"]["heap"] > 0  # The weights that the delegate has copied.
    assert app.run(["verify", file, "--output", "json"]) == 0
    (verified,) = json.loads(capsys.readouterr().out)["files"]
    assert "with its external data" in verified["checks"][0]["summary"]
    assert app.run(["report", file, "--output", f"html={release / 'page.html'}"]) == 0
    assert "scale_w.ptd" in (release / "page.html").read_text()


def test_a_release_without_a_data_file(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (release / "scale_b.ptd").unlink()
    assert run(release)[0] == 2
    error = capsys.readouterr().err
    assert f"{release / 'scale.pte'}: a data file of the release is missing: scale_b.ptd" in error
    assert run(release, "--data", str(release / "scale_w.ptd"))[0] == 4
    error = capsys.readouterr().err
    assert f"{release / 'scale.pte'}: the program failed: method 'forward' cannot be loaded: no data file has" in error
    assert "'scale.b'" in error


@pytest.mark.parametrize("release", FILES, indirect=True)
def test_a_program_without_its_data(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (release / "manifest.json").unlink()
    assert run(release)[0] == 4
    error = capsys.readouterr().err
    assert "scale.w" in error or "_weights_blob" in error
    assert "help: if the program's delegates have weights in another file, pass that file: `--data FILE.ptd`" in error


@pytest.mark.parametrize("release", FILES, indirect=True)
def test_damaged_data(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each byte of a data file, changed: an error, or another output. Never a crash of etdev."""
    path = release / FILES[release.name][0]
    data = path.read_bytes()
    outcomes = set()
    for position in range(0, len(data), max(1, len(data) // 24)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :])
        code, found = run(release)
        outcomes.add("error" if found is None else "same" if torch.equal(found, EXPECTED) else "other")
        assert code in (0, 2, 4)
    path.write_bytes(data[: len(data) // 2])
    assert run(release)[0] in (2, 4)
    weights = data.index(np.float32(0.3).tobytes())
    path.write_bytes(data[:weights] + np.float32(7).tobytes() + data[weights + 4 :])
    code, found = run(release)
    assert code == 0
    assert found is not None
    assert torch.equal(found[:, 0], EXPECTED[:, 0])
    assert not torch.equal(found[:, 1], EXPECTED[:, 1])
    assert "error" in outcomes


# Libraries that are missing, and named


def test_a_library_that_is_missing(
    release: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "none"))
    assert run(release)[0] == 3
    assert f"{tmp_path / 'none' / 'libtagged.so'}: there is no such native library" in capsys.readouterr().err
    verified = etdev.verify(built / "etdev.toml", targets=["tagged"])["tagged"]
    native = next(check for check in verified.checks if check.name == "native")
    assert (native.status, native.summary, verified.exit_code) == ("not run", "there is no such native library", 3)


def test_a_library_that_changed_is_verified_again(
    built: Path, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Path(shutil.copytree(built, tmp_path / "project")) / "etdev.toml"
    again = "unchanged: taken from the cache"
    etdev.build(config, targets=["tagged"])
    assert etdev.build(config, targets=["tagged"])["tagged"].notes[-1] == again
    changed = Path(shutil.copytree(libraries, tmp_path / "changed"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(changed))
    assert etdev.build(config, targets=["tagged"])["tagged"].notes[-1] == again
    with (changed / "libtagged.so").open("ab") as file:
        file.write(b"\0")
    result = etdev.build(config, targets=["tagged"])["tagged"]
    assert again not in result.notes


@pytest.mark.slow
def test_a_library_that_no_package_registers(
    unregistered: Path, release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line names it."""
    assert run(release)[0] == 3
    error = capsys.readouterr().err
    assert "error: the native runtime has no backend TaggedScale" in error
    assert "--native-library" in error
    library = str(unregistered / "libtagged.so")
    for workers in ((), ("--workers", "2")):
        code, found = run(release, "--native-library", library, *workers)
        assert code == 0
        assert found is not None
        assert torch.equal(found, EXPECTED)
    forced = str(unregistered / "libforced.so")
    assert run(release, "--native-library", forced)[0] == 3
    error = capsys.readouterr().err
    assert "the native runtime, with libforced.so, has no backend TaggedScale" in error
    more = ["--runtime", "native", "--random", "--calls", "1", "--workers", "1,2", "-q", "--native-library", library]
    assert app.run(["bench", str(release / "scale.pte"), *more]) == 0
    assert app.run(["run", str(release / "scale.pte"), "--random", "--native-library", library]) == 2
    assert "--native-library: only the native runtime opens native libraries" in capsys.readouterr().err


def test_a_library_that_the_config_names(
    unregistered: Path, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_project(tmp_path, CONFIG, model=MODEL)
    assert app.run(["validate", "-c", str(config)]) == 0
    text = capsys.readouterr()
    assert "the native runtime has no backend TaggedScale" in text.out + text.err
    result = etdev.build(config, targets=["tagged"])["tagged"]
    assert result.exit_code == 3
    assert [check.name for check in result.unmet] == ["native"]
    config.write_text(config.read_text().replace("[project]", '[project]\nnative_libraries = ["lib/libtagged.so"]'))
    library = tmp_path / "lib" / "libtagged.so"
    assert app.run(["validate", "-c", str(config)]) == 0
    text = capsys.readouterr()
    assert f"there is no file {library}" in text.out + text.err
    assert etdev.build(config, targets=["tagged"])["tagged"].exit_code == 3
    library.parent.mkdir()
    shutil.copy(unregistered / "libtagged.so", library)
    assert etdev.build(config, targets=["tagged"]).ok
    assert etdev.verify(config, targets=["tagged"]).ok
    inputs = ["--random", "--runtime", "native", "-c", str(config), "-q"]
    assert app.run(["run", "tagged", *inputs]) == 0
    with library.open("ab") as file:
        file.write(b"\0")
    etdev.deploy(config, "tagged")  # The library determines no byte of the program.


def test_a_kernel_of_a_library(libraries: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator = m.Operator("mine::twice", "out")
    plan = method([tensor(4, at=0), tensor(4, at=16)], [m.KernelCall(0, (0, 1))], operators=(operator,))
    file = saved(program(plan), tmp_path)
    call = ["run", str(file), "--random", "--runtime", "native", "--output", "json"]
    assert app.run(call) == 3
    assert "the native runtime has no kernel for mine::twice.out" in capsys.readouterr().err
    assert app.run([*call, "--native-library", str(libraries / "libkernels.so")]) == 0
    with open_native(program(plan), libraries=[libraries / "libkernels.so"]) as native:
        native.load(file)
        assert torch.equal(native.call("forward", (X[0],))[0], 2 * X[0])
