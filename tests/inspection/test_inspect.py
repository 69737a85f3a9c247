"""``etdev.inspect``: what it says of a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import etdev
from etdev.errors import ProgramError
from etdev.inspection.copies import copy_calls, outputs_in_place
from etdev.inspection.peaks import peaks
from etdev.program import Blob, Program, write
from etdev.program import model as m
from etdev.program.analysis.storage import method_memory
from etdev.program.info import Argument, CopyCalls, MethodInfo, OutputInPlace, Peak, ProgramInfo
from etdev.program.sidecar import MethodNotes, OutputNote, Source
from etdev.program.signatures import find_signature
from inspection.report.builds import built_file
from program.hand import everything, loop, tensor, unbounded
from program.strategies import programs
from support.draws import examples
from support.files import banked, branches, chain, copies, cos, counters, delegated, method, overwriting, program, sin
from support.reports import bank_report, write_report
from support.speed import action_time, usual_seconds


def inspected(found: Program, folder: Path) -> ProgramInfo:
    """What is said of a program's file."""
    file = folder / "a.pte"
    write(found, file)
    return etdev.inspect(file)


def only(methods: tuple[MethodInfo, ...]) -> MethodInfo:
    (described,) = methods
    return described


def only_method(found: Program, folder: Path) -> MethodInfo:
    return only(inspected(found, folder).methods)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=programs())
def test_every_valid_file_is_described(found: Program, tmp_path: Path) -> None:
    """Law: whatever a file makes of memory, it can be looked at; the parts are the whole, and bounds are bounds."""
    described = inspected(found, tmp_path)

    sections = json.loads(described.to_json())["sections"]
    assert sum(sections.values()) == described.size == (tmp_path / "a.pte").stat().st_size
    assert min(sections.values()) >= 0
    assert [item.name for item in described.methods] == [plan.name for plan in found.execution_plan]
    for item in described.methods:
        assert all(buffer.lower_bound is None or buffer.lower_bound <= buffer.size for buffer in item.buffers)
        assert (item.memory_unknown is None) == all(buffer.lower_bound is not None for buffer in item.buffers) or (
            not item.buffers
        )
        assert item.memory_unknown is None or not (item.peaks or item.inplace)
        assert [peak.buffer for peak in item.peaks] == sorted({peak.buffer for peak in item.peaks})
        for peak in item.peaks:
            assert sum(tensor.nbytes for tensor in peak.tensors) == peak.nbytes > 0
            assert all(0 <= position < item.instructions for position in positions(peak))
            assert all(tensor.until is None or tensor.until >= (peak.instruction or 0) for tensor in peak.tensors)
        assert len({(out.instruction, out.output) for out in item.inplace}) == len(item.inplace)
        assert sum(copy.calls for copy in item.copies) <= item.instructions


def positions(peak: Peak) -> list[int]:
    """Instructions that a peak speaks of."""
    found = [peak.instruction, *(tensor.instruction for tensor in peak.tensors)]
    return [position for position in found if position is not None]


