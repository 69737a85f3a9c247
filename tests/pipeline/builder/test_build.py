"""Whole builds of small projects: what is left on disk, what is reported, and what never happens."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from shutil import copytree
from textwrap import dedent
from typing import ClassVar

import pytest

import etdev
from etdev.config.check_names import BUILT_IN
from etdev.errors import ConfigError, LoadError, QuantizeError, UsageError, WriteError
from etdev.pipeline.project.progress import Silent
from etdev.pipeline.results.result import BuildResult
from support.commands import etdev_process, run_etdev
from support.mounts import fill, small_disk
from support.projects import FOUR_TARGETS, LINEAR, LINEAR_CONFIG, SAMPLES, write_project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    """Four targets of one model, built and verified."""
    return etdev.build(write_project(tmp_path_factory.mktemp("built"), FOUR_TARGETS, model=LINEAR, data=SAMPLES))


RUN = ("runtime", "plan", "replay")
"""Checks that a plain target has answers for, whatever its config says."""


def files(folder: Path, *, objects: bool = False) -> list[str]:
    """Every file below a folder that a build may have written, half-written ones included.

    Object programs only if asked for: they are there from emission on, whatever becomes of the artifact.
    """
    every = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return [name for name in every if objects or not name.endswith((".object.pte", ".object.json"))]


def test_every_target_is_built_and_verified(built: BuildResult) -> None:
    """E2: from a config to verified programs."""
    assert built.ok
    assert [target.name for target in built.targets] == ["portable", "xnnpack", "int8", "w4"]
    for target in built.targets:
        content = built.path(target.name).read_bytes()
        assert target.artifact == f"build/{target.name}/tiny.pte"
        assert (target.size, target.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert content[4:8] == b"ET12"
        checks = {check.name: check.status for check in target.checks}
        assert tuple(checks) == tuple(BUILT_IN)
        assert (checks["kernels"], checks["runtime"]) == ("passed", "passed")
    assert next(check for check in built["portable"].checks if check.name == "accuracy").value == 3
    assert [target.quantize for target in built.targets] == [None, None, "pt2e-xnnpack", "8da4w"]
    assert built["portable"].methods[0].operators == ("aten::linear.out", "aten::relu.out")
    assert built["xnnpack"].methods[0].delegate_calls == {"XnnpackBackend": 1}
    assert not built["portable"].methods[0].stateful


def test_who_holds_a_quantized_model_to_nothing_is_told(built: BuildResult) -> None:
    """One that its calibration had ruined was good without a word."""
    told = [target.name for target in built.targets if any("set `min_snr_db`" in note for note in target.notes)]
    assert told == ["int8", "w4"]


@pytest.mark.integration
def test_a_model_that_its_calibration_spoils_is_called_so(tmp_path: Path) -> None:
    """The build of a model calibrated on zeros was good, with the same note as on healthy models."""
    data = SAMPLES.replace("def score", "def zeros():\n        return [(torch.zeros(2, 32),)]\n\n    def score")
    config = FOUR_TARGETS.replace('calibration = "data:samples"', 'calibration = "data:zeros"')
    target = etdev.build(write_project(tmp_path, config, model=LINEAR, data=data), targets=["int8"])["int8"]
    constant, spoiled = target.notes
    assert constant.startswith("the calibration data of input 'x' of method 'forward' has one value only, 0: ")
    assert spoiled.startswith("quantization seems to have spoiled output 0 of 'forward': its SNR against the float ")
    assert "check the data of `quantize.int8.calibration`" in spoiled
    assert "set `min_snr_db` or `accuracy` in `targets.int8.verify`" in spoiled


def test_nan_in_calibration_data_stops_a_build(tmp_path: Path) -> None:
    data = SAMPLES + "\n    def nan():\n        return [*samples(), (torch.full((2, 32), float('nan')),)]\n"
    config = FOUR_TARGETS.replace('calibration = "data:samples"', 'calibration = "data:nan"')
    with pytest.raises(QuantizeError, match="sample 3: 64 of 64 values of input 'x' are infinite or NaN") as caught:
        etdev.build(write_project(tmp_path, config, model=LINEAR, data=data), targets=["int8"])
    assert str(caught.value.where).endswith("(quantize.int8.calibration)")


def test_an_input_without_elements(tmp_path: Path) -> None:
    """The config refused a size of 0, which ExecuTorch builds and runs: a cache that is empty at first, for example."""
    model = """
        import torch

        class Net(torch.nn.Module):
            def forward(self, x, past):
                return torch.cat([past, x], 0).softmax(-1), past * 2
    """
    inputs = ", ".join(
        f'{{ name = "{name}", dtype = "float32", shape = [{n}, 4] }}' for name, n in (("x", 3), ("past", 0))
    )
    config = f"""
        version = 1
        project.name = "m"
        model.entry = "model:Net"
        methods.forward.inputs = [{inputs}]
        [targets.portable]
        [targets.xnnpack]
        partitioners = [{{ backend = "xnnpack" }}]
    """
    result = etdev.build(write_project(tmp_path, config, model=model))
    for target in (result["portable"], result["xnnpack"]):
        assert target.status == "built"
        assert {check.name: check.status for check in target.checks}["runtime"] == "passed"


def test_every_stage_is_timed(built: BuildResult) -> None:
    assert list(built["portable"].seconds) == ["load", "export", "lower", "emit", "link", "write", "verify"]
    assert list(built["int8"].seconds) == ["quantize", "lower", "emit", "link", "write", "verify"]


def test_the_report_is_the_result(built: BuildResult) -> None:
    """``report.json`` and what the Python API returns are one model."""
    for target in built.targets:
        report = BuildResult.model_validate_json((built.path(target.name).parent / "report.json").read_text())
        assert report == built.model_copy(update={"targets": (target,)})


def test_nothing_else_is_written(built: BuildResult) -> None:
    root = Path(built.config).parent

    names = ("tiny.pte", "report.json", "tiny.object.pte", "tiny.object.json")
    each = (f"{target.name}/{name}" for target in built.targets for name in names)
    assert files(root / "build", objects=True) == sorted(["results.json", *each])


def test_verifying_again_finds_the_same(built: BuildResult) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(built.config).parent.rglob("*") if path.is_file()}
    again = etdev.verify(built.config)

    assert again.exit_code == 0
    for target in built.targets:
        # A build has just linked, and can say what was proved.
        checks = [check for check in target.checks if check.name != "plan"]
        assert [check for check in again[target.name].checks if check.name != "plan"] == checks
        assert {check.name: check.status for check in again[target.name].checks}["plan"] == "passed"
        assert (again[target.name].size, again[target.name].sha256) == (target.size, target.sha256)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_program_of_another_target_is_rejected_but_left_alone(built: BuildResult, tmp_path: Path) -> None:
    """A changed artifact: the one of a model with other weights."""
    config = write_project(tmp_path, FOUR_TARGETS, model=LINEAR.replace("seed(1)", "seed(2)"), data=SAMPLES)
    artifact = tmp_path / "build" / "portable" / "tiny.pte"
    artifact.parent.mkdir(parents=True)
    artifact.write_bytes(built.path("portable").read_bytes())
    found = etdev.verify(config, targets=["portable"])

    assert (found["portable"].status, found.exit_code) == ("rejected", 4)
    assert files(artifact.parent) == ["tiny.pte"]


@pytest.mark.parametrize("size", [0, 4, 100, 3000])
def test_a_truncated_artifact_is_broken(built: BuildResult, tmp_path: Path, size: int) -> None:
    config = write_project(tmp_path, FOUR_TARGETS, model=LINEAR, data=SAMPLES)
    artifact = tmp_path / "build" / "portable" / "tiny.pte"
    artifact.parent.mkdir(parents=True)
    artifact.write_bytes(built.path("portable").read_bytes()[:size])
    found = etdev.verify(config, targets=["portable"])["portable"]
    checks = {check.name: check for check in found.checks}

    assert (found.status, found.exit_code) == ("rejected", 4)
    assert checks["bytes"].summary.startswith("the file is malformed: ")
    assert checks["bytes"].hint == f"build it again: `etdev build -c {config} portable`"
    assert checks["kernels"].summary == "the check `bytes` failed"


def test_a_target_that_was_not_built_cannot_be_verified(tmp_path: Path) -> None:
    config = write_project(tmp_path, FOUR_TARGETS, model=LINEAR, data=SAMPLES)
    with pytest.raises(LoadError) as caught:
        etdev.verify(config, targets="w4")
    assert caught.value.message == f"target 'w4' has no artifact: {tmp_path / 'build' / 'w4' / 'tiny.pte'}"
    assert caught.value.hint == f"run `etdev build -c {config} w4` first"


GATES = (
    LINEAR_CONFIG
    + """
    samples = "data:samples"
    [targets.large]
    budget.file = "1KiB"
    [targets.good]
    [targets.exact]
    lowering = "stock"
    verify.atol = 0
    [targets.low]
    verify.accuracy = { fn = "data:score", min = 4 }
