"""The figures that budgets, baselines and the lock are about (E2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etdev.inspection.breakdown import memory_parts, weight_parts
from etdev.inspection.measure import measure_program, weight_bytes
from etdev.pipeline.builder import summary
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result import MethodResult, UndelegatedOps
from etdev.program import Blob
from etdev.program import model as m
from etdev.program.data_files.assignment import DataFiles
from etdev.program.data_files.external import externalize, internalize, movable_data
from etdev.program.footprint import repeated_bytes
from etdev.program.sidecar import MethodNotes, Source
from program.hand import tensor
from support.files import ADD, chain, delegated, method, program
from support.on_devices import across, delegate, file_of, two_devices, two_devices_plan
from support.projects import LINEAR_CONFIG, make_project


def lowered(delegated: int, undelegated: int) -> MethodResult:
    rest = (UndelegatedOps(op="aten.sin", count=undelegated),) if undelegated else ()
    return MethodResult(
        name="forward",
        inputs=(),
        stateful=False,
        delegate_calls={},
        delegated_ops=delegated,
        undelegated=rest,
        operators=(),
    )


def test_a_program_on_two_devices() -> None:
    found = measure_program(two_devices(), 1000, [lowered(3, 1)])

    assert found.memory == {"cpu": 64, "cuda:0": 32, "cuda:1": 32}
    assert (found.file, found.weights, found.copies) == (1000, 0, 64)
    assert (found.delegated_ops, found.undelegated_ops, found.delegated) == (3, 1, 0.75)


def test_the_method_that_copies_most_counts() -> None:
    assert measure_program(across(two_devices_plan(), two_devices_plan("other")), 0).copies == 64


@pytest.mark.parametrize(("methods", "share"), [([], None), ([lowered(0, 0)], None), ([lowered(0, 2)], 0.0)])
def test_no_share_without_ops(methods: list[MethodResult], share: float | None) -> None:
    assert measure_program(chain(2), 0, methods).delegated == share


def test_parts_of_memory_have_modules() -> None:
    notes = {"forward": MethodNotes(modules={0: "layers.0"}, sources={0: Source("model.py", 7, "forward", "")})}
    assert memory_parts(chain(1), "cpu", notes).largest() == (
        "at instruction 0 of 'forward' (aten::sin.out, layers.0, model.py:7): float32 [4] of aten::sin.out in layers.0 "
        "16 bytes, float32 [4] of input 0 16 bytes"
    )


def test_weights_are_constants_and_named_data_each_once() -> None:
    constants, named = m.Segment(0, Blob(bytes(48))), m.Segment(128, Blob(bytes(5)))
    made = replace(
        delegated(),
        segments=(constants, named),
        constant_segment=m.SubsegmentOffsets(0, (0, 0)),
        named_data=(m.NamedData("a", 1), m.NamedData("b", 1)),
    )

    assert weight_bytes(made) == 48 + 5


def test_weights_of_kernels_and_delegates_in_the_file_twice() -> None:
    weight, other = b"w" * 16, b"o" * 16
    values = [tensor(4, at=0), tensor(4, data=1), tensor(4, at=16), m.Int(1)]
    call = m.KernelCall(0, (0, 1, 3, 2, 2))

    def made(named: bytes) -> m.Program:
        return program(
            method(values, [call], outputs=(2,), operators=(ADD,)),
            segments=(m.Segment(0, Blob(weight)), m.Segment(128, Blob(named))),
            constant_segment=m.SubsegmentOffsets(0, (0, 0)),
            named_data=(m.NamedData("a", 1), m.NamedData("b", 1)),
        )

    assert [repeated_bytes(made(named), {"a", "b"}) for named in (weight, other, weight * 2)] == [16, 0, 0]
    assert [weight_bytes(made(named)) for named in (weight, other)] == [32, 32]
    assert [weight_parts(made(named)).largest() for named in (weight, other)] == [
        "data 'a' of delegates 16 bytes, float32 [4] for aten::add.out 16 bytes"
    ] * 2


def shared(*, blob: int = 3, outputs: tuple[int, ...] = (2,)) -> m.Program:
    """``add`` of a constant whose bytes are also named data. The delegate's blob is the segment ``blob``."""
    values = [tensor(4, at=0), tensor(4, data=1), tensor(4, at=16), m.Int(1)]
    call = m.KernelCall(0, (0, 1, 3, 2, 2))
    place = m.BackendDelegateDataReference(m.DataLocation.SEGMENT, blob)
    plan = method(values, [call], outputs=outputs, operators=(ADD,))
    blobs = (b"w" * 16, b"w" * 16, b"o" * 16, b"d" * 8)
    return program(
        replace(plan, delegates=(replace(delegate(b"cuda:0"), processed=place),)),
        segments=tuple(m.Segment(128 * index, Blob(blob)) for index, blob in enumerate(blobs)),
        constant_segment=m.SubsegmentOffsets(0, (0, 0)),
        named_data=(m.NamedData("same", 1), m.NamedData("other", 2)),
    )


@pytest.mark.parametrize(
    ("inside", "weights", "repeated"),
    [
        pytest.param(shared(), 32, 16, id="one copy for a kernel and a delegate"),
        pytest.param(shared(blob=1), 48, 0, id="named data that stays, because it is the blob of a delegate"),
        pytest.param(shared(outputs=(1,)), 48, 0, id="a constant that stays, because the method returns it"),
    ],
)
def test_weights_that_a_data_file_stores_once_count_once(inside: m.Program, weights: int, repeated: int) -> None:
    """The file of ``external_weights`` has equal bytes once, for a kernel and for a delegate."""
    outside, data = externalize(inside)
    joined, pooled = internalize(outside, data), {item.key for item in data.named_data}

    assert sum(len(segment.data) for segment in data.segments) + weight_bytes(outside) == weights
    assert weight_bytes(joined, pooled=pooled) == weights
    assert measure_program(joined, 0, pooled=pooled).weights == weights
    assert sum(size for _, size in weight_parts(joined, pooled=pooled).items) == weights
    assert repeated_bytes(inside, {item.key for item in movable_data(inside)}) == repeated


def test_data_in_the_own_file_of_a_backend_is_stored_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = DataFiles({"own.ptd": {"same": None}}, "weights.ptd")
    outside, data = files.split(shared())
    pooled = {item.key for item in data["weights.ptd"].named_data}

    assert sum(len(segment.data) for file in data.values() for segment in file.segments) == 48
    assert weight_bytes(internalize(outside, *data.values()), pooled=pooled) == 48

    monkeypatch.setattr(summary, "_LEAST_REPEATED", 16)
    project = make_project(tmp_path, LINEAR_CONFIG + "    [targets.cpu]\n")
    (note,) = summary.describe_repeated(project, "cpu", shared(), DataFiles())
    assert note.startswith("16 B of weights are in the file twice")
    assert not list(summary.describe_repeated(project, "cpu", shared(), DataFiles(files.delegates)))


def test_weights_of_a_program_in_a_delegate_count_once_for_all_delegates_that_have_it() -> None:
    inside = replace(
        program(*chain(1).execution_plan),
        segments=(m.Segment(0, Blob(bytes(64))),),
        constant_segment=m.SubsegmentOffsets(0, (0, 0)),
    )
    around = replace(two_devices(), segments=(m.Segment(0, Blob()), m.Segment(128, Blob(file_of(inside)))))

    assert weight_bytes(around) == 64


def test_json_gives_the_same_figures() -> None:
    found = measure_program(two_devices(), 1000)

    assert Figures.model_validate_json(found.model_dump_json()) == found