@pytest.mark.parametrize(
    ("found", "sizes"),
    [
        (chain(1), [(32, 32)]),
        (chain(10), [(176, 32)]),
        (branches(), [(192, 192)]),  # No bound is above what the file gets by with.
        (delegated(), [(96, 96)]),  # 64 of them for what XNNPACK reads behind a buffer.
        (delegated(backend="Other"), [(96, 32)]),
        (counters(), [(48, 48), (48, 48)]),
        (counters(buffer=2), [(48, 32), (16, 16), (48, 32), (16, 16)]),
    ],
)
def test_buffers_and_their_lower_bounds(found: Program, sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    described = inspected(found, tmp_path)

    assert [(item.size, item.lower_bound) for one in described.methods for item in one.buffers] == sizes
    assert {item.device for one in described.methods for item in one.buffers} == {"cpu"}


def test_a_lower_bound_asks_for_no_more_alignment_than_the_file_has(tmp_path: Path) -> None:
    """At multiples of 16 these would need 20 bytes."""
    plan = method([tensor(1, at=0), tensor(1, at=4)], [m.KernelCall(1, (0, 1, 1))])

    (buffer,) = only_method(program(plan), tmp_path).buffers
    assert (buffer.size, buffer.lower_bound) == (8, 8)


def test_memory_is_the_sum_over_buffers_of_the_largest(tmp_path: Path) -> None:
    first = method([tensor(4, at=0), tensor(8, at=0, buffer=2)], [])
    second = method([tensor(16, at=0)], [], name="second")

    assert inspected(program(first, second), tmp_path).memory == {"cpu": 64 + 32}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            overwriting(),
            "the caller (outputs) reads value 1 at bytes 16 to 32 of buffer 1 after instruction",
        ),
        (delegated(ambiguous=True), "the file does not say which arguments of instruction 0 (XnnpackBackend)"),
    ],
)
def test_what_cannot_be_known_is_said(found: Program, reason: str, tmp_path: Path) -> None:
    described = only_method(found, tmp_path)

    assert described.memory_unknown is not None
    assert described.memory_unknown.startswith(reason)
    assert [buffer.lower_bound for buffer in described.buffers] == [None]
    assert described.state == ()


@pytest.mark.parametrize(
    ("buffer", "expected"),
    [
        (1, [("value 1", 16, 1, 0, False, False), ("value 1", 16, 1, 16, False, False)]),
        (2, [("value 1", 16, 2, 0, True, False), ("value 1", 16, 2, 0, True, False)]),
    ],
)
def test_state(buffer: int, expected: list[tuple[object, ...]], tmp_path: Path) -> None:
    described = inspected(counters(buffer=buffer), tmp_path)

    state = [item for one in described.methods for item in one.state]
    assert [(i.name, i.size, i.buffer, i.offset, i.shared, i.initialized) for i in state] == expected


def test_state_has_one_name_in_all_methods(tmp_path: Path) -> None:
    """Also where only one of them has it in the file: in the others it was called "value 1"."""
    for named in (0, 1):
        found = counters(buffer=2)
        plan = found.execution_plan[named]
        info = m.ExtraTensorInfo(fully_qualified_name="memory")
        values = [*plan.values[:1], replace(plan.values[1], extra_tensor_info=info), *plan.values[2:]]
        plans = list(found.execution_plan)
        plans[named] = replace(plan, values=tuple(values))
        described = inspected(replace(found, execution_plan=tuple(plans)), tmp_path)
        assert [[state.name for state in one.state] for one in described.methods] == [["memory"], ["memory"]]


def test_named_and_initialized_state(tmp_path: Path) -> None:
    kept = tensor(2, at=0, data=1, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name="layers.0.cache"))
    plan = method([kept, tensor(2, at=16)], [m.KernelCall(1, (0, 1, 1))], inputs=())
    found = program(
        plan,
        segments=(m.Segment(0, Blob()), m.Segment(16, Blob(bytes(8)))),
        mutable_data_segments=(m.SubsegmentOffsets(1, (0, 0)),),
    )

    (state,) = only_method(found, tmp_path).state
    assert (state.name, state.initialized, state.shared) == ("layers.0.cache", True, False)


def test_inputs_and_outputs(tmp_path: Path) -> None:
    described = only_method(everything(), tmp_path)
    flag, x = only_method(branches(), tmp_path).inputs
    free, moved = (*only_method(unbounded(), tmp_path).inputs, *only_method(unbounded(), tmp_path).outputs)

    assert str(described.inputs[0]) == "float32 [2, 2] at most"
    assert [(item.memory, item.device) for item in described.outputs] == [("alias", "cuda:1"), ("constant", "cpu")]
    assert (str(flag), str(x), x.nbytes) == ("bool []", "float32 [16]", 64)
    assert (str(free), free.nbytes, free.memory) == ("float32 [-1, 3] without limit", None, "caller")
    assert moved.memory == "alias"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (m.Int(-3), "int -3"),
        (m.Bool(True), "bool true"),
        (m.Double(float("nan")), "double nan"),
        (m.String("naïve"), "string naïve"),
        (m.Null(), "null"),
    ],
)
def test_constant_outputs(value: m.Value, text: str, tmp_path: Path) -> None:
    found = program(method([value], [], inputs=(), outputs=(0,)))

    assert [str(item) for item in only_method(found, tmp_path).outputs] == [text]


