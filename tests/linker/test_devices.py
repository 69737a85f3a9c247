"""Devices: placements and copies (A4, A5, B1, B2, B5, B8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from etdev.devices import Device, DeviceType, parse_device
from etdev.errors import LinkError
from etdev.linker import Linked, LinkOptions, link, link_foreign
from etdev.linker.options import CallerOwned
from etdev.program import model as m
from etdev.program.analysis.effects import operator_name
from etdev.program.devices import D2H_COPY, H2D_COPY
from linker.checked import linked
from linker.programs import Method, program
from validator.test_proofs import check, proof

CUDA0 = parse_device("cuda:0")


def on(method: Method, device: str, *args: int, nbytes: int = 32, backend: str = "MyBackend") -> int:
    """Add a delegate on a device and return its result."""
    (out,) = method.delegate(*args, nbytes=[nbytes], device=device, backend=backend)
    return out


def copied(done: Linked) -> list[str]:
    """Return the copies of the first method in order, by size: ``cuda:0 <- 32`` or ``cuda:0 -> 32``."""
    plan = done.program.execution_plan[0]
    found = []
    for call in (call for chain in plan.chains for call in chain.instructions):
        name = plan.operators[call.op_index].name if isinstance(call, m.KernelCall) else ""
        if isinstance(call, m.KernelCall) and name in (H2D_COPY, D2H_COPY):
            source, target = (plan.values[value] for value in call.args[:2])
            assert isinstance(source, m.Tensor)
            assert isinstance(target, m.Tensor)
            found.append(
                f"{target.device} <- {source.nbytes}" if name == H2D_COPY else f"{source.device} -> {source.nbytes}"
            )
    return found


# Copies


def chain_on_one_device() -> Method:
    method = Method()
    one = on(method, "cuda:0", method.input(16), method.input(64))
    method.outputs = [on(method, "cuda:0", one, method.input(128))]
    return method


def chain_on_two_devices() -> Method:
    method = Method()
    one = on(method, "cuda:0", method.input(16), method.input(64))
    method.outputs = [on(method, "cuda:1", one, method.input(128), nbytes=16)]
    return method


def shared_input() -> Method:
    """Use an input in two delegates of one device, in one of another, and on the host: one copy to each device."""
    method = Method()
    data = method.input(64)
    found = [on(method, "cuda:0", data), on(method, "cuda:0", data), on(method, "cuda:1", data), method.op(data)]
    method.outputs = [method.op(*found)]
    return method


def output_of_several_users() -> Method:
    """Use an output on the same device, on another one, and on the host."""
    method = Method()
    one = on(method, "cuda:0", method.input(16), nbytes=64)
    method.outputs = [on(method, "cuda:0", one), on(method, "cuda:1", one), method.op(one)]
    return method


def constant_argument() -> Method:
    method = Method()
    weight = method.constant(64)
    one = on(method, "cuda:0", method.input(16), weight)
    method.outputs = [on(method, "cuda:0", one, weight)]
    return method


def written_again_on_the_host() -> Method:
    """Write a value on the host, after which its copy is old."""
    method = Method()
    data = method.op(method.input(16), nbytes=64)
    one = on(method, "cuda:0", data)
    method.kernel("my::update", data, one, method.value(m.Bool(False)))
    method.outputs = [on(method, "cuda:0", data)]
    return method


def nobody_reads() -> Method:
    method = Method()
    on(method, "cuda:0", method.input(16), nbytes=64)
    method.outputs = [method.op(method.inputs[0])]
    return method


def view_between() -> Method:
    """View a result of a delegate for another one on the same device: no copy is needed."""
    method = Method()
    one = on(method, "cuda:0", method.input(16), nbytes=64)
    method.outputs = [on(method, "cuda:0", method.flat(one))]
    return method


def target_is_the_host() -> Method:
    method = Method()
    method.outputs = [on(method, "cpu", on(method, "CPU:0", method.input(16)))]
    return method


def branch() -> Method:
    """Compute on a device on both sides of a branch; a delegate on the device reads the result."""
    method = Method()
    data = method.input(16)
    (merged,) = method.cond(
        data,
        lambda: [on(method, "cuda:0", data, nbytes=64)],
        lambda: [on(method, "cuda:0", data, nbytes=64)],
    )
    method.outputs = [on(method, "cuda:0", merged)]
    return method


def branch_apart() -> Method:
    """Compute on the device on one side and on the host on the other: only the host's result is copied."""
    method = Method()
    data = method.input(16)
    (merged,) = method.cond(data, lambda: [on(method, "cuda:0", data, nbytes=64)], lambda: [method.op(data, nbytes=64)])
    method.outputs = [on(method, "cuda:0", merged)]
    return method


