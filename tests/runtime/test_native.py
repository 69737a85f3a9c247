"""ExecuTorch's C++ runtime in etdev's host process: answers, memory of exact size, poison, pools, crashes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from etdev.errors import MissingRequirementError
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.analysis.kernel_heap import copied_operands
from etdev.program.analysis.runtime_objects import runtime_objects
from etdev.runtime.native import NativeRuntime, Pools, host_executable, is_steady, lookup_bytes, measure_memory
from etdev.runtime.native.unused import MethodUnused
from etdev.runtime.stock import ProgramFailureError, RuntimeCrashError
from program.hand import tensor
from support.files import ADD, branches, chain, counters, method, overwriting, program, sin
from support.native import native_host, saved
from support.on_devices import two_devices

X = torch.linspace(-2, 2, 4)


@pytest.fixture
def native() -> Iterator[NativeRuntime]:
    with NativeRuntime(native_host()) as runtime:
        yield runtime


def run(native: NativeRuntime, made: Program, folder: Path, *inputs: object, **how: object) -> tuple[object, ...]:
    native.load(saved(made, folder), **how)  # type: ignore[arg-type]
    return native.call("forward", inputs, fresh=True)


def test_the_runtime_names_its_operators_and_backends(native: NativeRuntime) -> None:
    assert {"aten::sin.out", "aten::linear.out", "et_copy::_h2d_copy.out"} <= native.operators
    assert "quantized_decomposed::quantize_per_tensor.out" in native.operators
    assert {"XnnpackBackend", "EtdevReferenceBackend"} <= native.usable_backends <= native.backends


def test_a_program_computes_in_buffers_of_exactly_its_sizes(native: NativeRuntime, tmp_path: Path) -> None:
    (found,) = run(native, chain(3), tmp_path, X)
    torch.testing.assert_close(found, X.sin().sin().sin())
    (buffer,) = native.opened["forward"].buffers
    assert (buffer.size, buffer.device.is_host) == (64, True)
    assert native.called is not None
    assert native.called.damages == ()
    assert len(native.called.seconds) == 1
    assert native.called.devices == {}


def test_values_of_every_kind(native: NativeRuntime, tmp_path: Path) -> None:
    """Tensors of all dtypes that torch has, also empty ones and scalars, go in and come out."""
    dtypes = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool", "bfloat16"]
    for dtype in dtypes:
        given = torch.tensor([0, 1, 1, 0]).to(getattr(torch, dtype))
        kind = m.ScalarType[{"uint8": "BYTE", "int8": "CHAR", "int16": "SHORT", "int32": "INT", "int64": "LONG",
                             "float16": "HALF", "float32": "FLOAT", "float64": "DOUBLE", "bool": "BOOL",
                             "bfloat16": "BFLOAT16"}[dtype]]  # fmt: skip
        values = [replace(tensor(4, at=0), scalar_type=kind)]
        (found,) = run(native, program(method(values, [], sizes=(32,))), tmp_path, given)
        assert isinstance(found, torch.Tensor)
        assert (found.dtype, found.tolist()) == (given.dtype, given.tolist())
    values = [tensor(0, 3, at=0), tensor(at=0), m.Int(7), m.Bool(True), m.Double(0.5), m.String("text"), m.Null()]
    plan = method(values, [], inputs=(0, 1), outputs=tuple(range(7)), sizes=(16,))
    empty, scalar, *plain = run(native, program(plan), tmp_path, torch.empty(0, 3), torch.tensor(2.5))
    assert isinstance(empty, torch.Tensor)
    assert isinstance(scalar, torch.Tensor)
    assert (tuple(empty.shape), scalar.item(), plain) == ((0, 3), 2.5, [7, True, 0.5, "text", None])


def test_an_input_and_an_output_without_planned_memory_are_the_callers(native: NativeRuntime, tmp_path: Path) -> None:
    (found,) = run(native, program(method([tensor(4), tensor(4)], [sin(0, 1)], sizes=())), tmp_path, X)
    torch.testing.assert_close(found, X.sin())
    assert native.opened["forward"].buffers == ()


def test_an_output_of_the_caller_that_is_never_written_holds_poison(native: NativeRuntime, tmp_path: Path) -> None:
    """Fresh memory holds zeros, which may be what the model computes."""
    (found,) = run(native, program(method([tensor(4, at=0), tensor(4)], [], outputs=(1,))), tmp_path, X)
    assert isinstance(found, torch.Tensor)
    assert bool(found.isnan().all())


def test_what_is_logged_on_every_start_hides_no_error(native: NativeRuntime, tmp_path: Path) -> None:
    made = program(method([tensor(4, at=0), tensor(4), tensor(4, at=16)], [sin(0, 1), sin(1, 2)], outputs=(2,)))
    with pytest.raises(RuntimeCrashError, match="at instruction 0") as caught:
        run(native, made, tmp_path, X)
    assert "cpuinfo" not in str(caught.value)


@pytest.mark.parametrize("condition", [True, False])
def test_poison_spares_what_branches_use(native: NativeRuntime, tmp_path: Path, condition: bool) -> None:
    x = torch.linspace(-2, 2, 16)
    expected = x + (x.sin().sin() if condition else x.cos().cos())
    torch.testing.assert_close(run(native, branches(), tmp_path, torch.tensor(condition), x), (expected,))


@pytest.mark.parametrize("watch", [True, False])
def test_state_is_kept_between_calls_and_reset_on_request(tmp_path: Path, watch: bool) -> None:
    file = saved(counters(buffer=2), tmp_path)
    with NativeRuntime(native_host(), watch=watch) as native:
        assert native.load(file, shared=True) == ("first", "second")
        one = torch.ones(4)
        for expected, name in enumerate(("first", "second", "first"), 1):
            torch.testing.assert_close(native.call(name, (one,)), (one * expected,))
        torch.testing.assert_close(native.call("second", (one,), fresh=True), (one,))
        native.load(file)
        for name in ("first", "second"):
            torch.testing.assert_close(native.call(name, (one,)), (one,))


def test_poison_makes_a_read_before_the_write_visible(native: NativeRuntime, tmp_path: Path) -> None:
    """Without poison, fresh memory holds zeros and the sum is right."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), m.Int(1)]
    read_too_early = [m.KernelCall(0, (0, 1, 3, 2, 2)), sin(0, 1)]
    made = program(method(values, read_too_early, outputs=(2,)))
    for watch in (False, True):
        with NativeRuntime(native_host(), watch=watch) as runtime:
            runtime.load(saved(made, tmp_path))
            # Poison spares what the analysis takes for state, so the bytes to poison are given here.
            runtime._unused = {"forward": MethodUnused({-1: [(1, 16, 32)]})} if watch else {}
            (found,) = runtime.call("forward", (X,), fresh=True)
            assert bool(torch.isnan(found).all()) is watch