def test_arguments_without_sizes() -> None:
    assert str(Argument("tensor", "float32", (), "static")) == "float32 []"


def test_operators_are_counted_and_those_without_a_call_are_named(tmp_path: Path) -> None:
    described = only_method(loop(), tmp_path)

    assert described.instructions == 5
    assert list(described.operators.items()) == [
        ("aten::add.out", 2),
        ("executorch_prim::add.Scalar", 1),
        ("executorch_prim::ge.Scalar", 1),
    ]
    assert only_method(chain(1), tmp_path).operators == {"aten::add.out": 0, "aten::cos.out": 0, "aten::sin.out": 1}


def test_delegates(tmp_path: Path) -> None:
    described = inspected(delegated(), tmp_path)
    ((delegate,),) = (item.delegates for item in described.methods)

    assert (delegate.id, delegate.calls, delegate.blob_bytes, delegate.segment) == ("XnnpackBackend", 1, 8, 1)
    assert [(item.key, item.text) for item in delegate.compile_specs] == [("target_device", "cpu")]
    assert described.segments[1].holds == ("delegates", "named_data")
    assert (described.sections.delegates, described.sections.named_data) == (8, 0)  # Nothing is counted twice.
    assert [(item.key, item.segment, item.size) for item in described.named_data] == [("weights", 1, 8)]


def test_the_peak(tmp_path: Path) -> None:
    """The first moment at which most is in use, and what wrote it."""
    values = [tensor(4, at=0), tensor(8, at=16), tensor(2, at=48), tensor(8, at=64), tensor(1, at=96)]
    calls = [sin(0, 1), sin(0, 2), m.KernelCall(0, (1, 2, 5, 3, 3)), sin(3, 4), sin(2, 4)]
    (peak,) = only_method(program(method([*values, m.Int(1)], calls, outputs=(4,))), tmp_path).peaks

    assert (peak.buffer, peak.device, peak.nbytes) == (1, "cpu", 72)
    assert (peak.instruction, peak.during) == (2, "aten::add.out")
    assert [(item.value, item.shape, item.nbytes, item.instruction, item.origin) for item in peak.tensors] == [
        (1, (8,), 32, 0, "aten::sin.out"),
        (3, (8,), 32, 2, "aten::add.out"),
        (2, (2,), 8, 1, "aten::sin.out"),
    ]
    assert {item.dtype for item in peak.tensors} == {"float32"}
    assert [(item.until, item.last_user) for item in peak.tensors] == [
        (2, "aten::add.out"),
        (3, "aten::sin.out"),
        (4, "aten::sin.out"),
    ]


def _joined() -> Program:
    """Two parts that are made at their places in what is read as one."""
    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), tensor(8, at=16), tensor(8, at=64)]
    return program(method(values, [sin(0, 1), cos(0, 2), sin(3, 4)]))


def _calls() -> Program:
    """A delegate, and a move of a flag."""
    part = m.BackendDelegate("Backend", m.BackendDelegateDataReference(m.DataLocation.SEGMENT, 1), ())
    calls = [m.DelegateCall(0, (0, 1)), sin(1, 2)]
    plan = method([tensor(4, at=0), tensor(8, at=16), tensor(1, at=64)], calls, delegates=(part,))
    return program(plan, segments=(m.Segment(0, Blob()), m.Segment(128, Blob(b"delegate"))))