def used_on_one_side() -> Method:
    """Use an input on the device on only one side of a branch."""
    method = Method()
    data, other = method.input(16), method.input(64)
    (merged,) = method.cond(data, lambda: [on(method, "cuda:0", other)], lambda: [method.op(data)])
    method.outputs = [merged]
    return method


def loop() -> Method:
    """Use a constant value in a loop; it is copied before the loop."""
    method = Method()
    data = method.input(64)
    rows = method.tensor(64)
    with method.loop(4) as counter:
        row = on(method, "cuda:0", data, nbytes=16)
        method.kernel("executorch_prim::et_copy_index.tensor", rows, row, counter)
    method.outputs = [rows]
    return method


def loop_with_branch() -> Method:
    """Use a value in only some iterations of a loop; it is copied before the loop, too."""
    method = Method()
    data, condition = method.input(64), method.input(16)
    rows = method.tensor(64)
    with method.loop(4) as counter:
        (row,) = method.cond(
            condition, lambda: [on(method, "cuda:0", data, nbytes=16)], lambda: [method.op(condition, nbytes=16)]
        )
        method.kernel("executorch_prim::et_copy_index.tensor", rows, row, counter)
    method.outputs = [rows]
    return method


CASES: dict[str, tuple[Callable[[], Method], list[str]]] = {
    "chain on one device": (chain_on_one_device, ["cuda:0 <- 16", "cuda:0 <- 64", "cuda:0 <- 128", "cuda:0 -> 32"]),
    "chain on two devices": (
        chain_on_two_devices,
        ["cuda:0 <- 16", "cuda:0 <- 64", "cuda:0 -> 32", "cuda:1 <- 32", "cuda:1 <- 128", "cuda:1 -> 16"],
    ),
    "shared input": (shared_input, ["cuda:0 <- 64", "cuda:1 <- 64", "cuda:0 -> 32", "cuda:0 -> 32", "cuda:1 -> 32"]),
    "output of several users": (
        output_of_several_users,
        ["cuda:0 <- 16", "cuda:0 -> 64", "cuda:1 <- 64", "cuda:0 -> 32", "cuda:1 -> 32"],
    ),
    "constant argument": (constant_argument, ["cuda:0 <- 16", "cuda:0 <- 64", "cuda:0 -> 32"]),
    "written again on the host": (
        written_again_on_the_host,
        ["cuda:0 <- 64", "cuda:0 -> 32", "cuda:0 <- 64", "cuda:0 -> 32"],
    ),
    "nobody reads": (nobody_reads, ["cuda:0 <- 16"]),
    "view between": (view_between, ["cuda:0 <- 16", "cuda:0 -> 32"]),
    "target is the host": (target_is_the_host, []),
    "branch": (branch, ["cuda:0 <- 16", "cuda:0 -> 32"]),
    "branch apart": (branch_apart, ["cuda:0 <- 16", "cuda:0 <- 64", "cuda:0 -> 32"]),
    "used on one side": (used_on_one_side, ["cuda:0 <- 64", "cuda:0 -> 32"]),
    "loop": (loop, ["cuda:0 <- 64", "cuda:0 -> 16"]),
    "loop with branch": (loop_with_branch, ["cuda:0 <- 64", "cuda:0 -> 16"]),
}


@pytest.mark.parametrize("name", CASES)
def test_each_tensor_crosses_once_after_each_write(name: str) -> None:
    make, expected = CASES[name]
    done = linked(make())
    assert sorted(copied(done)) == sorted(expected)
    # The link discards all copies and placements, and derives them again.
    assert sorted(copied(link_foreign(done.program))) == sorted(expected)


def test_a_copy_in_a_loop_stands_before_it() -> None:
    for make in (loop, loop_with_branch):
        plan = linked(make()).program.execution_plan[0]
        jump = next(
            call.destination_instruction
            for position, call in enumerate(plan.chains[0].instructions)
            if isinstance(call, m.JumpFalseCall) and call.destination_instruction <= position
        )
        first = plan.chains[0].instructions[0]
        assert isinstance(first, m.KernelCall)
        assert operator_name(plan.operators[first.op_index]) == "et_copy::_h2d_copy.out"
        assert jump > 0


# State


def cache(backend: str) -> Method:
    """Build a cache that a delegate reads and computes again; the new content is copied back."""
    method = Method()
    state = method.buffer(128, "cache")
    new = on(method, "cuda:0", method.input(16), state, nbytes=128, backend=backend)
    method.outputs = [on(method, "cuda:0", new)]
    method.copy(state, new)
    return method


def cache_read_elsewhere() -> Method:
    """Build two delegates of a device: one reads the old content, the other computes the new one."""
    method = Method()
    state = method.buffer(128, "cache")
    old = on(method, "cuda:0", state)
    new = on(method, "cuda:0", method.input(16), old, nbytes=128)
    method.outputs = [on(method, "cuda:0", new)]
    method.copy(state, new)
    return method


