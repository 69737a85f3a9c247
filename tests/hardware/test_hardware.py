"""CUDA allocation verification, on simulated devices everywhere and on CUDA where there is a device (E4, A2, A9).

``ETDEV_HARDWARE_FILES`` names a folder that ``make_files.py`` filled; without it, the programs are built.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="programs are run with torch")

from etdev.program import read, write
from etdev.runtime.device_map import parse_device_map, registry_for
from hardware.check import SIMULATED, Checked, check_files, describe_machine, main, real_registry, table

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The programs."""
    given = os.environ.get("ETDEV_HARDWARE_FILES")
    folder = Path(given) if given else tmp_path_factory.mktemp("hardware")
    if not given:
        pytest.importorskip("executorch", reason="executorch builds the programs")
        from hardware.make_files import make_files

        make_files(folder)
    found = sorted(folder.glob("*.pte"))
    assert found
    return found


def simulated(files: list[Path]) -> list[Checked]:
    return check_files(files, registry_for(parse_device_map(SIMULATED)))


@pytest.mark.nightly
def test_on_simulated_devices(files: list[Path]) -> None:
    found = simulated(files)

    assert [item.name for item in found] == ["branch", "cache", "convolutions", "parts", "shared"]
    assert [item.problems for item in found] == [()] * len(found)
    assert all(item.memory.buffers and item.calls for item in found)


@pytest.mark.nightly
def test_the_cache_stays_on_its_device(files: list[Path]) -> None:
    """What a call copies is its input and its output, not what the device keeps (B5)."""
    from etdev.inspection.transfers import transfers_per_call

    (cache,) = [file for file in files if file.stem == "cache"]
    copied = transfers_per_call(read(cache).method("forward"))

    assert (copied.h2d_bytes, copied.d2h_bytes) == (8 * 16 * 4, 16 * 4)


@pytest.mark.nightly
def test_what_is_wrong_is_found(files: list[Path], tmp_path: Path) -> None:
    (parts,) = [file for file in files if file.stem == "parts"]
    with np.load(parts.with_suffix(".npz")) as arrays:
        other = {name: array + (1e-2 if ".out." in name else 0) for name, array in arrays.items()}
    np.savez(tmp_path / "expected.npz", **other)
    write(read(parts), tmp_path / "expected.pte")
    plan = read(parts).method("forward")
    instructions = plan.chains[0].instructions
    shorter = replace(plan, chains=(replace(plan.chains[0], instructions=instructions[1:]),))
    write(replace(read(parts), execution_plan=(shorter,)), tmp_path / "program.pte")
    np.savez(tmp_path / "program.npz", **dict(np.load(parts.with_suffix(".npz"))))

    expected, program = simulated([tmp_path / "expected.pte", tmp_path / "program.pte"])

    assert "is off by" in expected.problems[0]
    assert program.problems


@pytest.mark.nightly
def test_the_command(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(files[0].parent), "--simulate"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("simulated devices\n\n| program | device | buffer | bytes |")
    assert out.count("| passed |") == len(files)
    assert main([str(tmp_path)]) == 3
    assert capsys.readouterr().out == f"skipped: {tmp_path} holds no programs; make_files.py builds them\n"


@pytest.mark.hardware
def test_on_cuda(files: list[Path]) -> None:
    found = check_files(files, real_registry())

    print(f"\n{describe_machine()}\n", *table(found), sep="\n")
    assert [item.problems for item in found] == [()] * len(found)
    for item in found:
        assert all("device" in buffer.memory for buffer in item.memory.buffers)
        assert all(memory.free_after == memory.free_before for memory in item.memory.devices)
