"""A build does again what follows from a change and nothing else (judging point 2 of the product around it; E2)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import LoadError
from etdev.pipeline.cache import open_store
from etdev.pipeline.results.notes import QUANTIZED_AGAIN, UNCHANGED
from etdev.pipeline.results.result import BuildResult, CheckResult, TargetResult
from etdev.runtime.native.toolchain import NATIVE_EXTRA, Missing
from support.native import native_host
from support.projects import LINEAR, LINEAR_CONFIG, write_project

CONFIG = """
version = 1
constants = "sizes:of"
[project]
name = "tiny"
[model]
entry = "model:make"
kwargs = { width = 8 }
weights = "weights.safetensors"
inputs = ["words.txt"]
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [2, 8] }]
samples = "data:samples"
[quantize.int8]
scheme = "pt2e-xnnpack"
calibration = "calibration:samples"
[targets.cpu]
[targets.small]
quantize = "int8"
[[targets.small.partitioners]]
backend = "xnnpack"
"""
MODEL = """
import torch
from helper import scale
from package.part import offset
try:
    import extra
except ImportError:
    extra = None

class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(width, 8)
        with open("numbers.txt") as file:
            self.more = float(file.read())

    def forward(self, x):
        x = self.linear(self.linear(x).relu())
        return x.view(-1, 4) * scale + self.more + offset

def make(width):
    return Net(width)
"""
DATA = """
import torch
from metric import count

def samples():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(2, 8, generator=generator),) for _ in range(count)]
"""
QUANTIZED = """
    samples = "data:samples"
    [quantize.int8]
    scheme = "pt2e-xnnpack"
    calibration = "data:samples"
    [targets.small]
    quantize = "int8"
    partitioners = [{ backend = "xnnpack" }]
"""
LINEAR_DATA = """
    import torch

    def samples():
        generator = torch.Generator().manual_seed(1)
        return [(torch.randn(2, 32, generator=generator),) for _ in range(3)]

    def sessions():
        return [[("forward", (torch.linspace(-1, 1, 64).reshape(2, 32),))] * 2]
"""
CALIBRATION = """
import torch

def samples():
    with open("calibration.txt") as file:
        return [(torch.full((2, 8), float(word)),) for word in file.read().split()]
"""


def make_project(folder: Path) -> Path:
    """The project, never built."""
    import torch
    from safetensors.torch import save_file

    config = write_project(
        folder,
        CONFIG,
        model=MODEL,
        helper="from deep import scale\n",
        deep="scale = 2.0\n",
        data=DATA,
        metric="count = 2\n",
        calibration=CALIBRATION,
        sizes="def of(model):\n    return {'n': 8}\n",
    )
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "part.py").write_text("from . import number\noffset = number.value\n")
    (folder / "package" / "number.py").write_text("value = 0.5\n")
    for name, text in (("words.txt", "a b c"), ("numbers.txt", "1.5"), ("calibration.txt", "0 1 2")):
        (folder / name).write_text(text)
    torch.manual_seed(2)
    save_file({"linear.weight": torch.randn(8, 8), "linear.bias": torch.randn(8)}, folder / "weights.safetensors")
    return config


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, BuildResult]:
    """The project, built once, and its cache."""
    folder = tmp_path_factory.mktemp("first")
    config = make_project(folder / "project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETDEV_CACHE_DIR", str(folder / "cache"))
        patch.chdir(config.parent)
        return config.parent, folder / "cache", etdev.build(config, verify=False)


@pytest.fixture
def config(first: tuple[Path, Path, BuildResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of both, elsewhere; the current folder is the project's."""
    project, cache, _ = first
    shutil.copytree(project, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(cache, tmp_path / "cache")
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project" / "etdev.toml"


def again(config: Path, *overrides: str, **settings: object) -> BuildResult:
    """A build of the first target, without verification."""
    defaults = {"targets": ["cpu"], "verify": False}
    return etdev.build(config, overrides=list(overrides), **(defaults | settings))  # type: ignore[arg-type]


def kind(target: TargetResult) -> str:
    """How much a build has done for a target."""
    if not target.seconds:
        assert UNCHANGED in target.notes
        return "nothing"
    return "all" if "lower" in target.seconds else "link"


def kinds(result: BuildResult) -> tuple[str, ...]:
    """Of all targets."""
    return tuple(kind(target) for target in result.targets)


def runtime_of(target: TargetResult) -> CheckResult:
    """The comparison with the model."""
    return next(check for check in target.checks if check.name == "runtime")


def written(folder: Path) -> dict[str, bytes]:
    """Every file of the output folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_unchanged_project_is_not_built(first: tuple[Path, Path, BuildResult], config: Path) -> None:
    before = written(config.parent / "build")
    result = again(config, targets=())

    assert kinds(result) == ("nothing", "nothing")
    assert written(config.parent / "build").keys() == before.keys()
    for name in ("cpu", "small"):
        assert result[name].sha256 == first[2][name].sha256
        assert result[name].model_copy(update={"notes": (), "seconds": {}}) == first[2][name].model_copy(
            update={"notes": (), "seconds": {}}
        )


@pytest.mark.integration
@pytest.mark.nightly
def test_a_limit_alone_quantizes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache has the outputs of the quantized model on the calls of its verification."""
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "cache"))
    config = write_project(tmp_path, LINEAR_CONFIG + QUANTIZED, model=LINEAR, data=LINEAR_DATA)
    limited = "targets.small.budget.file='1MiB'"
    before = etdev.build(config)["small"]
    assert (kind(before), runtime_of(before).status) == ("all", "passed"), runtime_of(before)

    after = etdev.build(config, overrides=[limited])["small"]
    assert kind(after) == "link"
    assert after.seconds.keys().isdisjoint({"export", "quantize"})
    assert QUANTIZED_AGAIN not in after.notes
    assert runtime_of(after) == runtime_of(before)

    verified = etdev.verify(config)["small"]
    assert verified.seconds.keys().isdisjoint({"export", "quantize"})
    assert runtime_of(verified) == runtime_of(before)
    assert open_store().stats().references == 1

    sessions = "targets.small.verify.sessions='data:sessions'"
    other = etdev.build(config, overrides=[sessions])["small"]
    assert kind(other) == "link"
    assert "quantize" in other.seconds, "calls that nothing is known of"
    assert QUANTIZED_AGAIN in other.notes
    assert runtime_of(other).status == "passed"
    assert "quantize" not in etdev.build(config, overrides=[sessions, limited])["small"].seconds