@pytest.mark.parametrize("method", [cache("EtdevReferenceBackend"), cache_read_elsewhere()], ids=["in place", "apart"])
def test_state_that_only_one_device_touches_stays_there(method: Method) -> None:
    done = linked(method)
    assert copied(done) == ["cuda:0 <- 16", "cuda:0 -> 32"]
    plan = done.program.execution_plan[0]
    named = [tensor for _, tensor in plan.tensors() if (info := tensor.extra_tensor_info) and info.fully_qualified_name]
    assert [(tensor.device, tensor.nbytes) for tensor in named] == [(CUDA0, 128)]
    assert "aten::copy_" not in [operator.name for operator in plan.operators]


def test_a_delegate_that_may_write_before_it_reads_gets_no_output_over_its_input() -> None:
    """The new state is copied to the host, where it is kept."""
    done = linked(cache("MyBackend"))
    assert sorted(copied(done)) == sorted(
        ["cuda:0 <- 16", "cuda:0 <- 128", "cuda:0 -> 128", "cuda:0 -> 32"],
    )


@pytest.mark.parametrize("initial", [0, 1])
def test_state_that_the_host_touches_or_the_file_fills_is_kept_there(initial: int) -> None:
    method = Method()
    state = method.buffer(128, "cache", initial=initial)
    method.outputs = [on(method, "cuda:0", state)]
    if not initial:
        method.copy(state, method.op(method.input(16), nbytes=128))
    done = linked(method)
    assert copied(done) == ["cuda:0 <- 128", "cuda:0 -> 32"]
    named = [
        tensor.device
        for _, tensor in done.program.execution_plan[0].tensors()
        if (info := tensor.extra_tensor_info) and info.fully_qualified_name
    ]
    assert named == [Device()]


@pytest.mark.parametrize("host_reads", [False, True])
def test_state_of_several_methods_has_one_home(host_reads: bool) -> None:
    """If one method accesses it on the host, it is on the host for all."""
    writer = cache("EtdevReferenceBackend")
    reader = Method("reader")
    state = reader.buffer(128, "cache")
    reader.outputs = [reader.op(state) if host_reads else on(reader, "cuda:0", state)]
    found = program(writer, reader)
    done = link(found.program, LinkOptions(share_state=True), found.sidecar)
    home = {
        tensor.device
        for plan in done.program.execution_plan
        for _, tensor in plan.tensors()
        if (info := tensor.extra_tensor_info) and info.fully_qualified_name
    }
    assert home == {Device() if host_reads else CUDA0}
    assert done.shared_state == ("cache",)
    # A device has the same number in all methods; the host's buffers come first.
    tables = [plan.non_const_buffer_device for plan in done.program.execution_plan]
    assert {entry for table in tables for entry in table} == (
        {m.NonConstBufferDevice(3, DeviceType.CUDA, 0)}
        if host_reads
        else {m.NonConstBufferDevice(2, DeviceType.CUDA, 0), m.NonConstBufferDevice(3, DeviceType.CUDA, 0)}
    )


# Buffers and tags


def test_buffers_of_each_device_come_behind_those_of_the_host_in_the_order_of_devices() -> None:
    method = Method()
    later = on(method, "cuda:1", method.input(16))
    method.outputs = [on(method, "cuda:0", later)]
    plan = linked(method).program.execution_plan[0]
    assert plan.non_const_buffer_device == (
        m.NonConstBufferDevice(2, DeviceType.CUDA, 0),
        m.NonConstBufferDevice(3, DeviceType.CUDA, 1),
    )
    for _, tensor in plan.tensors():
        if tensor.allocation_info:
            assert plan.buffer_device(tensor.allocation_info.memory_id) == tensor.device


def test_a_program_without_devices_has_no_word_of_them() -> None:
    method = Method()
    method.outputs = [on(method, "cpu", method.input(16))]
    plain = Method()
    plain.outputs = plain.delegate(plain.input(16))
    one, other = (linked(item).program.execution_plan[0] for item in (method, plain))
    assert one.non_const_buffer_device == ()
    assert replace(one, delegates=()) == replace(other, delegates=())
    assert all(tensor.extra_tensor_info is None for _, tensor in one.tensors())


@pytest.mark.parametrize("value", ["gpu", "cuda:-1", "cuda:128", "mps", "\udcff"])
def test_a_delegate_on_what_is_no_device_is_an_error_that_names_the_instruction(value: str) -> None:
    method = Method()
    method.op(method.input(16))
    method.outputs = [on(method, "cuda:0", method.inputs[0])]
    spec = m.CompileSpec("target_device", value.encode(errors="surrogateescape"))
    method.delegates[0] = replace(method.delegates[0], compile_specs=(spec,))
    found = program(method)
    with pytest.raises(LinkError, match="target_device") as caught:
        link(found.program, LinkOptions(), found.sidecar)
    assert caught.value.where == "method 'forward', instruction 1"


