"""Relinks of programs in memory banks: every reuse of bytes is kept, and no bank grows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import etdev
from etdev.errors import CapacityError, LinkError, UnlinkableError, UsageError
from etdev.linker import LinkOptions, link, link_foreign
from etdev.linker.banks import Banks
from etdev.planner.banks import Bank
from etdev.program import Program, read, write
from etdev.program import model as m
from etdev.program.footprint import buffer_sizes, planned_memory
from linker.programs_drawn import calls, objects
from linker.test_banks import WITHOUT_SHRINKING, two_banks
from linker.test_meaning import METHODS, meaning
from program.hand import tensor
from support.files import ADD, SIN, chain, delegated, method, program, sin


def alternating(length: int) -> Program:
    """``sin`` after ``sin``: even results in buffer 1, odd ones in buffer 2, each at an address of its own."""
    values = [
        replace(tensor(4, at=0), allocation_info=m.AllocationDetails(1 + index % 2, 16 * (index // 2)))
        for index in range(length + 1)
    ]
    return program(method(values, [sin(index, index + 1) for index in range(length)]))


def relinked(found: Program, folder: Path, **arguments: Any) -> tuple[etdev.RelinkResult, Program]:
    write(found, folder / "a.pte")
    result = etdev.relink(folder / "a.pte", folder / "b.pte", **arguments)
    return result, read(folder / "b.pte")


@pytest.mark.parametrize("length", [2, 7])
def test_outputs_reuse_operands_of_other_banks(length: int, tmp_path: Path) -> None:
    one, _ = relinked(chain(length), tmp_path)
    result, written = relinked(alternating(length), tmp_path)
    assert result.methods[0].inplace.taken == one.methods[0].inplace.taken == length
    assert result.plan == "passed"
    sizes = buffer_sizes(written)
    assert all(size <= buffer_sizes(alternating(length))[buffer] for buffer, size in sizes.items())
    assert sum(sizes.values()) == sum(planned_memory(chain(0)).values()) == 16
    assert result.banks is not None
    assert relinked(written, tmp_path)[1] == written


def test_arguments_of_delegates_stay_in_their_banks(tmp_path: Path) -> None:
    """A device may reach one bank only. The results of two kernels in other banks may not move there and back."""
    found = delegated()
    (plan,) = found.execution_plan
    call = next(item for chain in plan.chains for item in chain.instructions if isinstance(item, m.DelegateCall))
    moved = list(plan.values)
    inside = {index for index in call.args if isinstance(moved[index], m.Tensor)}
    for index in inside:
        value = moved[index]
        assert isinstance(value, m.Tensor)
        if value.allocation_info is not None:
            moved[index] = replace(value, allocation_info=replace(value.allocation_info, memory_id=2))
    spare = [tensor(4, at=0), tensor(4, at=16)]
    first = len(moved)
    sizes = (0, 64, plan.non_const_buffer_sizes[1])
    chains = (m.Chain((m.KernelCall(1, (first, first + 1, first + 1)), *plan.chains[0].instructions)),)
    banked = replace(
        plan,
        values=(*moved, *spare),
        inputs=(*plan.inputs, first),
        outputs=(*plan.outputs, first + 1),
        chains=chains,
        non_const_buffer_sizes=sizes,
        operators=(ADD, SIN),
    )
    _, written = relinked(replace(found, execution_plan=(banked,)), tmp_path)
    (after,) = written.execution_plan
    calls_after = [item for chain in after.chains for item in chain.instructions if isinstance(item, m.DelegateCall)]
    for item in calls_after:
        for index in item.args:
            value = after.values[index]
            if isinstance(value, m.Tensor) and value.allocation_info is not None:
                assert value.allocation_info.memory_id == 2


@WITHOUT_SHRINKING
@given(data=st.data())
def test_no_bank_grows_and_the_meaning_stays(data: st.DataObject) -> None:
    """The file is a link into banks without any sharing of bytes on purpose, as another toolchain makes it."""
    found = data.draw(objects(most_methods=2))
    made = data.draw(calls(METHODS[: len(found.program.execution_plan)]))
    without = LinkOptions(elide=frozenset(), inplace={}, planner="greedy")
    whole = planned_memory(link(found.program, without, found.sidecar).program)["cpu"]
    banks = two_banks(whole // 2, whole, swapped=data.draw(st.booleans()))
    try:
        banked = link(found.program, replace(without, banks=banks), found.sidecar).program
    except LinkError:
        return
    linked = link_foreign(banked).program
    before = buffer_sizes(banked)
    assert all(size <= before.get(buffer, 0) for buffer, size in buffer_sizes(linked).items())
    assert meaning(found, made, linked, shared=True) == meaning(found, made, banked, shared=True)


def test_a_bank_with_state_alone_keeps_it(tmp_path: Path) -> None:
    """Of two methods, one has state in buffer 1, and both have their temporaries in buffer 2. It went to a buffer 3."""
    state = tensor(4, at=0, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name="state"))
    below = [tensor(4, at=at, buffer=2) for at in (0, 16, 32)]
    sums = m.KernelCall(0, (0, 2, 4, 3, 3))
    copied = m.KernelCall(1, (3, 0, 0))
    keeps = method([state, *below, m.Int(1)], [sin(1, 2), sums, copied], inputs=(1,), outputs=(3,), name="keeps")
    other = method(below, [sin(0, 1), sin(1, 2)], name="other")
    found = program(keeps, other)
    assert buffer_sizes(found) == {1: 16, 2: 48}
    _, written = relinked(found, tmp_path)
    assert buffer_sizes(written) == {1: 16, 2: 16}


def test_banks_of_the_caller(tmp_path: Path) -> None:
    result, written = relinked(chain(4), tmp_path, banks=["fast:2:16", "slow:1:1KiB:64"])
    assert buffer_sizes(written) == {1: 0, 2: 16}
    assert result.banks is not None
    assert [(use.name, use.index, use.capacity, use.used) for use in result.banks.banks] == [
        ("fast", 2, 16, 16),
        ("slow", 1, 1024, 0),
    ]
    assert json.loads(result.to_json())["banks"]["banks"][0]["name"] == "fast"


def test_tensors_that_do_not_fit_into_the_banks(tmp_path: Path) -> None:
    with pytest.raises(CapacityError) as caught:
        relinked(chain(4), tmp_path, banks=["fast:1:8", "slow:2:8"])
    assert "in bank 'fast' (8 B), 8 bytes are missing while the caller fills the inputs" in caught.value.message
    assert caught.value.where == "--bank"
    assert "enlarge bank 'fast' to 16 bytes" in str(caught.value.hint)
    assert not (tmp_path / "b.pte").exists()


@pytest.mark.parametrize(("operator", "advised"), [(SIN, True), (m.Operator("cortex_m::unknown", "out"), False)])
def test_tiling_is_advised_only_for_kernels_that_tile(tmp_path: Path, operator: m.Operator, advised: bool) -> None:
    found = chain(4)
    plan = replace(found.execution_plan[0], operators=(operator,) * len(found.execution_plan[0].operators))
    with pytest.raises(CapacityError) as caught:
        relinked(replace(found, execution_plan=(plan,)), tmp_path, banks=["fast:1:8", "slow:2:8"])
    assert ("memory.tiling" in str(caught.value.hint)) == advised


def test_a_method_that_keeps_its_plan_fits_no_banks(tmp_path: Path) -> None:
    with pytest.raises(UnlinkableError, match="must keep its plan: the file does not say which arguments"):
        relinked(delegated(ambiguous=True), tmp_path, banks=["ram:1:1MiB"])


@pytest.mark.parametrize(
    ("banks", "message"),
    [
        (["ram"], "'ram' is not of the form name:id:size[:alignment]"),
        (["ram:1:1KiB:32:1"], "'ram:1:1KiB:32:1' is not of the form name:id:size[:alignment]"),
        (["a b:1:1KiB"], "'a b' in 'a b:1:1KiB' is not a valid name"),
        (["ram:one:1KiB"], "'one' in 'ram:one:1KiB' is not a memory id"),
        (["ram:0:1KiB"], "'0' in 'ram:0:1KiB' is not a memory id"),
        (["ram:1:1KiX"], "'1KiX' in 'ram:1:1KiX' is not a valid size"),
        (["ram:1:1KiB:24"], "24 in 'ram:1:1KiB:24' is not a valid alignment"),
        (["ram:1:1KiB:8"], "the alignment of 'ram:1:1KiB:8' is less than 16, the alignment of all tensors"),
        (["ram:1:1KiB", "ram:2:1KiB"], "two banks have the name 'ram'"),
        (["a:1:1KiB", "b:1:1KiB"], "two banks have the memory id 1"),
        (["a:1:1KiB", "b:3:1KiB"], "the memory ids of the banks are not consecutive numbers from 1: 1, 3"),
    ],
)
def test_invalid_banks(banks: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        relinked(chain(1), tmp_path, banks=banks)
    assert caught.value.message == message
    assert caught.value.where == "--bank"


@pytest.mark.integration
@pytest.mark.parametrize(("kind", "share"), [("linear", 2), ("linear", 4), ("residual", 2)])
@pytest.mark.nightly
def test_files_of_executorchs_own_planner(kind: str, share: int, tmp_path: Path) -> None:
    """As many outputs are in place as with one buffer, and no bank is larger."""
    torch = pytest.importorskip("torch", reason="torch holds the model")
    planning = pytest.importorskip(
        "executorch.exir.banked_memory_planning", reason="ExecuTorch plans banks from 1.5 on"
    )
    from executorch.exir import ExecutorchBackendConfig, to_edge

    from support.stock import shared_runtime

    class Residual(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(4))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = torch.relu(layer(x) * 2.0 + x)
            return x

    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (torch.nn.Linear(32, 32), torch.nn.GELU(), torch.nn.Tanh())]
    model, example = {
        "linear": (torch.nn.Sequential(*layers), torch.randn(8, 32)),
        "residual": (Residual(), torch.randn(1, 4, 16, 16)),
    }[kind]
    exported = torch.export.export(model.eval(), (example,))

    def emitted(config: Any) -> bytes:
        return bytes(to_edge(exported).to_executorch(config).buffer)

    (tmp_path / "one.pte").write_bytes(emitted(ExecutorchBackendConfig()))
    whole = planned_memory(read(tmp_path / "one.pte"))["cpu"]
    target = planning.TargetMemoryMap([planning.Bank("f", whole // share // 16 * 16, 1), planning.Bank("s", whole, 2)])
    config = ExecutorchBackendConfig(memory_planning_pass=planning.banked_memory_planning_pass(target))
    (tmp_path / "two.pte").write_bytes(emitted(config))
    one = etdev.relink(tmp_path / "one.pte", tmp_path / "one-small.pte")
    two = etdev.relink(tmp_path / "two.pte", tmp_path / "two-small.pte")
    assert two.methods[0].inplace.taken == one.methods[0].inplace.taken > 0
    assert len(etdev.inspect(tmp_path / "two-small.pte").methods[0].inplace) == two.methods[0].inplace.taken
    before, after = (buffer_sizes(read(tmp_path / name)) for name in ("two.pte", "two-small.pte"))
    assert sum(size > 0 for size in before.values()) == 2
    assert all(size <= before.get(buffer, 0) for buffer, size in after.items())
    results = []
    for name in ("two.pte", "two-small.pte"):
        shared_runtime().load(tmp_path / name)
        results.append(shared_runtime().call("forward", [example], fresh=True)[0])
    assert torch.equal(*results)


def test_unequal_banks_are_ordered_by_traffic() -> None:
    """The buffer with more traffic per byte is the preferred bank."""
    from etdev.linker.file_banks import file_banks

    found = alternating(7)
    (plan,) = found.execution_plan
    large = replace(plan, non_const_buffer_sizes=(0, 4096, plan.non_const_buffer_sizes[2]))
    banks = file_banks(replace(found, execution_plan=(large,)))
    assert isinstance(banks, Banks)
    assert banks.ids == (2, 1)
    assert banks.banks[1] == Bank("buffer 1", 4096, 1, banks.banks[0].cost * 4)
    assert file_banks(chain(3)) is None