@pytest.mark.parametrize(
    ("found", "when", "tensors"),
    [
        (chain(0), (None, "filling the inputs"), [(0, None, "input 0")]),
        (chain(2), (0, "aten::sin.out"), [(0, None, "input 0"), (1, 0, "aten::sin.out")]),
        (_joined(), (2, "aten::sin.out"), [(3, 1, "aten::cos.out"), (4, 2, "aten::sin.out")]),
        (_calls(), (0, "Backend"), [(1, 0, "Backend"), (0, None, "input 0")]),
        (
            counters(),
            (0, "aten::add.out"),
            [(0, None, "input 0"), (1, None, "an earlier call"), (2, 0, "aten::add.out")],
        ),
        (loop(), (0, "aten::add.out"), [(0, None, "input 0"), (1, 0, "aten::add.out")]),
    ],
)
def test_who_wrote_what_is_in_use(
    found: Program, when: tuple[int | None, str], tensors: list[tuple[int, int | None, str]], tmp_path: Path
) -> None:
    (peak,) = inspected(found, tmp_path).methods[0].peaks

    assert (peak.instruction, peak.during) == when
    assert [(item.value, item.instruction, item.origin) for item in peak.tensors] == tensors


def test_until_when_the_caller_and_later_calls_need_it(tmp_path: Path) -> None:
    (peak,) = inspected(counters(), tmp_path).methods[0].peaks
    users = {item.origin: (item.until, item.last_user) for item in peak.tensors}
    assert users["an earlier call"] == (None, "a later call")
    (peak,) = inspected(chain(1), tmp_path).methods[0].peaks
    assert [(item.until, item.last_user) for item in peak.tensors] == [(0, "aten::sin.out"), (None, "the caller")]


def test_a_buffer_of_state_alone_has_no_peak(tmp_path: Path) -> None:
    for described in inspected(counters(buffer=2), tmp_path).methods:
        assert [(peak.buffer, peak.nbytes) for peak in described.peaks] == [(1, 32)]


def test_peaks_of_buffers_on_devices(tmp_path: Path) -> None:
    cuda = m.ExtraTensorInfo(device_type=m.DeviceType.CUDA, device_index=1)
    values = [tensor(4, at=0), tensor(8, at=0, buffer=2, extra_tensor_info=cuda)]
    plan = method(values, [sin(0, 1)], non_const_buffer_device=(m.NonConstBufferDevice(2, m.DeviceType.CUDA, 1),))

    found = only_method(program(plan), tmp_path).peaks
    assert [(peak.buffer, peak.device, peak.nbytes) for peak in found] == [(1, "cpu", 16), (2, "cuda:1", 32)]


def test_names_are_told_of_what_is_in_use(tmp_path: Path) -> None:
    named = tensor(2, at=0, extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name="layers.0.cache"))
    plan = method([named, tensor(2, at=16)], [sin(0, 1)], inputs=())

    (peak,) = only_method(program(plan), tmp_path).peaks
    assert [(item.name, item.origin) for item in peak.tensors] == [
        ("layers.0.cache", "an earlier call"),
        (None, "aten::sin.out"),
    ]


def test_outputs_in_place(tmp_path: Path) -> None:
    """C5: chains; what a link lays over an operand is found in its file."""
    assert only_method(chain(3), tmp_path).inplace == ()
    etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")

    (described,) = etdev.inspect(tmp_path / "b.pte").methods
    assert described.inplace == tuple(
        OutputInPlace(index, "aten::sin.out", output=index + 1, operand=index, nbytes=16) for index in range(3)
    )
    (peak,) = described.peaks
    assert [(item.value, item.values, item.origin) for item in peak.tensors] == [(0, 4, "input 0")]


