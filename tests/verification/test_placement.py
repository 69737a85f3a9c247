"""The check *placement*: what a file says about devices has to agree with itself (A1, A4, A5, B2, B3, E4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from etdev.program import Program
from etdev.program import model as m
from etdev.verification.checks.placement import check_placement
from program.hand import loop, tensor
from support.files import ADD, branches, chain, copies, counters, delegated, method, program
from support.on_devices import D2H, H2D, across, delegate, entries, on, two_devices, two_devices_plan
from support.speed import action_time, usual_seconds

Change = Callable[[m.ExecutionPlan], m.ExecutionPlan]


@pytest.mark.parametrize("make", [loop, branches, counters, copies, delegated, lambda: chain(3)])
def test_programs_of_the_host_pass(make: Callable[[], Program]) -> None:
    check = check_placement(make(), alignment=16)

    assert (check.status, check.summary) == ("passed", "all memory is on the host")


def test_a_program_on_two_devices() -> None:
    check = check_placement(two_devices(), alignment=16, capacity={"cuda:0": 32})

    said = "cuda:0 2 tensors in 32 B, cuda:1 2 tensors in 32 B; 2 copies to devices and 2 back; every argument is"
    assert (check.status, check.summary) == ("passed", f"{said} on the device on which it is used")


def test_one_copy_is_not_many() -> None:
    values = [tensor(4, at=0), on("cuda:0", 4)]
    plan = method(values, [m.KernelCall(0, (0, 1, 1))], operators=(m.Operator("et_copy::_h2d_copy", "out"),))

    assert "; 1 copy to devices and 0 back; " in check_placement(across(plan)).summary


def value(index: int, **changes: object) -> Change:
    """Another tensor in place of one."""

    def change(plan: m.ExecutionPlan) -> m.ExecutionPlan:
        values = list(plan.values)
        values[index] = replace(values[index], **changes)  # type: ignore[type-var]
        return replace(plan, values=tuple(values))

    return change


def moved(index: int, device: str) -> Change:
    """A tensor that says it is elsewhere, and has no planned place."""
    return value(index, extra_tensor_info=on(device, 4).extra_tensor_info, allocation_info=None)


def call(position: int, instruction: m.Instruction) -> Change:
    """Another instruction in place of one."""

    def change(plan: m.ExecutionPlan) -> m.ExecutionPlan:
        instructions = list(plan.chains[0].instructions)
        instructions[position] = instruction
        return replace(plan, chains=(replace(plan.chains[0], instructions=tuple(instructions)),))

    return change


def table(*found: m.NonConstBufferDevice) -> Change:
    """Another table of buffers on devices."""
    return lambda plan: replace(plan, non_const_buffer_device=found)


def spec(content: bytes | None) -> Change:
    """Another ``target_device`` of the first delegate."""
    return lambda plan: replace(plan, delegates=(delegate(content), *plan.delegates[1:]))


CUDA = m.DeviceType.CUDA
ZERO, ONE = entries("cuda:0", "cuda:1")
SHAPE = {"sizes": (5,), "dim_order": (0,), "allocation_info": None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (table(ZERO), "value 5 is on cuda:1, but its buffer 3 is on cpu"),
        (table(ZERO, ONE, ZERO), "buffer 2 has two entries in the table of devices"),
        (
            table(ZERO, ONE, replace(ZERO, buffer_idx=9)),
            "buffer 9 has a device, but the method has only the buffers 1 to 3",
        ),
        (
            table(ZERO, replace(ONE, device_index=-1)),
            "buffer 3 is on device -1 of type CUDA, which is not a valid device",
        ),
        (
            table(ZERO, ONE, m.NonConstBufferDevice(1)),
            "buffer 1 is in the table of buffers on devices, but its device is the host",
        ),
        (
            table(ZERO, ONE, m.NonConstBufferDevice(1, m.DeviceType.CPU, 1)),
            "buffer 1 is on device 1 of type CPU, which is not a valid device",
        ),
        (value(2, extra_tensor_info=None), "value 2 is on cpu, but its buffer 2 is on cuda:0"),
        (moved(2, "cuda:1"), "instruction 1 (EtdevReferenceBackend): argument 1, value 2, is on cuda:1, but the del"),
        (
            value(2, allocation_info=m.AllocationDetails(2, 24)),
            "value 2 has 16 bytes at 24 of buffer 2, which has only 32 bytes",
        ),
        (
            value(2, allocation_info=m.AllocationDetails(2, 8)),
            "value 2 begins at 8 of buffer 2 on cuda:0, which is not a multiple of 16",
        ),
        (
            value(3, allocation_info=m.AllocationDetails(1, 2)),
            "value 3 begins at 2 of buffer 1 on cpu, which is not a multiple of 4",
        ),
        (
            value(2, allocation_info=m.AllocationDetails(4, 0)),
            "value 2 is in buffer 4, but the method has only the buffers 1 to 3",
        ),
        (
            value(2, allocation_info=None, data_buffer_idx=1),
            "value 2 is a constant, which the runtime keeps on the host, but its device is cuda:0",
        ),
        (
            call(0, m.KernelCall(0, (0, 3, 3))),
            "instruction 0 (et_copy::_h2d_copy.out): value 3 must be on a device, but is on the host",
        ),
        (
            call(0, m.KernelCall(0, (2, 1, 1))),
            "instruction 0 (et_copy::_h2d_copy.out): value 2 must be on the host, but is on cuda:0",
        ),
        (
            call(2, m.KernelCall(1, (0, 3, 3))),
            "instruction 2 (et_copy::_d2h_copy.out): value 0 must be on a device, but is on the host",
        ),
        (
            call(2, m.KernelCall(1, (2, 5, 5))),
            "instruction 2 (et_copy::_d2h_copy.out): value 5 must be on the host, but is on cuda:1",
        ),
        (
            call(0, m.KernelCall(0, (0, 1))),
            "(et_copy::_h2d_copy.out): its arguments must be a tensor, an output and the same output again",
        ),
        (
            value(0, scalar_type=m.ScalarType.INT),
            "instruction 0 (et_copy::_h2d_copy.out): value 0 is int32, but value 1, its copy, is float32",
        ),
        (
            value(0, **SHAPE),
            "instruction 0 (et_copy::_h2d_copy.out): value 0 has 20 bytes, but value 1, its copy, has 16",
        ),
        (
            call(3, m.KernelCall(2, (2, 4, 4))),
            "instruction 3 (aten::sin.out): its argument, value 2, is on cuda:0, but the kernel runs on the host",
        ),
        (
            call(3, m.KernelCall(2, (3, 5, 5))),
            "instruction 3 (aten::sin.out): its output, value 5, is on cuda:1, but the kernel runs on the host: a copy",
        ),
        (
            call(1, m.DelegateCall(0, (0, 2))),
            "instruction 1 (EtdevReferenceBackend): argument 0, value 0, is on cpu, but the delegate runs on cuda:0: a",
        ),
        (
            call(5, m.DelegateCall(1, (1, 6))),
            "instruction 5 (EtdevReferenceBackend): argument 0, value 1, is on cuda:0, but the delegate runs on cuda:1",
        ),
        (
            call(5, m.DelegateCall(1, (5, 7))),
            "instruction 5 (EtdevReferenceBackend): argument 1, value 7, is on cpu, but the delegate runs on cuda:1",
        ),
        (spec(None), "argument 0, value 1, is on cuda:0, but the delegate runs on cpu: a copy is missing"),
        (spec(b"gpu"), "delegate 0: the compile spec 'target_device' of the delegate 'EtdevReferenceBackend' does"),
        (spec(b"cuda:-1"), "instruction 1 (EtdevReferenceBackend): the device of its arguments is unknown"),
        (spec(b"\xff"), "does not name a device: b'\\xff'; use one of cpu, cuda:0 to cuda:127"),
        (
            call(3, m.MoveCall(2, 3)),
            "instruction 3 (move): it moves value 2 on cuda:0 to value 3 on cpu; a move copies only the address",
        ),
        (call(3, m.JumpFalseCall(2, 4)), "instruction 3 (jump): the condition, value 2, is on cuda:0"),
    ],
)
def test_what_does_not_agree_is_named(change: Change, said: str) -> None:
    check = check_placement(across(change(two_devices_plan())), alignment=16)

    assert (check.status, check.gate) == ("failed", False)
    assert any(said in problem for problem in check.problems), check.problems
    assert all(problem.startswith("method 'forward', ") for problem in check.problems)


def test_a_constant_needs_a_copy_to_get_onto_a_device() -> None:
    plan = two_devices_plan()
    plan = call(1, m.DelegateCall(0, (len(plan.values), 2)))(replace(plan, values=(*plan.values, tensor(4, data=1))))

    (problem,) = check_placement(across(plan)).problems

    assert "argument 0, value 8, is a constant on the host, but the delegate runs on cuda:0" in problem


def test_tensors_in_lists_count() -> None:
    plan = two_devices_plan()
    values = (*plan.values, m.TensorList((3, 2)), m.Int(0))
    concatenated = m.KernelCall(3, (8, 9, 4, 4))
    plan = call(3, concatenated)(
        replace(plan, values=values, operators=(H2D, D2H, ADD, m.Operator("aten::cat", "out")))
    )

    (problem,) = check_placement(across(plan)).problems

    assert "its argument, value 2, is on cuda:0" in problem


def test_sizes_may_be_asked_of_any_tensor() -> None:
    plan = two_devices_plan()
    asked = replace(
        call(3, m.KernelCall(2, (2, 8, 9)))(plan),
        values=(*plan.values, m.Int(0), m.Int(0)),
        operators=(H2D, D2H, m.Operator("aten::sym_size", "int")),
    )

    assert check_placement(across(asked)).status == "passed"


def test_inputs_and_outputs_on_a_device_are_the_callers() -> None:
    values = [on("cuda:0", 4), on("cuda:0", 4)]
    plan = method(values, [m.DelegateCall(0, (0, 1))], delegates=(delegate(b"cuda:0"),), operators=())

    assert check_placement(across(plan)).status == "passed"


def test_methods_agree_about_each_buffer() -> None:
    other = method([tensor(4, at=0, buffer=2)], [], name="other")

    (problem,) = check_placement(across(two_devices_plan(), other)).problems

    assert problem == "buffer 2 is on cuda:0 in method 'forward' and on cpu in method 'other'"


def test_more_than_the_device_has_is_a_missed_gate() -> None:
    check = check_placement(two_devices(), capacity={"cuda:0": 32, "cuda:1": 31, "cpu": 1})

    assert (check.status, check.gate) == ("failed", True)
    assert check.problems == ("the planned memory on cuda:1 exceeds its budget: the check `budget` states by how much",)


def test_many_problems_are_cut_short() -> None:
    values = [on("cuda:0", 4, at=0, buffer=1) for _ in range(50)]

    problems = check_placement(program(method(values, []))).problems

    assert len(problems) == 21
    assert problems[-1] == "there are more problems of this kind"


def test_five_thousand_instructions_take_less_than_a_second() -> None:
    found = chain(5000)

    assert check_placement(found, alignment=16).status == "passed"
    assert usual_seconds(lambda: action_time(lambda: check_placement(found, alignment=16)), 1, most=3) < 1
