"""``etdev verify`` on the command line."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import etdev
from etdev.cli import app
from support.projects import LINEAR, LINEAR_CONFIG, SAMPLES, write_project

TARGETS = """
    samples = "data:samples"
    [targets.cpu]
    lowering = "stock"
    verify.accuracy = { fn = "data:score", min = 3 }
    [targets.other]
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an artifact and its report, which every project here gets."""
    config = write_project(tmp_path_factory.mktemp("built"), LINEAR_CONFIG + TARGETS, model=LINEAR, data=SAMPLES)
    return etdev.build(config, targets=["cpu"], verify=False).path("cpu").parent


@pytest.fixture
def program(built: Path) -> bytes:
    """The artifact."""
    return (built / "tiny.pte").read_bytes()


@pytest.fixture
def run(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line beside a project of which the target ``cpu`` was built: exit code, stdout, stderr."""
    write_project(tmp_path, LINEAR_CONFIG + TARGETS, model=LINEAR, data=SAMPLES)
    shutil.copytree(built, tmp_path / "build" / "cpu")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = app.run(arguments)
        return code, *capfd.readouterr()

    return run


def test_a_built_target(run: Run, tmp_path: Path) -> None:
    code, out, err = run("verify", "cpu")

    assert code == 0
    assert out.startswith("cpu  build/cpu/tiny.pte  ")
    assert "  runtime    passed   3 samples" in out
    assert "  accuracy   passed   data:score = 3 (at least 3)" in out
    assert out.endswith("tiny: 1 target, 1 good\n")
    first, *lines = err.splitlines()
    assert first == "verifying cpu"
    stages = [re.sub(r" \d[\d.]* \w+$", " ended", line) for line in lines]
    assert stages == ["cpu: load ended", "cpu: export ended", "cpu: verify", "cpu: verify ended"]
    names = ["report.json", "tiny.object.json", "tiny.object.pte", "tiny.pte"]
    assert sorted(path.name for path in (tmp_path / "build" / "cpu").iterdir()) == names


def test_as_json(run: Run) -> None:
    code, out, err = run("verify", "-q", "c*", "--output", "json")

    assert (code, err) == (0, "")
    (target,) = json.loads(out)["targets"]
    assert (target["name"], target["status"]) == ("cpu", "built")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            (),
            4,
            "error: target 'other' has no artifact: {folder}/build/other/tiny.pte\nhelp: run `etdev build other`",
        ),
        (("gpu",), 2, "no target matches 'gpu'\nhelp: did you mean 'cpu'? targets: cpu, other\n"),
        (("cpu", "--require", "x"), 2, "there is no check 'x'"),
    ],
)
def test_what_cannot_be_verified(run: Run, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    found, out, err = run("verify", "-q", *arguments)

    assert (found, out) == (code, "")
    assert said.format(folder=tmp_path) in err


@pytest.mark.parametrize(
    ("overrides", "code", "verdict"),
    [
        (("--set", "targets.cpu.verify.accuracy.min=4"), 1, "1 missed a gate (accuracy)"),
        (("--set", "targets.cpu.verify.min_snr_db=400"), 1, "1 missed a gate (runtime)"),
        (("--set", "targets.cpu.budget.file=100"), 1, "1 missed a gate (budget)"),
        (("--set", 'targets.cpu.runtime.kernels=["quantized"]'), 4, "1 rejected (kernels)"),
        (("--require", "device"), 3, "1 without a required check (device)"),
    ],
)
@pytest.mark.sampled(2)
def test_other_demands_on_the_same_file(
    run: Run, tmp_path: Path, program: bytes, overrides: tuple[str, ...], code: int, verdict: str
) -> None:
    """Whatever is found, the file stays as it is: `verify` changes nothing."""
    found, out, err = run("verify", "-q", "cpu", *overrides)

    assert (found, err) == (code, "")
    assert out.splitlines()[-1] == f"tiny: 1 target, {verdict}"
    assert (tmp_path / "build" / "cpu" / "tiny.pte").read_bytes() == program


@pytest.mark.parametrize("place", [8, 40, -100])
def test_a_changed_artifact(run: Run, tmp_path: Path, program: bytes, place: int) -> None:
    """A flipped byte of padding was called good."""
    changed = bytearray(program)
    changed[place] ^= 0xFF
    (tmp_path / "build" / "cpu" / "tiny.pte").write_bytes(changed)
    code, out, _ = run("verify", "cpu")

    assert code == 4
    assert "  bytes      failed   the file or its data has changed since the build: its sha256 is " in out
    assert "  note       the file or its data has changed since the build: its sha256 is " in out
    assert "help: build it again (`etdev build cpu`)" in out


@pytest.mark.parametrize(
    "report", [None, b"", b"[]", b'{"targets": [{"name": "other"}]}', b'{"targets": [{"name": "cpu"}]}']
)
@pytest.mark.sampled(2)
def test_without_a_report_of_it_there_is_nothing_to_compare(run: Run, tmp_path: Path, report: bytes | None) -> None:
    place = tmp_path / "build" / "cpu" / "report.json"
    place.unlink()
    if report is not None:
        place.write_bytes(report)
    with (tmp_path / "build" / "cpu" / "tiny.pte").open("ab") as file:
        file.write(bytes(16))
    code, out, _ = run("verify", "-q", "cpu")

    assert code == 0
    assert "changed since it was built" not in out


def test_a_longer_artifact(run: Run, tmp_path: Path, program: bytes) -> None:
    (tmp_path / "build" / "cpu" / "tiny.pte").write_bytes(program + bytes(16))
    code, out, _ = run("verify", "-q", "cpu")

    assert code == 4
    size = len(program)
    assert f"changed since the build: it has {size + 16:,} bytes, but report.json has {size:,}" in out


def test_a_changed_weight(run: Run, tmp_path: Path, program: bytes) -> None:
    changed = bytearray(program)
    changed[-2000] ^= 0x40  # Among the weights: the exponent of a float32, or so.
    for offset in range(-2000, -1000):
        changed[offset] ^= 0x40
    (tmp_path / "build" / "cpu" / "tiny.pte").write_bytes(changed)
    (tmp_path / "build" / "cpu" / "report.json").unlink()
    code, out, _ = run("verify", "-q", "cpu")

    assert code == 4
    assert out.splitlines()[-1] == "tiny: 1 target, 1 rejected (runtime, replay, native)"


def test_after_a_rejected_build_the_hint_says_so(run: Run, tmp_path: Path) -> None:
    artifact = tmp_path / "build" / "cpu" / "tiny.pte"
    artifact.rename(artifact.with_name("tiny.pte.rejected"))
    code, _, err = run("verify", "-q", "cpu")

    assert code == 4
    assert "the last build rejected it" in err