def test_bytes_that_are_not_in_use_hold_poison(native: NativeRuntime, tmp_path: Path) -> None:
    """The output's bytes are overwritten too early: the caller reads what overwrote them."""
    (found,) = run(native, overwriting(), tmp_path, X)
    torch.testing.assert_close(found, X.cos())


def too_small(size: int) -> Program:
    """``sin(x)`` in a buffer of the given size, where it needs 32 bytes."""
    return program(method([tensor(4, at=0), tensor(4, at=16)], [sin(0, 1)], sizes=(size,)))


def test_a_buffer_that_is_one_byte_too_small_is_refused_by_the_runtime(
    native: NativeRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etdev refuses to write such a file, too, so its own check is off here."""
    monkeypatch.setattr("etdev.program.writer.check_program", lambda made: None)
    native._watch = False
    with pytest.raises(ProgramFailureError, match="method 'forward' cannot be loaded"):
        run(native, too_small(31), tmp_path, X)
    run(native, too_small(32), tmp_path, X)


def largest_two() -> Program:
    """The two largest of four numbers and their positions. The kernel sorts in temporary memory."""
    positions = replace(tensor(2, at=32), scalar_type=m.ScalarType.LONG)
    values = [tensor(4, at=0), m.Int(2), m.Int(0), m.Bool(True), tensor(2, at=16), positions, m.TensorList((4, 5))]
    call = m.KernelCall(0, (0, 1, 2, 3, 3, 4, 5, 6))
    return program(method(values, [call], outputs=(4, 5), operators=(m.Operator("aten::topk", "values"),), sizes=(48,)))


@pytest.mark.parametrize("made", [largest_two(), chain(1)], ids=["temporary memory", "none"])
def test_pools_work_with_their_measured_sizes_and_not_with_a_byte_less(tmp_path: Path, made: Program) -> None:
    file = saved(made, tmp_path)
    with NativeRuntime(native_host(), watch=False) as native:
        found = measure_memory(native, made, file, [("forward", (X,))])["forward"]
    sizes = Pools(found.method_pool, found.temporary_pool)
    assert sizes.method
    (call, *_) = made.execution_plan[0].instructions
    assert isinstance(call, m.KernelCall)
    assert sizes.temporary == lookup_bytes(made.execution_plan[0]) == 40 * len(call.args)
    assert sizes.method == runtime_objects(made.execution_plan[0], 8) > runtime_objects(made.execution_plan[0], 4)
    expected = None
    for pools in (sizes, replace(sizes, method=sizes.method - 1), replace(sizes, temporary=(sizes.temporary or 1) - 1)):
        with NativeRuntime(native_host(), watch=False, pools={"forward": pools}) as native:
            native.load(file)
            if expected is None or pools == sizes:
                expected = native.call("forward", (X,))
                continue
            with pytest.raises(ProgramFailureError, match=r"the \w+ pool of 'forward' of .* bytes is too small"):
                native.call("forward", (X,))


def test_the_heap_of_a_matrix_product_is_counted(native: NativeRuntime, tmp_path: Path) -> None:
    """The optimized kernel copies blocks of its operands there."""
    sizes = [(64, 1_024), (1_024, 1_024), (64, 1_024)]
    offsets = [0, 1 << 18, (1 << 18) + (1 << 22)]
    values = [
        replace(tensor(1, at=at), sizes=shape, dim_order=(0, 1)) for shape, at in zip(sizes, offsets, strict=True)
    ]
    call = m.KernelCall(0, (0, 1, 2, 2))
    operators = (m.Operator("aten::mm", "out"),)
    made = program(
        method(values, [call], inputs=(0, 1), outputs=(2,), operators=operators, sizes=((1 << 19) + (1 << 22),))
    )
    given = torch.randn(64, 1_024), torch.randn(1_024, 1_024)
    found = measure_memory(native, made, saved(made, tmp_path), [("forward", given)])["forward"]
    assert 20_000 < (found.heap or 0) < copied_operands(made.execution_plan[0]) + 10_000


@pytest.mark.parametrize("made", [largest_two(), chain(1), chain(3)], ids=["temporary memory", "one", "three"])
def test_watching_a_steady_program_does_not_change_its_memory(tmp_path: Path, made: Program) -> None:
    assert is_steady(made)
    found = []
    for watch in (True, False):
        with NativeRuntime(native_host(), watch=watch) as native:
            found.append(measure_memory(native, made, saved(made, tmp_path), [("forward", (X,))])["forward"])
    watched, plain = found
    assert (watched.method_pool, watched.temporary_pool) == (plain.method_pool, plain.temporary_pool)
    assert abs((watched.heap or 0) - (plain.heap or 0)) <= 64  # The allocator rounds sizes, depending on free blocks.


def test_jumps_delegates_devices_and_dynamic_sizes_are_not_steady() -> None:
    assert not is_steady(branches())
    assert not is_steady(two_devices())
    (plan,) = chain(1).execution_plan
    dynamic = [replace(value, shape_dynamism=m.TensorShapeDynamism.DYNAMIC_BOUND) for value in plan.values]  # type: ignore[type-var]
    assert not is_steady(replace(chain(1), execution_plan=(replace(plan, values=tuple(dynamic)),)))
    delegate = m.BackendDelegate("XnnpackBackend", m.BackendDelegateDataReference(m.DataLocation.INLINE, 0), ())
    assert not is_steady(replace(chain(1), execution_plan=(replace(plan, delegates=(delegate,)),)))


def test_every_allocation_of_a_load_can_fail(tmp_path: Path) -> None:
    """An error each time, never a crash, and the next program runs."""
    file = saved(chain(2), tmp_path)
    failed = 0
    with NativeRuntime(native_host(), watch=False) as native:
        for failing in range(1, 100):
            native._pools = {"forward": Pools(failing=failing)}
            native.load(file)
            said = failure_of(native)
            if said is None:
                break
            assert f"injected fault at allocation {failing}" in said
            failed += 1
    assert failed > 3


def failure_of(native: NativeRuntime) -> str | None:
    """What the runtime says about a call that fails without a crash; None if it works."""
    try:
        native.call("forward", (X,))
    except RuntimeCrashError:
        raise
    except ProgramFailureError as error:
        return str(error)
    return None


def test_calls_are_timed_one_by_one(tmp_path: Path) -> None:
    with NativeRuntime(native_host(), watch=False) as native:
        native.load(saved(chain(2), tmp_path))
        native.call("forward", (X,), repeat=5)
        assert native.called is not None
        assert len(native.called.seconds) == 5
        assert 0 < min(native.called.seconds) <= native.seconds < 10


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((), "method 'forward' takes 1 inputs, not 0"),
        ((torch.ones(5),), "cannot set input 0 of method 'forward'"),
        ((torch.ones(4, dtype=torch.int64),), "cannot set input 0 of method 'forward'"),
        ((3,), "cannot set input 0 of method 'forward'"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    native: NativeRuntime, tmp_path: Path, inputs: Sequence[object], said: str
) -> None:
    with pytest.raises(ProgramFailureError, match=said):
        run(native, chain(1), tmp_path, *inputs)
    torch.testing.assert_close(native.call("forward", (X,)), (X.sin(),))


def test_what_is_no_program_and_what_has_no_kernel_is_an_error(native: NativeRuntime, tmp_path: Path) -> None:
    file = tmp_path / "a.pte"
    file.write_bytes(b"not a program, but longer than a header is" * 4)
    with pytest.raises(ProgramFailureError, match="cannot load the program"):
        native.load(file)
    with pytest.raises(ProgramFailureError, match=r"cannot open .*none\.pte"):
        native.load(tmp_path / "none.pte")
    made = program(
        method([tensor(4, at=0), tensor(4, at=16)], [sin(0, 1)], operators=(ADD, m.Operator("my::op", "out")))
    )
    native._watch = False
    with pytest.raises(ProgramFailureError, match=r"cannot be loaded.*OperatorMissing"):
        run(native, made, tmp_path, X)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_is_an_error_and_the_next_program_gets_a_new_process(
    native: NativeRuntime, tmp_path: Path, number: signal.Signals
) -> None:
    run(native, chain(1), tmp_path, X)
    os.kill(native.process_id, number)
    with pytest.raises(RuntimeCrashError, match=f"ended with signal {number.name}"):
        native.call("forward", (X,))
    with pytest.raises(RuntimeCrashError, match=number.name):
        native.call("forward", (X,))
    torch.testing.assert_close(native.call("forward", (X,), fresh=True), (X.sin(),))


def test_a_program_that_does_not_return_is_killed(native: NativeRuntime, tmp_path: Path) -> None:
    forever = method([tensor(4, at=0), m.Bool(False)], [m.JumpFalseCall(1, 0)], outputs=(0,))
    native._watch = False
    native.load(saved(program(forever), tmp_path))
    native.open("forward")
    native._child.limit = 0.02
    with pytest.raises(RuntimeCrashError, match=r"did not answer within 0\.02 s"):
        native.call("forward", (X,))


def test_the_process_ends_with_the_block(tmp_path: Path) -> None:
    with NativeRuntime(native_host()) as native:
        assert native.operators
        process = native.process_id
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def with_weights() -> Program:
    """``x + w``, where ``w`` is a constant in the file."""
    data = Blob(torch.full((4,), 0.25).numpy().tobytes())
    values = [tensor(4, at=0), replace(tensor(4), data_buffer_idx=1), tensor(4, at=16), m.Int(1)]
    return program(
        method(values, [m.KernelCall(0, (0, 1, 3, 2, 2))], outputs=(2,)),
        segments=(m.Segment(0, data),),
        constant_segment=m.SubsegmentOffsets(0, (0, 0)),
    )


def test_constants_are_read_from_the_file(native: NativeRuntime, tmp_path: Path) -> None:
    torch.testing.assert_close(run(native, with_weights(), tmp_path, X), (X + 0.25,))


def test_a_host_that_is_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETDEV_NATIVE_HOST", str(tmp_path / "none"))
    with pytest.raises(MissingRequirementError, match="is not an executable file") as caught:
        host_executable()
    assert caught.value.where == "ETDEV_NATIVE_HOST"
