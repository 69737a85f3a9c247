"""Programs on devices that were once linked wrong, or whose wrong link was once accepted (B2, B5, B8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from etdev.decisions import ALL_ELISIONS
from etdev.errors import LinkError
from etdev.linker import LinkOptions, link, link_foreign
from etdev.linker.options import CallerOwned
from etdev.program import model as m
from linker.checked import linked, meaning
from linker.programs import Method, program
from validator.test_proofs import proof

SAFE = "EtdevReferenceBackend"


@pytest.mark.parametrize("state_first", [True, False])
def test_state_that_a_delegate_with_two_outputs_writes_in_place(state_first: bool) -> None:
    method = Method()
    state, data = method.buffer(128, "cache"), method.input(16)
    sizes = [128, 32] if state_first else [32, 128]
    outs = method.delegate(data, state, nbytes=sizes, device="cuda:0", backend=SAFE)
    new, out = outs if state_first else outs[::-1]
    method.copy(state, new)
    method.outputs = [method.op(out), method.op(state)]
    linked(method)


def state_renewed_in_a_loop() -> Method:
    method = Method()
    data, state, rows = method.input(16), method.buffer(128, "cache", initial=1), method.tensor(64)
    with method.loop(4) as counter:
        method.copy(state, *method.delegate(data, state, nbytes=[128], device="cuda:0", backend=SAFE))
        method.kernel("executorch_prim::et_copy_index.tensor", rows, method.op(data, nbytes=16), counter)
    method.outputs = [rows]
    return method


def state_renewed_on_one_side() -> Method:
    method = Method()
    data, state = method.input(16), method.buffer(128, "cache", initial=1)

    def side() -> list[int]:
        method.copy(state, *method.delegate(data, state, nbytes=[128], device="cuda:0", backend=SAFE))
        return [method.op(data)]

    method.outputs = method.cond(data, side, lambda: [method.op(data, data)])
    method.outputs += method.delegate(data, state, device="cuda:0")
    return method


def state_viewed_on_the_host() -> Method:
    method = Method()
    state = method.buffer(128, "cache")
    method.copy(state, method.op(*method.delegate(method.input(16), state, device="cuda:0"), nbytes=128))
    method.outputs = [*method.delegate(state, device="cuda:0"), method.op(method.flat(state))]
    return method


@pytest.mark.parametrize("make", [state_renewed_in_a_loop, state_renewed_on_one_side, state_viewed_on_the_host])
def test_state_of_the_host_that_a_device_reads_under_another_name_than_it_was_written(
    make: Callable[[], Method],
) -> None:
    linked(make())


@pytest.mark.parametrize("frees", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_state_of_which_another_method_asks_for_nothing_but_sizes(first: bool, frees: bool) -> None:
    reader, asker = Method("reader"), Method("asker")
    reader.outputs = reader.delegate(reader.input(16), reader.buffer(128, "cache"), device="cuda:0")
    state = asker.buffer(128, "cache")
    if frees:
        asker.calls.append(m.FreeCall(state))
    else:
        asker.kernel("aten::sym_size.int", state, asker.value(m.Int(0)), asker.value(m.Int(0)))
    asker.outputs = [asker.op(asker.input(16))]
    found = program(*((reader, asker) if first else (asker, reader)))
    done = link(found.program, LinkOptions(share_state=True), found.sidecar).program
    for plan in done.execution_plan:
        for _, tensor in plan.tensors():
            if tensor.allocation_info:
                assert plan.buffer_device(tensor.allocation_info.memory_id) == tensor.device


def test_state_whose_sizes_the_host_asks_for_is_there_once() -> None:
    method = Method()
    state = method.buffer(4096, "cache")
    method.kernel("aten::sym_size.int", state, method.value(m.Int(0)), method.value(m.Int(0)))
    method.outputs = method.delegate(method.input(16), state, device="cuda:0")
    plan = linked(method).program.execution_plan[0]
    infos = [tensor.extra_tensor_info for _, tensor in plan.tensors()]
    assert [info.fully_qualified_name for info in infos if info and info.fully_qualified_name] == ["cache"]


def test_state_of_which_the_new_content_is_freed_is_not_written_under_its_name() -> None:
    method = Method()
    (new,) = method.delegate(method.input(16), device="cuda:0")
    method.copy(method.buffer(32, "cache"), new)
    method.free(new)
    linked(method)


def test_a_constant_that_an_unknown_operator_gets_too_and_of_which_there_is_a_view() -> None:
    method = Method()
    weight = method.constant(64)
    method.outputs = method.delegate(weight, device="cuda:0")
    method.outputs += [method.op(weight, name="my::fused.out"), method.op(method.flat(weight))]
    method.outputs += method.delegate(weight, device="cuda:0")
    linked(method)


def test_what_a_branch_gives_anew_and_of_which_there_is_a_view() -> None:
    method = Method()
    data = method.input(32)
    (old,) = method.delegate(data, device="cuda:0")
    view = method.et_view(old)
    (merged,) = method.cond(data, lambda: method.delegate(data, device="cuda:0"), lambda: [old])
    method.outputs = [method.op(merged, view)]
    linked(method)


def input_for_two_devices() -> tuple[Method, CallerOwned]:
    method = Method()
    data = method.input(64)
    method.outputs = [*method.delegate(data, device="cuda:0"), *method.delegate(data, device="cuda:1")]
    return method, CallerOwned(device_inputs=frozenset({0}))


def output_for_the_host() -> tuple[Method, CallerOwned]:
    method = Method()
    (out,) = method.delegate(method.input(64), device="cuda:0")
    method.outputs = [out, method.op(out)]
    return method, CallerOwned(device_outputs=frozenset({0}))


def output_that_the_host_changes() -> tuple[Method, CallerOwned]:
    method = Method()
    (out,) = method.delegate(method.input(64), device="cuda:0")
    method.update(out, method.inputs[0])
    method.outputs = [out]
    return method, CallerOwned(device_outputs=frozenset({0}))


def input_without_memory() -> tuple[Method, CallerOwned]:
    method = Method()
    data = method.input(64, planned=False)
    method.outputs = [*method.delegate(data, device="cuda:0"), method.op(data)]
    return method, CallerOwned(device_inputs=frozenset({0}))


ENDS = [input_for_two_devices, output_for_the_host, output_that_the_host_changes, input_without_memory]


@pytest.mark.parametrize("make", ENDS)
def test_ends_on_devices_that_are_read_elsewhere_too(make: object) -> None:
    """They have memory there, also in a file whose inputs and outputs are on devices already."""
    method, owned = make()  # type: ignore[operator]
    found = program(method)
    done = link(found.program, LinkOptions(caller={"forward": owned}), found.sidecar).program
    wanted = meaning(found.program, found, placed=False)
    assert meaning(done, found) == wanted
    assert meaning(link_foreign(done).program, found) == wanted


@pytest.mark.parametrize("elide", [True, False])
def test_an_input_on_a_device_of_which_the_host_has_a_view(elide: bool) -> None:
    method = Method()
    data = method.input(64)
    method.outputs = [*method.delegate(data, device="cuda:0"), method.op(method.flat(data)), method.view(data)]
    found = program(method)
    caller = {"forward": CallerOwned(device_inputs=frozenset({0}))}
    options = LinkOptions(caller=caller, elide=ALL_ELISIONS if elide else frozenset())
    done = link(found.program, options, found.sidecar).program
    wanted = meaning(found.program, found, placed=False)
    assert meaning(done, found) == wanted
    assert meaning(link_foreign(done).program, found) == wanted


def test_an_output_on_a_device_of_which_a_branch_gives_a_view() -> None:
    method = Method()
    data = method.input(64)
    (out,) = method.delegate(data, device="cuda:0")
    method.outputs = [out, *method.cond(data, lambda: [method.view(out)], lambda: [method.op(data)])]
    found = program(method)
    wanted = meaning(found.program, found, placed=False)
    for elide in (frozenset[str](), ALL_ELISIONS):
        options = LinkOptions(caller={"forward": CallerOwned(device_outputs=frozenset({0}))}, elide=elide)  # type: ignore[arg-type]
        done = link(found.program, options, found.sidecar).program
        assert meaning(done, found) == wanted
        assert meaning(link_foreign(done).program, found) == wanted


def test_ends_of_a_chain_are_those_of_the_method() -> None:
    method = Method()
    method.outputs = method.delegate(method.input(64), device="cuda:0")
    found = program(method)
    plan = found.program.execution_plan[0]
    chain = replace(plan.chains[0], inputs=plan.inputs, outputs=plan.outputs)
    whole = replace(found.program, execution_plan=(replace(plan, chains=(chain,)),))
    owned = CallerOwned(device_inputs=frozenset({0}), device_outputs=frozenset({0}))
    done = link(whole, LinkOptions(caller={"forward": owned}), found.sidecar).program.execution_plan[0]
    assert (done.chains[0].inputs, done.chains[0].outputs) == (done.inputs, done.outputs)


def test_a_list_of_tensors_for_a_delegate_on_a_device_is_refused() -> None:
    method = Method()
    data = method.input(16)
    method.outputs = method.delegate(method.value(m.TensorList((data,))), device="cuda:0")
    found = program(method)
    with pytest.raises(LinkError, match="a list of tensors") as caught:
        link(found.program, LinkOptions(), found.sidecar)
    assert caught.value.where == "method 'forward', instruction 0"


def test_the_proof_refuses_a_write_to_a_constant() -> None:
    method = Method()
    weight = method.constant(32)
    method.op(method.input(32))
    method.outputs = [method.op(weight)]
    found = program(method)
    done = link(found.program, LinkOptions(), found.sidecar)
    plan = done.program.execution_plan[0]
    constant = next(value for value, tensor in plan.tensors() if tensor.is_constant)
    first, *others = plan.chains[0].instructions
    assert isinstance(first, m.KernelCall)
    wrong = replace(first, args=(first.args[0], constant, constant))
    chain = replace(plan.chains[0], instructions=(wrong, *others))
    broken = replace(done.program, execution_plan=(replace(plan, chains=(chain,)),))
    assert meaning(broken, found) != meaning(found.program, found, placed=False)
    (violation,) = proof(found.program, replace(done, program=broken), {"forward": {}}).violations
    assert "which is a constant" in violation.message


def test_a_copy_to_a_device_reads_no_tensor_that_was_freed() -> None:
    """The view is the same bytes under another name, and its pointer is still set."""
    method = Method()
    made = method.op(method.input(32))
    viewed = method.view(made)
    before = method.op(viewed)
    method.free(made)
    method.outputs = [before, *method.delegate(viewed, device="cuda:0")]
    linked(method)
