"""Files of executorch: read as flatc reads them, and the same to the runtime after a round trip."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etdev.pipeline.relink import relink
from etdev.program import Program, read, write
from etdev.program.delegates import delegate_inputs
from etdev.program.model import JumpFalseCall, TensorShapeDynamism
from program import hand
from program.flatc_json import flatc_json, our_json, same

pytestmark = pytest.mark.integration

if TYPE_CHECKING:
    from program.real import RealFile


@pytest.mark.sampled(3)
def test_reads_what_flatc_reads(real_file: RealFile, tmp_path: Path) -> None:
    assert not same(flatc_json(real_file.pte, tmp_path), our_json(read(real_file.pte)))


@pytest.mark.sampled(3)
def test_flatc_reads_what_we_write(real_file: RealFile, tmp_path: Path) -> None:
    program = read(real_file.pte)
    write(program, tmp_path / "again.pte")
    assert not same(flatc_json(tmp_path / "again.pte", tmp_path), our_json(program))


@pytest.mark.sampled(3)
def test_runs_the_same_when_written_again(real_file: RealFile, tmp_path: Path) -> None:
    program = read(real_file.pte)
    write(program, tmp_path / "again.pte")
    assert read(tmp_path / "again.pte") == program
    expected, found = _run(real_file, real_file.pte), _run(real_file, tmp_path / "again.pte")
    assert expected
    assert len(found) == len(expected)
    assert all(_identical(a, b) for a, b in zip(found, expected, strict=True))
    assert (tmp_path / "again.pte").stat().st_size <= real_file.pte.stat().st_size + 4096


@pytest.mark.sampled(3)
def test_runs_the_same_when_linked_again(real_file: RealFile, tmp_path: Path) -> None:
    result = relink(real_file.pte, tmp_path / "linked.pte")
    assert result.memory_after["cpu"] <= result.memory_before["cpu"]
    expected, found = _run(real_file, real_file.pte), _run(real_file, tmp_path / "linked.pte")
    assert len(found) == len(expected)
    assert all(_identical(a, b) for a, b in zip(found, expected, strict=True))


def test_a_view_that_only_a_delegate_uses_is_its_input(make_real: Callable[[str], RealFile], tmp_path: Path) -> None:
    made, file = make_real("xnnpack_view"), tmp_path / "linked.pte"
    (plan,) = (program := read(made.pte)).execution_plan
    assert delegate_inputs(program, plan) == {1: 2}
    relink(made.pte, file)
    assert all(_identical(a, b) for a, b in zip(_run(made, made.pte), _run(made, file), strict=True))


def test_shared_state_is_shared_when_linked_again(make_real: Callable[[str], RealFile], tmp_path: Path) -> None:
    from support.stock import shared_runtime

    made, file = make_real("shared"), tmp_path / "linked.pte"
    result = relink(made.pte, file)
    assert result.memory_after["cpu"] <= result.memory_before["cpu"]
    assert len(result.shared_state) == 1
    answers = []
    for pte in (made.pte, file):
        shared_runtime().load(pte, shared=True)
        answers.append([shared_runtime().call(method, inputs)[0] for method, inputs in made.calls])
    assert all(_identical(a, b) for a, b in zip(*answers, strict=True))
    assert not _identical(answers[0][1], answers[0][2])  # One call does not determine the cache.


def _run(real_file: RealFile, pte: Path) -> list[Any]:
    """Return all outputs of all calls, on one fresh state."""
    from executorch.extension.pybindings import portable_lib

    if real_file.ptd is not None:
        module = portable_lib._load_for_executorch(str(pte), str(real_file.ptd))
    else:
        module = portable_lib._load_for_executorch(str(pte))
    outputs: list[Any] = []
    for method, inputs in real_file.calls:
        found = module.run_method(method, inputs)
        outputs += [output.clone() if hasattr(output, "clone") else output for output in found]
    return outputs


def _identical(a: Any, b: Any) -> bool:
    import torch

    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
    return bool(a == b)


@pytest.mark.nightly
def test_the_files_have_what_they_are_for(make_real: Callable[[str], RealFile]) -> None:
    def made(name: str) -> Program:
        return read(make_real(name).pte)

    assert len(made("methods").execution_plan) == 5
    (plan,) = made("loops").execution_plan
    jumps = [(at, call) for at, call in enumerate(plan.chains[0].instructions) if isinstance(call, JumpFalseCall)]
    assert any(call.destination_instruction < at for at, call in jumps)
    state = made("state")
    assert state.mutable_data_segments
    assert any(tensor.data_buffer_idx and tensor.allocation_info for _, tensor in state.method("forward").tensors())
    assert any(tensor.is_external for _, tensor in made("external").method("forward").tensors())
    bounded = [tensor.shape_dynamism for _, tensor in made("dynamic").method("forward").tensors()]
    assert TensorShapeDynamism.DYNAMIC_BOUND in bounded
    assert made("portable").method("forward").chains[0].stacktrace
    assert made("xnnpack").named_data
    assert any(map(len, made("xnnpack_inline").backend_delegate_data))


def test_a_loop_written_by_hand_runs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    portable_lib = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    write(hand.loop(times=3), tmp_path / "loop.pte")
    module = portable_lib._load_for_executorch(str(tmp_path / "loop.pte"))
    x = torch.tensor([1.0, 2.0, -3.0, 0.5])
    (y,) = module.run_method("forward", (x,))
    assert torch.equal(y, x * 16)