@pytest.mark.integration
def test_an_unchanged_project_needs_no_torch(config: Path) -> None:
    """Nor any stage, so that it takes well below a second (judging point: 0.5 s)."""
    script = (
        "import sys; from etdev.cli.app import run; code = run(['build', '--no-verify', '-q']); "
        "print(code, sorted({'torch', 'executorch', 'etdev.linker', 'etdev.validator'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=config.parent, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(shutil.rmtree, id="no output folder"),
        pytest.param(lambda out: (out / "cpu" / "tiny.pte").write_bytes(b"ET12"), id="another program"),
        pytest.param(lambda out: (out / "cpu" / "tiny.object.json").write_text("{}"), id="a broken sidecar"),
        pytest.param(lambda out: (out / "small" / "report.json").unlink(), id="no report"),
        pytest.param(lambda out: (out / "cpu" / "tiny.pte.rejected").write_bytes(b"ET12"), id="a rejected program"),
    ],
)
def test_outputs_are_put_back(config: Path, damage: Callable[[Path], object]) -> None:
    out = config.parent / "build"
    result = again(config, targets=())  # So that the report names this folder.
    before = written(out)
    damage(out)
    assert kinds(again(config, targets=())) == ("nothing", "nothing")
    after = written(out)
    assert after == before
    assert result.path("cpu").read_bytes() == after["cpu/tiny.pte"]


@pytest.mark.parametrize(
    "setting",
    [
        'targets.cpu.memory.planner="naive"',
        "targets.cpu.memory.alignment=64",
        "targets.cpu.elide.views=false",
        'targets.cpu.inplace.ops="none"',
        'targets.cpu.io.forward.inputs="caller"',
        "targets.cpu.budget.file=1000000",
        "targets.cpu.verify.atol=1.0",
    ],
)
@pytest.mark.sampled(3)
def test_what_the_linker_reads_exports_nothing(config: Path, setting: str) -> None:
    result = again(config, setting)
    assert list(result["cpu"].seconds) == ["link", "write"]
    assert kinds(result) == ("link",)
    assert kinds(again(config, setting)) == ("nothing",)
    assert kinds(again(config)) == ("nothing",)  # What was built before is still there.


def test_another_planner_gives_another_plan_of_the_same_program(
    first: tuple[Path, Path, BuildResult], config: Path
) -> None:
    before = first[2]["cpu"]
    after = again(config, 'targets.cpu.memory.planner="naive"')["cpu"]

    assert (before.planner, after.planner) == ("best", "naive")
    assert after.memory["cpu"] > before.memory["cpu"]
    assert after.methods[0].operators == before.methods[0].operators
    assert any("linked again" in note for note in after.notes)


def test_what_is_linked_again_is_verified_like_a_new_one(config: Path) -> None:
    target = again(config, 'targets.cpu.memory.planner="greedy"', verify=True)["cpu"]
    assert list(target.seconds) == ["load", "link", "write", "verify"]
    ran = {check.name for check in target.checks if check.status == "passed"}
    assert ran == {"bytes", "plan", "placement", "kernels", "runtime", "replay", "native"}
    same = again(config, 'targets.cpu.memory.planner="greedy"', verify=True)["cpu"]
    assert (same.seconds, same.checks) == ({}, target.checks)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    """A change of one text in a file."""

    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return change