# Contents that stay on devices


def ends(method: Method, **owned: frozenset[int]) -> Linked:
    found = program(method)
    return link(found.program, LinkOptions(caller={"forward": CallerOwned(**owned)}), found.sidecar)


def test_inputs_and_outputs_left_on_a_device_are_not_copied_and_not_planned() -> None:
    method = Method()
    shared, second = method.input(64), method.input(16)
    one = on(method, "cuda:0", shared, second)
    method.outputs = [on(method, "cuda:0", one), method.op(shared)]
    done = ends(method, device_inputs=frozenset({0}), device_outputs=frozenset({0}))
    # The host reads the first input, too.
    assert sorted(copied(done)) == ["cuda:0 -> 64", "cuda:0 <- 16"]
    plan = done.program.execution_plan[0]
    for value in (plan.inputs[0], plan.outputs[0]):
        tensor = plan.values[value]
        assert isinstance(tensor, m.Tensor)
        assert (tensor.device, tensor.allocation_info) == (CUDA0, None)
    again = link_foreign(done.program).program.execution_plan[0]
    assert [again.values[value] for value in (again.inputs[0], again.outputs[0])] == [
        plan.values[value] for value in (plan.inputs[0], plan.outputs[0])
    ]


@pytest.mark.parametrize(
    ("owned", "message"),
    [
        ({"device_inputs": frozenset({1})}, "input 1 of method 'forward' cannot stay on a device: no delegate"),
        ({"device_outputs": frozenset({1})}, "output 1 of method 'forward' cannot stay on a device: no delegate"),
        ({"device_outputs": frozenset({2})}, "there is no output 2"),
    ],
)
def test_what_no_delegate_touches_cannot_be_left_on_a_device(owned: dict[str, frozenset[int]], message: str) -> None:
    method = Method()
    data, other = method.input(64), method.input(16)
    method.outputs = [on(method, "cuda:0", data), method.op(other)]
    with pytest.raises(LinkError, match=message):
        ends(method, **owned)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("foreign", [True, False])
def test_an_input_on_a_device_that_the_host_changes_is_copied_back(foreign: bool, whole: bool) -> None:
    """The caller sees the change, even if no delegate reads it."""
    method = Method()
    data = method.input(64, planned=not foreign)
    method.outputs = [on(method, "cuda:0", data)]
    (method.copy if whole else method.update)(data, method.op(data, nbytes=64))
    found = program(method)
    if foreign:
        info = m.ExtraTensorInfo(device_type=DeviceType.CUDA, device_index=0)
        plan = found.program.execution_plan[0]
        values = (*plan.values[:data], replace(method.at(data), extra_tensor_info=info), *plan.values[data + 1 :])
        before = replace(found.program, execution_plan=(replace(plan, values=values),))
        done = link_foreign(before, keep_smaller=False)
        check(proof(before, done, found.inputs, foreign=True))
    else:
        done = ends(method, device_inputs=frozenset({0}))
    assert "cuda:0 <- 64" in copied(done)


def test_a_host_read_of_an_input_on_a_device_keeps_its_place_among_writes_to_the_callers_memory() -> None:
    """The caller may lend the same memory twice."""
    method = Method()
    data = method.input(64, planned=False)
    info = m.ExtraTensorInfo(device_type=DeviceType.CUDA, device_index=0)
    method.values[data] = replace(method.at(data), extra_tensor_info=info)
    first, lent = method.op(data), method.tensor(32, planned=False)
    wide = method.op(method.input(16), nbytes=4096)
    method.kernel("aten::mm.out", method.op(method.op(wide, nbytes=4096), nbytes=4096), lent, lent)
    method.outputs = [first, method.op(wide, data), lent]  # An earlier read of ``wide`` would need less memory.
    found = program(method).program
    done = link_foreign(found, keep_smaller=False)
    assert done.methods[0].kept is None
    check(proof(found, done, {}, foreign=True))


# Foreign files


def test_tags_and_buffers_of_a_file_without_such_delegates_go() -> None:
    """Memory on a device that no delegate asks for moves to the host."""
    method = Method()
    method.outputs = [method.op(method.op(method.input(16)))]
    plan = program(method).program.execution_plan[0]
    table = (m.NonConstBufferDevice(1, DeviceType.CUDA),)
    whole = replace(program(method).program, execution_plan=(replace(plan, non_const_buffer_device=table),))
    done = link_foreign(whole).program.execution_plan[0]
    assert done.non_const_buffer_device == ()
