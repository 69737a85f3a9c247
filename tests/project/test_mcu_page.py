"""docs/mcu.md: its commands work, and its figures are those of examples/mcu."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import torch

import etdev
from etdev import backends
from etdev.execution.float_ends import quantized_inputs
from etdev.pipeline.results.result import TargetResult
from etdev.program import read
from etdev.program.analysis.quantized_ends import quantized_ends
from etdev.runtime.native.toolchain import Missing, find_toolchain
from runner.compiled import Compiled, expected
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

CONFIG = "examples/mcu/etdev.toml"


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "mcu.md").read_text()


@pytest.fixture(scope="module")
def folder(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the commands of the page work: a copy of the example, at its place in a clone."""
    folder = tmp_path_factory.mktemp("clone")
    without = shutil.ignore_patterns("build", "__pycache__", "etdev.lock")
    shutil.copytree(repository / "examples" / "mcu", folder / "examples" / "mcu", ignore=without)
    return folder


def run(command: str, folder: Path) -> str:
    """Run a command of the page with this interpreter; what it prints."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", re.sub("^etdev ", f"{shlex.quote(sys.executable)} -m etdev ", command)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def commands(page: str) -> list[str]:
    """The indented lines of the page, each once."""
    return list(dict.fromkeys(re.findall(r"^ {4}(\S.*)$", page, re.MULTILINE)))


def rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading."""
    table = page.partition(f"## {heading}")[2].partition("|---")[2]
    found = re.match(r".*\n((?:\|.*\n)+)", table)
    assert found is not None
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def result(folder: Path, target: str) -> dict[str, Any]:
    report = json.loads((folder / "examples" / "mcu" / "build" / target / "report.json").read_text())
    found: dict[str, Any] = report["targets"][0]
    return found


def _constants(header: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"constexpr size_t (k\w+) = (\d+)", header)}


@pytest.mark.nightly
def test_the_host(page: str, folder: Path) -> None:
    """Sizes of arenas, pools and the file; the project of the page computes what the stock runtime computes."""
    found = find_toolchain()
    if isinstance(found, Missing):
        pytest.skip(f"{found.reason}: {found.remedy}")
    shown = [run(line, folder) for line in commands(page) if "profile arm" not in line]
    assert any("host: 1 target" in text or "1 target, 1 good" in text for text in shown)
    header = (folder / "reader-cc" / "reader_memory.h").read_text()
    sizes, file = _constants(header), folder / "examples" / "mcu" / "build" / "host" / "reader.pte"
    keys = ("kArenaSramBytes", "kArenaSlowBytes", "kMethodPoolBytes", "kTempPoolBytes")
    assert [number(row[2]) for row in rows(page, "How large")] == [*(sizes[key] for key in keys), file.stat().st_size]
    (estimate,) = re.findall(r"32 bits: about (\d+) bytes", page)
    assert f"// On 32 bits: about {estimate}." in header
    banks = [
        f"sram {sizes[keys[0]]} B of 16.0 KiB, slow {sizes[keys[1]]} B of 64.0 KiB",
        "564 B in sram, 512 B in slow",
    ]
    built = run(f"etdev build -c {CONFIG} host -v", folder)
    assert all(text in built and text in page for text in banks)

    ends = quantized_ends(read(file))
    rows_of = [(torch.rand(1, 1, 2, 8, generator=torch.Generator().manual_seed(at)),) for at in range(6)]
    given = [("forward", quantized_inputs(ends, "forward", inputs)) for inputs in rows_of]
    outputs, _ = Compiled(folder / "reader-cc", "reader").calls(folder / "out", given)
    runtime = shared_runtime()
    runtime.load(file)
    assert outputs == [expected(runtime.call(method, inputs)) for method, inputs in given]


@pytest.mark.nightly
def test_state_in_the_first_bank(page: str, folder: Path) -> None:
    setting = 'targets.host.memory.pin.state="sram"'
    assert f"--set '{setting}'" in page
    report = _target(folder, "host", setting).banks
    assert report is not None
    (size,) = re.findall(r"all (\d+) bytes are in `sram`", page)
    assert [(bank.name, bank.used) for bank in report.banks] == [("sram", int(size)), ("slow", 0)]


def _target(folder: Path, name: str, *overrides: str, **settings: Any) -> TargetResult:
    built = etdev.build(folder / CONFIG, targets=[name], overrides=list(overrides), verify=False, **settings)
    assert built.ok
    return built[name]


@pytest.mark.nightly
def test_the_npu(page: str, folder: Path) -> None:
    """Each memory mode of the page, and the program of `examples/mcu`."""
    state = backends.get("ethos-u").availability()
    if not state.available:
        pytest.skip(f"ethos-u: {state.reason}; {state.remedy}")
    for line in commands(page):
        if "profile arm" in line and "--set" not in line:
            run(line, folder)
    target = result(folder, "npu")
    status = {check["name"]: check["status"] for check in target["checks"]}
    assert (status["tosa"], status["replay"], status["budget"]) == ("passed", "passed", "passed")
    used = {bank["name"]: bank["used"] for bank in target["banks"]["banks"]}
    (memory,) = target["methods"][0]["delegate_memory"]
    table = {row[0].partition(":")[0]: row[3] for row in rows(page, "How large")}
    assert number(table["arena of the bank sram"]) == used["sram"]
    assert number(table["arena of the bank slow"]) == used["slow"]
    assert number(table["temp pool"]) == memory["sizes"]["scratch"]
    assert number(table["flash"]) == target["size"]


@pytest.mark.parametrize("mode", range(5))
@pytest.mark.nightly
def test_memory_modes(page: str, folder: Path, mode: int) -> None:
    state = backends.get("ethos-u").availability()
    if not state.available:
        pytest.skip(f"ethos-u: {state.reason}; {state.remedy}")
    processor, name, scratch, fast, constants, place = rows(page, "How do I choose")[mode]
    options = f'{{ target = "{processor}", memory_mode = "{name}" }}'
    overrides = [
        f'targets.npu.partitioners=[{{ backend = "ethos-u", options = {options} }}]',
        f'quantize.npu.target="{processor}"',
    ]
    (memory,) = _target(folder, "npu", *overrides, profile="arm").methods[0].delegate_memory
    kind = {"DRAM": "dram", "on-chip flash": "on_chip_flash", "off-chip flash": "off_chip_flash"}[place]
    sizes = {key: memory.sizes.get(key, 0) for key in ("scratch", "fast_scratch", kind)}
    assert sizes == {"scratch": number(scratch), "fast_scratch": number(fast), kind: number(constants)}