def _one_byte_of_a_weight(folder: Path) -> None:
    content = bytearray((folder / "weights.safetensors").read_bytes())
    content[-3] ^= 1
    (folder / "weights.safetensors").write_bytes(content)


NOT_BUILT = '[run]\njobs = 2\n[deploy.here]\ntarget = "cpu"\nuri = "file:out"\n'
"""What says how to build and where to deploy."""


def _quietly(folder: Path) -> None:
    """Of the same size, and the clock is set back."""
    place = folder / "deep.py"
    before = place.stat()
    edit("deep.py", "2.0", "3.0")(folder)
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(edit("model.py", "relu()", "sigmoid()"), "all", id="the model's code"),
        pytest.param(edit("deep.py", "2.0", "3.0"), "all", id="a module that its modules import"),
        pytest.param(_one_byte_of_a_weight, "all", id="a byte of a weight"),
        pytest.param(edit("package/number.py", "0.5", "0.75"), "all", id="a module of a package"),
        pytest.param(_quietly, "all", id="the same size and time"),
        pytest.param(edit("words.txt", "c", "d"), "all", id="a declared input"),
        pytest.param(edit("numbers.txt", "1.5", "1.25"), "all", id="a file that nobody declared"),
        pytest.param(edit("etdev.toml", "[2, 8]", "[4, 8]"), "all", id="a shape"),
        pytest.param(edit("etdev.toml", '"sizes:of"', "{ n = 1 }"), "all", id="a constant"),
        pytest.param(edit("sizes.py", "8", "9"), "all", id="code of the constants"),
        pytest.param(lambda folder: (folder / "extra.py").write_text(""), "all", id="a module that was missing"),
        pytest.param(edit("etdev.toml", "[targets.cpu]", "# Why.\n[targets.cpu]"), "nothing", id="a comment"),
        pytest.param(edit("etdev.toml", "[targets.cpu]", f"{NOT_BUILT}[targets.cpu]"), "nothing", id="a deployment"),
        pytest.param(lambda folder: (folder / "notes.py").write_text("x = 1"), "nothing", id="another module"),
    ],
)
@pytest.mark.sampled(5)
def test_a_change(config: Path, change: Callable[[Path], object], expected: str) -> None:
    change(config.parent)
    assert kinds(again(config)) == (expected,)
    assert kinds(again(config)) == ("nothing",)


@pytest.mark.integration
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(edit("calibration.txt", "2", "3"), id="calibration data"),
        pytest.param(edit("calibration.py", "2, 8", "2, 8,"), id="code of the calibration"),
    ],
)
@pytest.mark.nightly
def test_a_change_of_what_one_target_needs(config: Path, change: Callable[[Path], object]) -> None:
    """Calibration came after the float model was lowered."""
    change(config.parent)
    assert kinds(again(config, targets=())) == ("nothing", "all")