"""
)


@pytest.mark.integration
def test_a_missed_gate_keeps_its_artifact_and_the_other_targets_are_built(tmp_path: Path) -> None:
    result = etdev.build(write_project(tmp_path, GATES, model=LINEAR, data=SAMPLES))

    assert result.exit_code == 1
    assert [target.status for target in result.targets] == ["gate failed", "built", "gate failed", "gate failed"]
    failed = {
        target.name: [check.name for check in target.checks if check.status == "failed"] for target in result.targets
    }
    assert failed == {"large": ["budget"], "good": [], "exact": ["runtime"], "low": ["accuracy"]}
    for target in result.targets:
        assert files(tmp_path / "build" / target.name) == ["report.json", "tiny.pte"]


@pytest.mark.integration
@pytest.mark.nightly
def test_growth_against_the_output_of_an_earlier_build(tmp_path: Path) -> None:
    """Also where the target is found again, and in a verification, which has the ops from the report of the build."""
    limits = "budget = { delegated = 0, growth = { file = '1%', weights = 0, memory = '0%' } }\n"
    config = dedent(LINEAR_CONFIG) + 'samples = "data:samples"\n[targets.cpu]\n' + limits
    path = write_project(tmp_path, config + '[baseline]\nfrom = "before"\n', model=LINEAR, data=SAMPLES)

    def growth(result: BuildResult) -> tuple[str, str]:
        (target,) = result.targets
        checks = {check.name: check for check in target.checks}
        assert checks["budget"].status == "passed"
        return target.status, checks["growth"].summary

    assert growth(etdev.build(path)) == ("built", "there is no baseline: there is no before")
    copytree(tmp_path / "build", tmp_path / "before")
    unchanged = ("built", "against before/cpu: file the same, weights the same, memory of cpu the same")
    assert growth(etdev.build(path)) == growth(etdev.build(path)) == growth(etdev.verify(path)) == unchanged

    (tmp_path / "model.py").write_text((tmp_path / "model.py").read_text().replace("32, 32)", "32, 40)"))
    grown = etdev.build(path)
    assert (grown.exit_code, growth(grown)[0]) == (1, "gate failed")
    assert files(tmp_path / "build" / "cpu") == ["report.json", "tiny.pte"]
    failures = {check.name: check.problems for check in grown["cpu"].checks if check.status == "failed"}
    assert [problem.partition(":")[0] for problem in failures["growth"]] == ["file", "weights", "memory of cpu"]
    assert "; float32 [40, 32] for aten::linear.out +5,120 bytes" in failures["growth"][1]
    assert growth(etdev.verify(path))[0] == "gate failed"


SORTING = """
    import torch
    from torch import nn

    class Linear(nn.Module):
        def forward(self, x):
            values, indices = torch.sort(x)
            return values, indices
