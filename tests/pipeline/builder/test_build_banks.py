"""Builds with memory banks (G1): outputs, the report, and the error of a model that does not fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import ConfigError
from etdev.pipeline.cache.lock import read_lock
from etdev.program import model as m
from etdev.program import read
from etdev.program.footprint import buffer_sizes
from support.commands import run_etdev
from support.projects import write_project

pytestmark = pytest.mark.integration

MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
            self.register_buffer("seen", torch.zeros(4, 64))

        def forward(self, x):
            self.seen.add_(x)
            for layer in self.layers:
                x = torch.tanh(layer(x)) + x
            return x + self.seen

        def peek(self, x):
            return torch.sigmoid(self.seen) * x

    def make():
        return Net().eval()
"""
CONFIG = """
    version = 1
    [project]
    name = "banked"
    [model]
    entry = "model:make"
    share_state = true
    [methods.forward]
    inputs = [{ name = "x", dtype = "float32", shape = [4, 64] }]
    [methods.peek]
    inputs = [{ name = "x", dtype = "float32", shape = [4, 64] }]
    [[targets.mcu.memory.banks]]
    name = "fast"
    id = 2
    size = "3KiB"
    [[targets.mcu.memory.banks]]
    name = "slow"
    id = 1
    size = "16KiB"
    [targets.mcu.memory.pin]
"""


def places(program: m.Program, name: str) -> set[tuple[int, int]]:
    """Return the memory ids and offsets of the state ``name`` in all methods."""
    return {
        (tensor.allocation_info.memory_id, tensor.allocation_info.memory_offset)
        for plan in program.execution_plan
        for _, tensor in plan.tensors()
        if tensor.extra_tensor_info and tensor.extra_tensor_info.fully_qualified_name == name and tensor.allocation_info
    }


def test_methods_share_state_in_one_bank(tmp_path: Path) -> None:
    swapped = CONFIG.replace("id = 2", "id = 0").replace("id = 1", "id = 2").replace("id = 0", "id = 1")
    limits = '    [targets.mcu.budget]\n    memory = { slow = "1KiB", fast = "3KiB", cpu = "19KiB" }\n'
    folder = write_project(tmp_path, swapped + 'state = "slow"\n    inputs = "fast"\n' + limits, model=MODEL)
    result = etdev.build(folder)
    assert [(check.name, check.summary) for check in result["mcu"].checks if check.status == "failed"] == []
    checks = {check.name: check.status for check in result["mcu"].checks}
    assert (checks["plan"], checks["runtime"], checks["replay"]) == ("passed", "passed", "passed")
    program = read(result.path("mcu"))
    assert {memory_id for memory_id, _ in places(program, "seen")} == {2}
    assert len(places(program, "seen")) == 1
    for plan in program.execution_plan:
        tensor = plan.values[plan.inputs[0]]
        assert isinstance(tensor, m.Tensor)
        assert tensor.allocation_info is not None
        assert tensor.allocation_info.memory_id == 1
    sizes = buffer_sizes(program)
    report = result["mcu"].banks
    assert report is not None
    banks = {bank.name: bank for bank in report.banks}
    assert {name: bank.index for name, bank in banks.items()} == {"fast": 1, "slow": 2}
    for bank in banks.values():
        assert sizes[bank.index] <= bank.used <= bank.capacity
    assert banks["slow"].used >= 1024
    figures = result["mcu"].figures
    assert figures is not None
    assert figures.banks == {name: sizes[bank.index] for name, bank in banks.items()}
    assert read_lock((tmp_path / "etdev.lock").read_text(), "").targets["mcu"].figures == figures
    (budget,) = (check for check in result["mcu"].checks if check.name == "budget")
    assert "memory of bank slow 1.00 KiB of 1.00 KiB" in budget.summary
    assert report.lower_bound <= report.cost
    assert banks["slow"].cost == 4 * banks["fast"].cost


@pytest.mark.nightly
def test_a_model_that_does_not_fit_leaves_no_file(tmp_path: Path) -> None:
    config = CONFIG.replace('"3KiB"', '"1KiB"').replace('"16KiB"', '"1KiB"')
    write_project(tmp_path, config, model=MODEL)
    done = run_etdev("build", folder=tmp_path)
    assert done.returncode == 1
    text = " ".join(done.stderr.split())
    assert "the tensors do not fit into the memory banks: the 2 banks together have 2,048 bytes, but" in text
    assert "are in use while instruction" in text
    assert "the result of instruction" in text
    assert "etdev.toml:" in text
    assert "use smaller inputs, or quantize the model, or let the caller own inputs and outputs" in text
    size = re.search(r"enlarge bank 'slow' to ([\d,]+) bytes", text)
    assert size is not None
    assert not (tmp_path / "build" / "mcu" / "banked.pte").exists()

    enlarged = config.replace('id = 1\n    size = "1KiB"', f"id = 1\n    size = {size[1].replace(',', '')}")
    assert enlarged != config
    write_project(tmp_path, enlarged, model=MODEL)
    assert run_etdev("build", folder=tmp_path).returncode == 0


