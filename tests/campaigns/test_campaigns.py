"""Every campaign in small: it finds nothing, and reaches what it is to reach."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etdev.program import write
from program import hand
from support.on_devices import two_devices

if TYPE_CHECKING:
    from program.real import RealFile

pytestmark = pytest.mark.integration

FILES = ("portable", "state", "external", "dynamic", "branches", "loops", "methods", "xnnpack", "xnnpack_inline")


def run(repository: Path, folder: Path, name: str, *arguments: object) -> dict[str, Any]:
    """Run a campaign in a process of its own; return its counts."""
    script = repository / "benchmarks" / "campaigns" / f"{name}.py"
    command = [sys.executable, script, "--folder", folder / name, "--json", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not found["wrong"]
    return found


@pytest.mark.parametrize(
    ("count", "names"), [(200, FILES[:4]), pytest.param(1500, FILES, marks=pytest.mark.nightly)], ids=["some", "many"]
)
def test_files(
    repository: Path, tmp_path: Path, make_real: Callable[[str], RealFile], count: int, names: tuple[str, ...]
) -> None:
    for name, program in {"everything": hand.everything(), "loop": hand.loop(), "devices": two_devices()}.items():
        write(program, tmp_path / f"{name}.pte")
    real = [make_real(name) for name in names]
    files = [*sorted(tmp_path.glob("*.pte")), *(file.pte for file in real), *(file.ptd for file in real if file.ptd)]
    found = run(repository, tmp_path, "files", "--count", count, "--every", 3, "--files", *files)
    ends = found["ends"]
    assert found["trials"] == count
    assert ends["read .pte refused"] > 600 * count // 1500
    assert ends["read .pte accepted"] > 250 * count // 1500
    assert ends["read .ptd refused"] > 30 * count // 1500
    for end in ("relink done", "plan passed", "placement passed", "verify done", "describe done"):
        assert ends[end] > 40 * count // 1500, end
    for end in ("relink refused", "plan failed", "placement failed", "page done", "diff done"):
        assert ends[end] > count // 1500, end
    assert ends["stock same before and after"] > count // 1500


@pytest.mark.nightly
def test_covered(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="needs the dependency group `fuzz`")
    place = tmp_path / "base"
    place.mkdir()
    files = {"everything": hand.everything(), "loop": hand.loop(), "devices": two_devices()}
    for name, program in files.items():
        write(program, place / f"{name}.pte")
    found = run(repository, tmp_path, "covered", "--seconds", 240, "--count", 400, "--files", *place.iterdir())
    assert found["trials"] >= 400
    assert found["corpus"] > len(files)
    assert found["ends"]["read refused"] > 100
    assert found["ends"]["relink done"] > 5


def test_a_program_without_methods_is_damaged(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no part that structure-aware damage could change: the campaign ended with an error."""
    atheris = pytest.importorskip("atheris", reason="needs the dependency group `fuzz`")
    monkeypatch.syspath_prepend(repository / "benchmarks" / "campaigns")
    covered = importlib.import_module("covered")
    monkeypatch.setattr(atheris, "Mutate", lambda content, largest: content[:largest])
    write(replace(hand.loop(), execution_plan=()), tmp_path / "empty.pte")
    content = (tmp_path / "empty.pte").read_bytes()
    for seed in range(20):
        assert covered._Fuzzer.damaged(None, content, 1 << 16, seed) == content