@pytest.mark.nightly
def test_the_metrics_code_is_not_the_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verification has imported it before the model is lowered, all the same."""
    config = make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert kinds(again(config, verify=True)) == ("all",)
    assert kinds(again(config, verify=True)) == ("nothing",)
    edit("metric.py", "2", "3")(tmp_path)
    result = again(config, verify=True)
    assert kinds(result) == ("link",)
    assert next(check for check in result["cpu"].checks if check.name == "runtime").summary.startswith("3 samples")


@pytest.mark.nightly
def test_a_change_back_is_no_change(config: Path) -> None:
    edit("deep.py", "2.0", "3.0")(config.parent)
    assert kinds(again(config)) == ("all",)
    edit("deep.py", "3.0", "2.0")(config.parent)
    assert kinds(again(config)) == ("nothing",)


@pytest.mark.nightly
def test_what_failed_is_not_remembered(config: Path) -> None:
    for _ in range(2):
        result = again(config, "targets.cpu.budget.file=1", verify=True)
        assert (result["cpu"].status, kind(result["cpu"])) == ("gate failed", "link")
        unmet = again(config, require=["device"], verify=True)
        assert (unmet.exit_code, kind(unmet["cpu"])) == (3, "link")


def test_files_that_nobody_declared_are_named(first: tuple[Path, Path, BuildResult]) -> None:
    text = (
        "the project's code reads numbers.txt: etdev notices changes of them. Name files that native code opens in "
        "`model.inputs`, because etdev does not see that"
    )
    assert text in first[2]["cpu"].notes


def test_files_that_the_config_names_are_not_read_by_the_project(tmp_path: Path) -> None:
    """A list of operators was called a file of the code, in a target of another config too."""
    config = write_project(tmp_path, LINEAR_CONFIG + '[targets.cpu]\nruntime.operators = "ops.yaml"\n', model=LINEAR)
    (tmp_path / "ops.yaml").write_text("operators: {aten::linear.out: {}, aten::addmm.out: {}}\n")
    notes = etdev.build(config, verify=False)["cpu"].notes
    assert not [note for note in notes if "ops.yaml" in note]


@pytest.mark.integration
@pytest.mark.nightly
def test_what_changes_during_a_build_is_not_remembered(config: Path) -> None:
    """It may have been read before or after."""
    model = config.with_name("model.py")
    text = model.read_text()
    model.write_text(text + "\nwith open('numbers.txt', 'w') as file:\n    file.write('2.5')\n")
    before = config.with_name("etdev.lock").read_bytes()
    for _ in range(2):
        result = again(config)
        assert kinds(result) == ("all",)
        assert any("numbers.txt changed during the build" in note for note in result["cpu"].notes)
    assert config.with_name("etdev.lock").read_bytes() == before
    model.write_text(text)
    assert kinds(again(config)) == ("all",)
    assert kinds(again(config)) == ("nothing",)


def test_a_declared_input_that_is_gone_is_told(config: Path) -> None:
    (config.parent / "words.txt").unlink()
    with pytest.raises(LoadError) as caught:
        again(config)
    assert caught.value.message == f"there is no file {config.parent / 'words.txt'}"
    assert caught.value.where == "etdev.toml:9:11 (model.inputs[0])"


@pytest.mark.parametrize(
    "place",
    ["etdev.pipeline.cache.facts.versions", "etdev.pipeline.cache.facts._source_digest"],
)
@pytest.mark.sampled(1)
def test_versions_count(config: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    found = {"etdev": "0", "torch": "9.9"} if place.endswith("versions") else "5e1f"
    monkeypatch.setattr(place, lambda *_: found)
    assert kinds(again(config)) == ("all",)


@pytest.mark.nightly
def test_no_cache_builds_again(first: tuple[Path, Path, BuildResult], config: Path) -> None:
    result = again(config, cache=False)
    assert kinds(result) == ("all",)
    assert result["cpu"].sha256 == first[2]["cpu"].sha256


@pytest.mark.integration
@pytest.mark.nightly
def test_a_cache_that_cannot_be_written_fails_no_build(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (config.parent / "file").write_text("")
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(config.parent / "file" / "cache"))
    result = again(config, targets=["cpu"])
    assert kinds(result) == ("all",)
    assert any(note.startswith("the cache") for note in result.notes)


@pytest.mark.nightly
def test_what_the_cache_has_lost_is_built(config: Path) -> None:
    for path in (Path(os.environ["ETDEV_CACHE_DIR"]) / "files").glob("*/*"):
        path.write_bytes(b"")
    shutil.rmtree(config.parent / "build")
    assert kinds(again(config)) == ("all",)
    shutil.rmtree(config.parent / "build")
    assert kinds(again(config)) == ("nothing",)


def test_what_the_cache_has_wrong_is_built(config: Path) -> None:
    """Of the right size, so that it shows only when it is read."""
    for path in (Path(os.environ["ETDEV_CACHE_DIR"]) / "files").glob("*/*"):
        path.write_bytes(bytes(path.stat().st_size))
    shutil.rmtree(config.parent / "build")
    assert kinds(again(config)) == ("all",)
    shutil.rmtree(config.parent / "build")
    assert kinds(again(config)) == ("nothing",)


def test_a_model_that_cannot_be_loaded_any_more_is_told(config: Path) -> None:
    (config.parent / "model.py").unlink()
    with pytest.raises(LoadError, match="there is no module 'model'"):
        again(config)


@pytest.mark.integration
def test_a_check_runs_once_its_tools_are_there(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed CMake changed nothing: the target, with a check that had not run, came from the cache."""
    native_host()
    missing = Missing("no CMake of version 3.28 or later was found", NATIVE_EXTRA)
    with monkeypatch.context() as patch:
        patch.delenv("ETDEV_NATIVE_HOST", raising=False)
        for module in "executable", "toolchain":
            patch.setattr(f"etdev.runtime.native.{module}.find_toolchain", lambda: missing)
        (before,) = again(config, verify=True).targets
        assert next(check for check in before.checks if check.name == "native").hint == NATIVE_EXTRA
        assert kinds(again(config, verify=True)) == ("nothing",)
    result = again(config, verify=True)
    assert next(check for check in result["cpu"].checks if check.name == "native").status == "passed"
    assert kinds(result) == ("link",)
    assert kinds(again(config, verify=True)) == ("nothing",)