@pytest.mark.slow
def test_a_remedy_that_the_target_uses_is_not_advised(tmp_path: Path) -> None:
    config = CONFIG.replace('"3KiB"', '"1KiB"').replace('"16KiB"', '"1KiB"')
    settings = '[targets.mcu]\n    io.forward = { inputs = "caller" }\n    memory.tiling = "always"\n    [[targets.mcu'
    config = config.replace("[[targets.mcu", settings, 1)
    write_project(tmp_path, config, model=MODEL)
    text = " ".join(run_etdev("build", folder=tmp_path).stderr.split())
    assert "do not fit into the memory banks" in text
    assert "quantize the model" in text
    assert "tiling" not in text
    assert "`io`" not in text


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ('inputs = { z = "fast" }', "`targets.mcu.memory.pin.inputs.z`: no method has such an input"),
        ('outputs = { 1 = "fast" }', "no method of the program has the output '1'"),
        ('state = { sen = "fast" }', "no method of the program has the state 'sen'"),
        ('delegates = { EthosUBackend = "fast" }', "no method of the program has the backend 'EthosUBackend'"),
    ],
)
@pytest.mark.nightly
def test_a_pin_of_a_name_that_does_not_exist(pin: str, message: str, tmp_path: Path) -> None:
    folder = write_project(tmp_path, CONFIG + f"    {pin}\n", model=MODEL)
    with pytest.raises(ConfigError) as caught:
        etdev.build(folder)
    assert message in str(caught.value)


WIDE = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return self.narrow(torch.relu(self.wide(x)))

    def make():
        return Net().eval()
"""


@pytest.mark.nightly
def test_a_method_that_exceeds_all_banks_is_tiled(tmp_path: Path) -> None:
    project = write_project(
        tmp_path,
        """
        version = 1
        [model]
        entry = "model:make"
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = [8, 16] }]
        [targets.free]
        [targets.roomy.memory]
        banks = [{ name = "sram", id = 1, size = "4KiB" }]
        [targets.small.memory]
        banks = [{ name = "sram", id = 1, size = "2KiB" }]
        [targets.caller]
        memory.banks = [{ name = "sram", id = 1, size = "2KiB" }]
        io.forward = { inputs = "caller", outputs = "caller" }
        """,
        model=WIDE,
    )
    result = etdev.build(project)
    decisions = {name: result[name].methods[0].tiling for name in ("free", "roomy", "caller", "small")}
    assert [bool(decision and decision.tiled) for decision in decisions.values()] == [False, False, False, True]
    assert result["caller"].memory == {"cpu": 2048}, "the caller's tensors are in no bank"
    small = decisions["small"]
    assert small is not None
    assert small.reason == "without tiling, the method needs 2,560 bytes, and the memory banks have 2,048"
    assert result["small"].banks is not None
    assert [check.name for check in result["small"].checks if check.status == "failed"] == []


PLANNERS = """
    from etdev.planner.banks import bank_planner, banked_greedy

    @bank_planner
    def good(problem):
        return list(zip(*banked_greedy(problem)))

    @bank_planner
    def bad(problem):
        return [(problem.allowed(index)[-1], 0) for index in range(len(problem.buffers))]

    @bank_planner
    def failing(problem):
        return problem.bank
"""


@pytest.mark.nightly
def test_a_planner_of_ones_own_chooses_the_banks(tmp_path: Path) -> None:
    folder = write_project(tmp_path, CONFIG, model=MODEL, planners=PLANNERS)
    built = etdev.build(folder, overrides=["targets.mcu.memory.planner=planners:good"])
    target = built["mcu"]
    checks = {check.name: check.status for check in target.checks}
    assert (target.planner, checks["plan"], checks["replay"]) == ("planners:good", "passed", "passed")
    assert target.banks is not None
    assert target.banks.cost == target.banks.greedy_cost
    for name, message in (
        ("bad", "the plan is wrong: planner planners:bad: bank 'slow': collision at instant"),
        ("failing", "the planner 'planners:failing' failed: AttributeError: 'BankedProblem' object has no attribute"),
    ):
        done = run_etdev("build", "--set", f"targets.mcu.memory.planner=planners:{name}", folder=tmp_path)
        assert done.returncode == 4
        assert message in " ".join(done.stderr.split())
        assert "targets.mcu.memory.planner" in done.stderr