"""
"""``aten::sort.values`` has no kernel in executorch 1.4.1."""


def test_a_rejected_program_takes_the_place_of_a_good_one_and_back(tmp_path: Path) -> None:
    config = LINEAR_CONFIG + "    [targets.cpu]\n    [targets.later]\n"
    folder = tmp_path / "build" / "cpu"
    write_project(tmp_path, config, model=LINEAR)
    good = etdev.build(tmp_path / "etdev.toml", targets=["cpu"])
    assert files(folder) == ["report.json", "tiny.pte"]

    write_project(tmp_path, config, model=SORTING)
    bad = etdev.build(tmp_path / "etdev.toml")
    assert bad.exit_code == 4
    assert [target.status for target in bad.targets] == ["rejected", "rejected"]  # Both were tried.
    checks = {check.name: check for check in bad["cpu"].checks}
    assert checks["kernels"].problems == (
        "method 'forward' needs operators that the wheel's runtime lacks: aten::sort.values",
    )
    assert checks["runtime"].status == "not run"
    assert files(folder) == ["report.json", "tiny.pte.rejected"]
    assert bad.path("cpu") == folder / "tiny.pte.rejected"
    assert json.loads((folder / "report.json").read_text())["targets"][0]["status"] == "rejected"
    with pytest.raises(LoadError, match="has no artifact"):
        etdev.verify(tmp_path / "etdev.toml", targets=["cpu"])

    write_project(tmp_path, config, model=LINEAR)
    again = etdev.build(tmp_path / "etdev.toml", targets=["cpu"])
    assert files(folder) == ["report.json", "tiny.pte"]
    assert again["cpu"].sha256 == good["cpu"].sha256


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        pytest.param(
            {"overrides": ['methods.forward.samples="data:wrong"']},
            LoadError,
            "sample 0: input 'x' has the shape [3, 32], but is declared as [2, 32]: axis 0 is 3 instead of 2",
            id="samples of the wrong shape",
        ),
        pytest.param({"targets": ["cpu", "gpu"]}, UsageError, "no target matches 'gpu'", id="no such target"),
        pytest.param({"require": ["runtme"]}, UsageError, "there is no check 'runtme'", id="no such check"),
        pytest.param(
            {"overrides": ['targets.cpu.runtime.operators="none.yaml"']},
            ConfigError,
            "none.yaml cannot be read",
            id="no list of operators",
        ),
    ],
)
def test_an_error_leaves_the_artifact_of_before(
    tmp_path: Path, settings: dict[str, list[str]], error: type[Exception], said: str
) -> None:
    data = SAMPLES + "\n    def wrong():\n        yield (torch.ones(3, 32),)\n"
    config = write_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n", model=LINEAR, data=data)
    artifact = tmp_path / "build" / "cpu" / "tiny.pte"
    artifact.parent.mkdir(parents=True)
    artifact.write_bytes(b"of before")

    with pytest.raises(error) as caught:
        etdev.build(config, **settings)  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert [name for name in files(tmp_path / "build") if name != "results.json"] == ["cpu/tiny.pte"]
    assert artifact.read_bytes() == b"of before"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('methods.forward.samples="data:sample"', "has no attribute"),
        ('targets.cpu.verify.accuracy={ fn = "data:scor", min = 1 }', "has no attribute"),
        ('methods.forward.samples="data:wrong"', "axis 0 is 3 instead of 2"),
    ],
)
def test_what_verification_would_refuse_is_refused_before_anything_slow(
    tmp_path: Path, setting: str, said: str
) -> None:
    """A misspelled metric, or samples of another size, were errors only after the export and the lowering."""

    class Told(Silent):
        stages: ClassVar[list[str]] = []

        def started(self, target: str, stage: str) -> None:
            self.stages.append(stage)

    Told.stages.clear()
    data = SAMPLES + "\n    def wrong():\n        yield (torch.ones(3, 32),)\n"
    config = write_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n", model=LINEAR, data=data)
    with pytest.raises(LoadError, match=said):
        etdev.build(config, overrides=[setting], progress=Told())
    assert Told.stages == []


@pytest.mark.integration
@pytest.mark.nightly
def test_without_verification_nothing_passed(tmp_path: Path) -> None:
    config = write_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n", model=LINEAR)
    result = etdev.build(config, verify=False)

    assert (result["cpu"].status, result.exit_code) == ("built", 0)
    assert {(check.status, check.summary) for check in result["cpu"].checks} == {
        ("not run", "verification was turned off")
    }
    assert etdev.build(config, verify=False, require=["runtime"]).exit_code == 3


@pytest.mark.parametrize(
    ("require", "code"),
    [
        (["runtime"], 0),
        (["device"], 3),
        pytest.param(["accuracy"], 3, marks=pytest.mark.nightly),
        (["runtime", "plan"], 0),
        pytest.param(["plan", "replay"], 0, marks=pytest.mark.nightly),
        pytest.param(["plan", "device"], 3, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.sampled(2)
def test_a_required_check_must_run(tmp_path: Path, require: list[str], code: int) -> None:
    for place, settings in (("", {"require": require}), (f"verify.require = {require}", {})):
        config = write_project(tmp_path, LINEAR_CONFIG + f"    [targets.cpu]\n    {place}\n", model=LINEAR)
        result = etdev.build(config, **settings)  # type: ignore[arg-type]
        assert result.exit_code == code
        assert [check.name for check in result["cpu"].unmet] == [check for check in require if check not in RUN]
        assert result.path("cpu").name == "tiny.pte"


def test_a_stateful_model_is_reported_as_such(tmp_path: Path) -> None:
    """It never was: the exported program does not tell which buffers it changes, only the lowered one does."""
    model = """
        import torch
        from torch import nn

        class Linear(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("total", torch.zeros(2, 32))

            def forward(self, x):
                self.total += x
                return self.total.clone()
    """
    result = etdev.build(write_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n", model=model))

    assert result.ok
    assert result["cpu"].methods[0].stateful


@pytest.mark.integration
def test_artifacts_can_go_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "elsewhere" / "programs"
    config = write_project(tmp_path / "project", LINEAR_CONFIG + "    [targets.cpu]\n", model=LINEAR)
    result = etdev.build(config, overrides=[f'project.out="{out}"'], verify=False)

    assert result.path("cpu") == out / "cpu" / "tiny.pte"
    assert files(out) == ["cpu/report.json", "cpu/tiny.pte", "results.json"]
    assert files(tmp_path / "project") == ["etdev.toml", "model.py"]


@pytest.mark.integration
def test_a_full_disk_leaves_the_artifact_of_before(tmp_path: Path) -> None:
    """Judging point 7."""
    config = write_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n", model=LINEAR)
    with small_disk(tmp_path / "build", "size=64k") as disk:
        before = etdev.build(config, verify=False).path("cpu").read_bytes()
        (disk / "results.json").unlink()  # A build begins with that, and would find the room.
        fill(disk)
        with pytest.raises(WriteError, match="no space left on the device") as caught:
            etdev.build(config, verify=False, overrides=["targets.cpu.memory.alignment=64"])  # Not what the cache has.

        assert caught.value.where == str(disk / "cpu" / "tiny.pte")
        assert caught.value.exit_code == 4
        assert files(disk) == ["cpu/report.json", "cpu/tiny.pte", "filler"]
        assert (disk / "cpu" / "tiny.pte").read_bytes() == before


def hashes(result: BuildResult) -> dict[str, str]:
    return {target.name: target.sha256 for target in result.targets}


def build_in_process(folder: Path, seed: str, *arguments: str) -> BuildResult:
    """A process of its own, under a hash seed."""
    command = ("build", "--no-verify", "-q", "--output", "json", *arguments)
    done = run_etdev(*command, folder=folder, env={"PYTHONHASHSEED": seed})
    assert done.returncode == 0, done.stderr
    return BuildResult.model_validate_json(done.stdout)


@pytest.mark.integration
def test_the_same_bytes_everywhere(built: BuildResult, tmp_path: Path) -> None:
    """Judging point 6: in another folder, under another hash seed, in another order and alone."""
    expected = hashes(built)
    head, *tables = FOUR_TARGETS.split("    [targets.")
    reverse = "    [targets.".join([head, *reversed(tables)])
    folder = tmp_path / "another folder" / "deeper"
    write_project(folder, reverse, model=LINEAR, data=SAMPLES)

    assert hashes(build_in_process(folder, "1")) == expected
    alone = etdev.build(folder / "etdev.toml", targets=["int8"], verify=False, cache=False)
    assert hashes(alone) == {"int8": expected["int8"]}


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["portable", "xnnpack", "int8", "w4"])
def test_the_same_bytes_alone(built: BuildResult, tmp_path: Path, name: str) -> None:
    write_project(tmp_path, FOUR_TARGETS, model=LINEAR, data=SAMPLES)
    alone = build_in_process(tmp_path, "2", "-t", name)
    assert hashes(alone) == {name: hashes(built)[name]}


WAITING = """
    import pathlib, time, torch

    def samples():
        yield (torch.ones(2, 32),)
        pathlib.Path("ready").touch()
        while True:
            time.sleep(0.01)
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("number", "arguments"),
    [
        pytest.param(signal.SIGINT, (), id="SIGINT", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, (), id="SIGTERM", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, ("-j", "2"), id="SIGINT, two at a time", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupt_leaves_nothing_half_written(
    tmp_path: Path, number: signal.Signals, arguments: tuple[str, ...]
) -> None:
    """Ctrl-C goes to the whole group, a service manager's SIGTERM to the process; either way no child is left."""
    config = LINEAR_CONFIG + '    samples = "data:samples"\n    [targets.cpu]\n    [targets.other]\n'
    write_project(tmp_path, config, model=LINEAR, data=WAITING)
    artifact = tmp_path / "build" / "cpu" / "tiny.pte"
    artifact.parent.mkdir(parents=True)
    artifact.write_bytes(b"of before")

    process = etdev_process("build", *arguments, folder=tmp_path, start_new_session=True)
    deadline = time.monotonic() + 200
    while not (tmp_path / "ready").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    group = members(process.pid)
    assert len(group) == 2 if not arguments else len(group) > 3  # The build, its workers, and their stock runtimes.
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, out) == (130, "")
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err
    deadline = time.monotonic() + 20 * bool(arguments)  # The runtimes of workers end when these have.
    while members(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert members(process.pid) == []
    assert files(tmp_path / "build") == ["cpu/tiny.pte"]
    assert artifact.read_bytes() == b"of before"


def members(group: int) -> list[int]:
    """Processes of a group that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(process_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found