def test_copies_that_are_left(tmp_path: Path) -> None:
    """The first is what copies most; what a link removes is no more."""
    before = only_method(copies(), tmp_path).copies
    etdev.relink(tmp_path / "a.pte", tmp_path / "b.pte")

    expand = CopyCalls("aten::expand_copy.out", "repeat", calls=1, nbytes=216)
    select = CopyCalls("aten::select_copy.int_out", "slices", calls=1, nbytes=8)
    assert before == (
        expand,
        CopyCalls("aten::cat.out", "cat", calls=1, nbytes=24),
        CopyCalls("aten::copy_", "write_back", calls=1, nbytes=16),
        CopyCalls("aten::view_copy.out", "views", calls=1, nbytes=16),
        select,
    )
    (described,) = etdev.inspect(tmp_path / "b.pte").methods
    assert described.copies == (expand, select)


CLONE, TO_COPY = "dim_order_ops::_clone_dim_order", "dim_order_ops::_to_dim_order_copy"
LAST = replace(tensor(1, 2, 2, 2, at=64), dim_order=(0, 2, 3, 1))
MORE = {"bool": m.Bool(False), "int": m.Int(0), "int?": m.Null(), "int[]?": m.Null(), "int[]": m.IntList(())}


@pytest.mark.parametrize(
    ("operator", "source", "out", "kind"),
    [
        (CLONE, tensor(1, 2, 2, 2, at=0), tensor(1, 2, 2, 2, at=64), "views"),
        (CLONE, tensor(1, 2, 2, 2, at=0), LAST, "order"),
        (TO_COPY, tensor(4, at=0), replace(tensor(4, at=64), scalar_type=m.ScalarType.INT), None),
        ("aten::_to_copy", tensor(4, at=0), tensor(4, at=64), "views"),
        ("aten::permute_copy", tensor(4, at=0), tensor(4, at=64), "order"),
        ("aten::sin", tensor(4, at=0), tensor(4, at=64), None),
        ("my::view_copy", tensor(4, at=0), tensor(4, at=64), None),
        ("aten::cat", m.TensorList(()), tensor(4, at=64), None),
    ],
)
def test_what_a_copy_is(operator: str, source: m.Value, out: m.Tensor, kind: str | None, tmp_path: Path) -> None:
    """One that changes the element type computes something."""
    signature = find_signature(f"{operator}.out")
    more = [MORE[parameter.kind] for parameter in signature.parameters[1:-1]] if signature else []
    args = (0, *range(2, 2 + len(more)), 1, 1)
    values = [source, out, *more]
    plan = method(values, [m.KernelCall(0, args)], inputs=(), operators=(m.Operator(operator, "out"),))

    found = only_method(program(plan), tmp_path).copies
    assert [(item.kind, item.calls, item.nbytes) for item in found] == ([(kind, 1, out.nbytes)] if kind else [])


def places(file: Path) -> list[tuple[str | None, str | None]]:
    """Module and line of the peak, then of the tensors in use."""
    (peak,) = only(etdev.inspect(file).methods).peaks
    return [(peak.module, peak.source), *((item.module, item.source) for item in peak.tensors)]


def test_modules_and_lines_of_a_built_file(tmp_path: Path) -> None:
    file = built_file(tmp_path, chain(2), modules={0: "layers.0", 1: ""})
    assert places(file) == [("layers.0", "model.py:11"), (None, None), ("layers.0", "model.py:11")]

    file.write_bytes(file.read_bytes().replace(b"aten::sin", b"aten::cos"))
    assert set(places(file)) == {(None, None)}, "the file is not the one that was built"
    file.write_bytes(file.read_bytes().replace(b"aten::cos", b"aten::sin"))
    (tmp_path / "tiny.object.json").write_text("{}")
    assert set(places(file)) == {(None, None)}, "the notes are of another build"