@pytest.mark.nightly
def test_graphs(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'etdev[ray]'")
    found = run(repository, tmp_path, "graphs", "--count", 40)
    assert found["ends"]["future: result"] > 200
    # A task behind a lost worker ends in either error: it depends on how far the task was.
    assert found["ends"].get("future: WorkerLost", 0) + found["ends"].get("future: PoisonedError", 0) > 4
    assert found["ends"]["fault wrong"] > 5


def test_a_descriptor_that_another_thread_closes_is_not_left(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign ended with an error where one was closed after it was listed."""
    monkeypatch.syspath_prepend(repository / "benchmarks" / "campaigns")
    graphs = importlib.import_module("graphs")
    closed, kept = (os.open(tmp_path / name, os.O_CREAT) for name in ("closed", "kept"))
    waiting, readlink = {f"/proc/self/fd/{closed}"}, os.readlink

    def close_before(link: Path) -> str:
        if str(link) in waiting:
            os.close(closed)
            waiting.clear()
        return readlink(link)

    with monkeypatch.context() as patch:
        patch.setattr(os, "readlink", close_before)
        left = graphs._left()["descriptors"]
    os.close(kept)
    assert not waiting
    assert str(tmp_path / "kept") in left
    assert str(tmp_path / "closed") not in left


@pytest.mark.nightly
def test_a_run_goes_on_where_it_was_interrupted(repository: Path, tmp_path: Path) -> None:
    """Two halves find the same as the whole."""
    transports = ("--transports", "thread")
    whole = run(repository, tmp_path / "whole", "graphs", "--count", 20, *transports)
    halves = [
        run(repository, tmp_path / "halves", "graphs", "--start", start, "--count", 10, *transports)
        for start in (0, 10)
    ]
    drawn = [end for end in whole["ends"] if end.startswith(("thread", "fault"))]
    assert {end: whole["ends"][end] for end in drawn} == {
        end: sum(half["ends"].get(end, 0) for half in halves) for end in drawn
    }


@pytest.mark.nightly
def test_models(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    plain = tmp_path / "plain"
    found = run(repository, tmp_path, "models", "--count", 6, "--plain", plain)
    assert len(list(plain.iterdir())) >= 6
    assert found["ends"]["plain right"] > 2
    assert found["ends"]["relink same bits"] > 2
    assert found["ends"]["same as eager within tolerance"] > 2
    assert found["ends"]["same bits as the object program"] > 1


@pytest.mark.nightly
def test_every_operation_is_drawn_and_exported(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop was listed that PyTorch refuses, so that no module ever had one."""
    torch = pytest.importorskip("torch", reason="needs the extra `build`")
    monkeypatch.syspath_prepend(repository / "benchmarks" / "campaigns")
    drawn_models, quick_torch = importlib.import_module("drawn_models"), importlib.import_module("quick_torch")
    utils = quick_torch.control_flow
    monkeypatch.setattr(utils, "_hop_compile_and_call", quick_torch._direct(utils._hop_compile_and_call))
    drawn = [drawn_models.draw(random.Random(number)) for number in range(1500)]
    lines = "\n".join(line for model in drawn for method in model.lines.values() for line in method)
    for kind, operations in drawn_models.OPERATIONS.items():
        for operation in operations:
            text = re.sub(r"\\{[abst]\\}", r"\\w+", re.escape(operation))
            assert re.search(rf"^(t\d+ = )?{text}$", lines, re.MULTILINE), f"{kind}: {operation}"
    assert {"embedding", "layer", "state again"} <= {kind for model in drawn for kind in model.kinds}
    assert any(model.dynamic for model in drawn)
    for kind in ("cond", "map", "scan", "while"):
        for operation in drawn_models.OPERATIONS[kind]:
            method = {"forward": [f"t0 = {operation.format(a='x0')}"]}
            made = drawn_models.Drawn(method, [], {"forward": [("x0", "float32", (3, 4))]}, {"forward": ["t0"]})
            exported = torch.export.export(drawn_models.module(made.source()), (torch.ones(3, 4),))
            assert "higher_order" in str(exported.graph), operation


STATEFUL = """
import argparse, pathlib, sys
import models
from campaign import Settings
from drawn_models import Drawn

lines = [
    "self.s0.add_(1); t0 = self.s0 + x0",
    "t1 = torch.cond(t0.sum() > 0, lambda v: torch.cond(v.amax() > 1, torch.exp, torch.tanh, (v,)), torch.sin, (t0,))",
    "self.s1.copy_(t1 * 0.5 + self.s1); t2 = self.s1 - t0",
]
layers = [f"self.register_buffer('{name}', torch.zeros([4]))" for name in ("s0", "s1")]
drawn = Drawn({"forward": lines}, layers, {"forward": [("x0", "float32", (4,))]}, {"forward": ["t2"]})
folder = pathlib.Path(sys.argv[1])
campaign = models._Campaign(Settings(0, folder, argparse.Namespace(plain=None)))
variants = list(models._variants(drawn))
assert len({one.source() for one in variants}) == len(variants) == 12
files = [campaign._plain_files.make(one, one.source(), "portable", folder) for one in variants]
print(sum(campaign._is_right(one, one.source(), file) for one, file in zip(variants, files)))
"""


@pytest.mark.nightly
def test_a_plan_that_is_right_is_right_in_all_variants(repository: Path, tmp_path: Path) -> None:
    """Buffers of a variant had a content that plain ExecuTorch drops, so that any refusal seemed to be justified."""
    pytest.importorskip("executorch", reason="needs the extra `build`")
    script = tmp_path / "stateful.py"
    script.write_text(STATEFUL)
    path = os.pathsep.join([str(repository / "benchmarks" / "campaigns"), str(repository / "tests")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, script, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.stdout.split()[-1:] == ["12"], done.stdout + done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="faults are preloaded as on Linux")
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.nightly
def test_faults(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("executorch", reason="needs the extra `build`")
    found = run(repository, tmp_path, "faults", "--count", 20)
    assert found["ends"]["exit code 0"] > 5
    assert found["ends"]["exit code 130"] > 0
    assert found["ends"]["exit code 4"] > 0
    found = run(repository, tmp_path, "faults", "--count", 4, "--each", "ENOSPC")
    assert found["ends"]["ENOSPC"] == found["ends"]["exit code 4"] == 4