def test_an_output_of_a_delegate_has_the_place_of_its_op() -> None:
    """As far as the notes say it; otherwise, that of the delegate."""
    (plan,) = delegated().execution_plan
    calls = (m.Chain((m.DelegateCall(0, (0, 1, 2)),)),)
    plan = replace(plan, values=(*plan.values, tensor(4, at=32)), chains=calls, outputs=(1, 2))
    notes = MethodNotes(
        delegate_inputs={0: 1},
        modules={0: "net"},
        sources={0: Source("model.py", 9, "forward", "")},
        outputs={0: (OutputNote("net.first", Source("model.py", 3, "forward", "")), OutputNote(None, None))},
    )
    (peak,) = peaks(plan, method_memory(plan, {0: 1}), notes)
    found = {item.value: (item.module, item.source) for item in peak.tensors}
    assert found == {0: (None, None), 1: ("net.first", "model.py:3"), 2: ("net", "model.py:9")}


@pytest.mark.slow
def test_large_methods_take_no_more_than_their_share(tmp_path: Path) -> None:
    """5,000 instructions of which each output is in use to the end."""
    count = 5_000
    values = [tensor(4, at=16 * index) for index in range(count + 1)]
    calls = [sin(index, index + 1) for index in range(count)]
    plan = method(values, calls, outputs=range(count + 1))
    memory = method_memory(plan, {})

    def described() -> None:
        (peak,) = peaks(plan, memory, MethodNotes())
        assert (len(peak.tensors), outputs_in_place(plan, memory), copy_calls(plan)) == (count + 1, (), ())

    assert usual_seconds(lambda: action_time(described), 1, most=3) < 1


def test_weights(tmp_path: Path) -> None:
    described = inspected(everything(), tmp_path)

    assert (described.weights_bytes, described.external_data) == (24, ("weight",))
    inline = replace(loop(), constant_buffer=(Blob(), Blob(bytes(40))), constant_segment=None, segments=())
    assert inspected(inline, tmp_path).weights_bytes == 40


def test_files_that_are_no_programs(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="there is no such file"):
        etdev.inspect(tmp_path / "nowhere.pte")
    (tmp_path / "a.pte").write_bytes(b"not a program at all")
    with pytest.raises(ProgramError, match="not an ExecuTorch program") as caught:
        etdev.inspect(tmp_path / "a.pte")
    assert caught.value.exit_code == 2


def test_banks_of_the_report_of_this_file(tmp_path: Path) -> None:
    file = tmp_path / "m.pte"
    write(banked(8, 16), file)
    unnamed = etdev.inspect(file)
    write_report(file, banks=bank_report(48, 64))
    found = etdev.inspect(file)
    named = [(1, "cpu", 48, "slow", 4096), (2, "cpu", 64, "fast", 128)]
    for buffers in (found.buffers, found.methods[0].buffers):
        assert [(item.index, item.device, item.size, item.bank, item.capacity) for item in buffers] == named
    assert [(item.index, item.size, item.bank, item.capacity) for item in unnamed.buffers] == [
        (1, 48, None, None),
        (2, 64, None, None),
    ]


@pytest.mark.parametrize("damage", ["other file", "no report", "other version"])
def test_banks_of_another_file_are_not_believed(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "m.pte"
    write(chain(1), file)
    write_report(file, banks=bank_report(48, 64))
    if damage == "other file":
        write(banked(8, 16), file)
    elif damage == "no report":
        (tmp_path / "report.json").unlink()
    else:
        (tmp_path / "report.json").write_text('{"format": 7}')
    assert {buffer.bank for buffer in etdev.inspect(file).buffers} == {None}


def test_a_buffer_of_the_program_is_as_large_as_in_any_method(tmp_path: Path) -> None:
    first, second = (banked(*sizes).execution_plan[0] for sizes in ((8, 16), (4, 32)))
    write(program(first, replace(second, name="second")), tmp_path / "m.pte")
    found = etdev.inspect(tmp_path / "m.pte")
    assert [(item.index, item.size) for item in found.buffers] == [(1, 48), (2, 128)]
    assert sum(item.size for item in found.buffers) == found.memory["cpu"]
