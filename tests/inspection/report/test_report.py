"""``etdev.report``: what the page is told of a file, and of what its build left next to it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import etdev
from etdev.errors import ProgramError, UsageError
from etdev.inspection.provenance import known_data
from etdev.inspection.report.document import build_document, file_document, file_page
from etdev.page.model import BufferPage, Document, MethodPage, ProgramPage
from etdev.pipeline.results.figures import Figures
from etdev.pipeline.results.result import BuildResult, CheckResult, DataFile, Failure
from etdev.program import Blob, Program, flat_tensor, write
from etdev.program import model as m
from etdev.program.info import BufferInfo
from inspection.report.builds import built_file, line, two_files
from program.hand import everything, tensor
from program.strategies import programs
from support.draws import examples
from support.files import banked, branches, chain, copies, delegated, method, overwriting, program, sin
from support.on_devices import two_devices
from support.reports import bank_report, method_result, write_report

MOST = 6_000_000
"""Bytes of the page of a program with 10,000 tensors."""


def page_of(found: Program, folder: Path) -> tuple[Document, ProgramPage]:
    write(found, folder / "m.pte")
    document = file_document(folder / "m.pte")
    (page,) = document.programs
    return document, page


def only_buffer(found: Program, folder: Path) -> tuple[Document, MethodPage, BufferPage]:
    document, page = page_of(found, folder)
    (one,) = page.methods
    return document, one, one.buffers[0]


def named(document: Document, numbers: tuple[int, ...]) -> list[str | None]:
    return [None if number < 0 else document.texts[number] for number in numbers]


def test_tensors_of_a_known_layout(tmp_path: Path) -> None:
    document, one, buffer = only_buffer(chain(2), tmp_path)
    tensors = buffer.tensors

    assert buffer.info == BufferInfo(1, "cpu", 48, 32)
    assert tensors.value == (0, 1, 2)
    assert named(document, tensors.name) == ["input 0", None, "output 0"]
    assert named(document, tensors.kind) == ["input", "kernel", "kernel"]
    assert named(document, tensors.dtype) == ["float32"] * 3
    assert named(document, tensors.shape) == ["[4]"] * 3
    assert (tensors.offset, tensors.size) == ((0, 16, 32), (16, 16, 16))
    assert (tensors.start, tensors.end) == ((0, 1, 2), (2, 3, 4))
    assert (tensors.writer, tensors.storage) == ((-1, 0, 1), (-1, -1, -1))
    assert named(document, tensors.reason) == [None] * 3
    assert buffer.live == ((0, 16), (1, 32), (3, 16), (4, 0))
    assert named(document, one.instructions.operator) == ["aten::sin.out"] * 2
    assert one.instants == 4


def test_the_method_with_the_most_memory_comes_first(tmp_path: Path) -> None:
    small, large = chain(2).execution_plan[0], chain(4).execution_plan[0]
    _, page = page_of(program(replace(small, name="embed"), replace(large, name="forward")), tmp_path)
    assert [one.name for one in page.methods] == ["forward", "embed"]


def test_the_peak_is_explained(tmp_path: Path) -> None:
    _, _, buffer = only_buffer(copies(), tmp_path)
    assert buffer.peak is not None
    assert (buffer.peak.instant, buffer.peak.nbytes, buffer.peak.during) == (8, 240, "aten::expand_copy.out")
    assert [(item.value, item.nbytes) for item in buffer.peak.tensors] == [(8, 216), (7, 24)]
    assert [item.origin for item in buffer.peak.tensors] == ["aten::expand_copy.out", "aten::sin.out"]
    assert max(live for _, live in buffer.live) == buffer.peak.nbytes


def test_outputs_over_operands(tmp_path: Path) -> None:
    found = program(method([tensor(4, at=0)] * 2, [sin(0, 1)]))
    document, _, buffer = only_buffer(found, tmp_path)
    assert named(document, buffer.tensors.reason) == [
        None,
        "in place: written over value 0, which is not needed any more",
    ]
    assert buffer.tensors.storage == (0, 0)
    assert (buffer.storages.offset, buffer.storages.start, buffer.storages.end) == ((0,), (0,), (3,))


def test_devices_and_copies_between_them(tmp_path: Path) -> None:
    document, page = page_of(two_devices(), tmp_path)
    timeline = page.methods[0].timeline
    assert timeline is not None
    assert timeline.devices == ("cpu", "cuda:0", "cuda:1")
    assert list(zip(timeline.lane, timeline.start, timeline.end, strict=True)) == [(1, 1, 2), (0, 3, 4), (2, 5, 6)]
    copied = timeline.transfers
    assert (copied.instruction, copied.to_device) == ((0, 2, 4, 6), (True, False, True, False))
    assert named(document, copied.device) == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]
    assert copied.size == (16,) * 4
    assert [buffer.info.device for buffer in page.methods[0].buffers] == ["cpu", "cuda:0", "cuda:1"]


def test_a_program_on_the_host_has_no_timeline(tmp_path: Path) -> None:
    assert page_of(branches(), tmp_path)[1].methods[0].timeline is None


@pytest.mark.parametrize("found", [overwriting(), delegated(ambiguous=True)])
def test_what_cannot_be_known_is_said(found: Program, tmp_path: Path) -> None:
    _, page = page_of(found, tmp_path)
    assert page.methods[0].unknown
    assert page.methods[0].buffers == ()


def test_data_files_of_a_build_are_known(tmp_path: Path) -> None:
    file, data = two_files(tmp_path)
    assert known_data(file) == (data,)
    data.write_bytes(data.read_bytes() + b"x")
    assert known_data(file) == ()
    file.unlink()
    assert known_data(file) == ()


def test_sections_are_the_file(tmp_path: Path) -> None:
    _, page = page_of(everything(), tmp_path)
    assert sum(section.size for section in page.files[0].sections) == page.size == (tmp_path / "m.pte").stat().st_size
    (delegates,) = [
        section for section in page_of(delegated(), tmp_path)[1].files[0].sections if section.name == "delegates"
    ]
    assert delegates.items == (("XnnpackBackend 0", 8, "called 1 time in forward"),)


def test_a_file_of_others_says_what_is_not_known(tmp_path: Path) -> None:
    document, page = page_of(chain(2), tmp_path)
    assert page.status is None
    assert page.sources == page.unverified == "there is no report.json of a build next to the file"
    assert page.methods[0].instructions.source == (-1, -1)
    assert document.versions == {}


def test_lines_of_the_model_are_where_the_link_put_their_instructions(tmp_path: Path) -> None:
    document = file_document(built_file(tmp_path, chain(2)))
    (page,) = document.programs
    (one,) = page.methods

    assert named(document, one.instructions.source) == [str(line(11)), str(line(12))]
    assert page.sources is None
    assert (page.name, page.file, page.status) == ("cpu", "tiny.pte", "gate failed")
    assert document.versions == {"etdev": "0.1.0"}
    assert one.buffers[0].info.greedy == 48
    assert named(document, one.buffers[0].tensors.name)[0] == "input images"
    assert named(document, one.buffers[0].tensors.reason)[1] == "not in place: its operand is used later"
    (copied,) = [table for table in one.tables if table.title == "Decisions on copies"]
    assert copied.rows == (("", "aten::view_copy.out", "views", "alias", 16, ""),)
    (inplace,) = [table for table in one.tables if table.title == "Decisions on outputs in place"]
    assert inplace.rows == (("0", "aten::sin.out", "0", "", 16, "its operand is used later"),)


def test_checks_with_what_failed(tmp_path: Path) -> None:
    (page,) = file_document(built_file(tmp_path, chain(2))).programs
    assert [(check.name, check.status) for check in page.checks] == [
        ("bytes", "passed"),
        ("budget", "failed"),
        ("device", "not needed"),
    ]
    assert page.checks[1].details == ("file 2 of 1", "help: less")


def test_weights_in_another_file(tmp_path: Path) -> None:
    """What the build said of them; a file alone does not tell how many bytes they are."""
    data = DataFile(name="w.ptd", size=4352, sha256="ab" * 32)
    figures = Figures(file=1, weights=4224, memory={"cpu": 48}, copies=0)
    file = built_file(tmp_path, chain(2), data=(data,), figures=figures)
    (page,) = file_document(file).programs
    facts = dict(page.facts)
    assert facts["data file w.ptd"] == f"4,352 bytes, SHA-256 {'ab' * 32}"
    assert facts["weights"] == "4,224 bytes, including data that delegates look up by name"

    (tmp_path / "report.json").unlink()
    (page,) = file_document(file).programs
    facts = dict(page.facts)
    assert not any("data file" in label for label in facts)
    assert facts["weights"] == "0 bytes outside of delegates"


def test_which_weight_lies_in_which_file(tmp_path: Path) -> None:
    """E4: both files, each with what its bytes are spent on; data that several names share is counted once."""
    file, data = two_files(tmp_path)
    (page,) = file_document(file).programs
    own, weights = page.files
    assert (own.name, own.size) == ("tiny.pte", page.size)
    assert (weights.name, weights.size, page.without) == ("w.ptd", data.stat().st_size, None)
    assert sum(section.size for section in weights.sections) == weights.size
    constants, named_data, rest = weights.sections
    ((name, size, what),) = constants.items
    assert (constants.size, name, size) == (16, "layer.weight", 16)
    assert what.startswith(f"float32 [4], for aten::add.out at {line(11)}, the same bytes as ")
    assert "tied.weight" in what
    assert (named_data.name, named_data.items) == ("named data", (("blob", 40, "looked up by delegates"),))
    assert (rest.name, rest.items) == ("names and padding", ())


def test_weights_that_somebody_names(tmp_path: Path) -> None:
    file, data = two_files(tmp_path, reported=False)
    (page,) = file_document(file).programs
    assert len(page.files) == 1
    assert page.without is not None
    assert page.without.startswith("no file next to the program is known to contain 'layer.weight'")
    named = file_document(file, (data,)).programs[0]
    assert ([one.name for one in named.files], named.without) == (["tiny.pte", "w.ptd"], None)
    assert etdev.report(file, data=data).is_file()
    flat_tensor.write(flat_tensor.FlatTensor(), tmp_path / "other.ptd")
    with pytest.raises(ProgramError, match="is missing") as caught:
        etdev.report(file, data=tmp_path / "other.ptd")
    assert caught.value.where == str(tmp_path / "other.ptd")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "there is no w.ptd next to the file"),
        (lambda data: data.write_bytes(b"x"), "w.ptd is not the file that was built with the program"),
    ],
)
def test_weights_that_are_not_those_of_the_build(damage: object, said: str, tmp_path: Path) -> None:
    file, data = two_files(tmp_path)
    damage(data)  # type: ignore[operator]
    (page,) = file_document(file).programs
    assert ([one.name for one in page.files], page.without) == (["tiny.pte"], said)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: (file.parent / "report.json").write_text("{}"), "is of another version of etdev"),
        (lambda file: write(chain(3), file), "is of another file, or the file has changed"),
    ],
)
def test_a_report_of_another_file_is_not_believed(damage: object, said: str, tmp_path: Path) -> None:
    file = built_file(tmp_path, chain(2))
    damage(file)  # type: ignore[operator]
    (page,) = file_document(file).programs
    assert said in (page.unverified or "")
    assert page.checks == ()
    assert set(page.methods[0].instructions.source) == {-1}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (Path.unlink, "there is no tiny.object.json"),
        (lambda notes: notes.write_text(notes.read_text() + " "), "was written again since the file was linked"),
    ],
)
def test_notes_of_another_object_program_are_not_believed(damage: object, said: str, tmp_path: Path) -> None:
    """An edited model that was exported and then failed to link leaves new notes next to the old file."""
    file = built_file(tmp_path, chain(2))
    damage(tmp_path / "tiny.object.json")  # type: ignore[operator]
    (page,) = file_document(file).programs
    assert said in (page.sources or "")
    assert page.checks
    assert set(page.methods[0].instructions.source) == {-1}


def test_a_warning_of_a_check_is_a_note(tmp_path: Path) -> None:
    untried = Failure(message="the largest sizes were not tried", where="etdev.toml:4:1: dims", hint="narrow them")
    check = CheckResult(name="runtime", status="passed", summary="fine", warnings=(untried,))
    (page,) = file_document(built_file(tmp_path, chain(2), checks=(check,))).programs
    assert page.notes == ("warning: the largest sizes were not tried, at etdev.toml:4:1: dims; help: narrow them",)


def test_a_rejected_file_that_nobody_can_read_has_a_page_too(tmp_path: Path) -> None:
    file = built_file(tmp_path, chain(2))
    build = BuildResult.model_validate_json((tmp_path / "report.json").read_bytes())
    rejected = file.rename(tmp_path / "tiny.pte.rejected")
    target = build.targets[0].model_copy(update={"artifact": rejected.name, "status": "rejected"})
    build = build.model_copy(update={"targets": (target,)})

    (readable,) = build_document(build).programs
    assert readable.problem is None
    assert readable.sources is None
    rejected.write_bytes(b"nothing")
    (page,) = build_document(build).programs
    assert page.problem == "the file has 7 bytes, too few for a program"
    assert (page.status, len(page.checks), page.methods) == ("rejected", 3, ())


def test_the_page_goes_beside_the_file(tmp_path: Path) -> None:
    write(chain(1), tmp_path / "m.pte")
    assert etdev.report(tmp_path / "m.pte") == tmp_path / "m.html"
    assert etdev.report(str(tmp_path / "m.pte"), tmp_path / "new" / "x.html") == tmp_path / "new" / "x.html"
    assert (tmp_path / "new" / "x.html").read_bytes() == (tmp_path / "m.html").read_bytes()


def test_bad_files_and_places(tmp_path: Path) -> None:
    file = tmp_path / "m.pte"
    with pytest.raises(ProgramError, match="there is no such file"):
        etdev.report(file)
    write(chain(1), file)
    content = file.read_bytes()
    with pytest.raises(UsageError, match="is an input file of the page"):
        etdev.report(file, file)
    with pytest.raises(UsageError, match="is an input file of the page"):
        etdev.report(file, tmp_path / "report.json")
    with pytest.raises(UsageError, match="is an input file of the page"):
        etdev.report(file, tmp_path / "weights", data=tmp_path / "weights")
    with pytest.raises(UsageError, match=r"a page cannot have the name"):
        etdev.report(file, tmp_path / "other.ptd")
    assert file.read_bytes() == content


def test_the_same_input_gives_the_same_bytes_anywhere(tmp_path: Path) -> None:
    """Neither the time nor the folder is in it."""
    pages = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        pages.append(etdev.report(built_file(tmp_path / name, copies())).read_bytes())
    assert pages[0] == pages[1]
    assert str(tmp_path).encode() not in pages[0]


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=programs())
def test_every_valid_file_has_a_page(found: Program, tmp_path: Path) -> None:
    """Law: columns are of equal lengths, numbers name what there is, and tensors lie in their buffers."""
    document, page = page_of(found, tmp_path)
    for one in page.methods:
        for buffer in one.buffers:
            columns = [getattr(buffer.tensors, name) for name in type(buffer.tensors).__slots__]
            assert len({len(column) for column in columns}) == 1
            assert all(offset + size <= buffer.info.size for offset, size in zip(*columns[5:7], strict=True))
            for numbers in (buffer.tensors.name, buffer.tensors.kind, buffer.tensors.reason):
                assert all(-1 <= number < len(document.texts) for number in numbers)
            assert all(-1 <= row < len(buffer.storages.size) for row in buffer.tensors.storage)
            assert all(-1 <= position < one.instants - 2 for position in buffer.tensors.writer)


@pytest.mark.nightly
def test_ten_thousand_tensors(tmp_path: Path) -> None:
    write(chain(9_999), tmp_path / "m.pte")
    content = etdev.report(tmp_path / "m.pte").read_text(encoding="utf-8")
    assert len(content.encode()) < MOST
    (stored,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', content)
    (buffer,) = json.loads(stored)["programs"][0]["methods"][0]["buffers"]
    assert len(buffer["tensors"]["value"]) == 10_000


def add_weight(name: str | None, content: bytes = bytes(16)) -> Program:
    """``x + w`` of a weight with this name."""
    info = m.ExtraTensorInfo(fully_qualified_name=name) if name else None
    values = [tensor(4, at=0), tensor(4, data=1, extra_tensor_info=info), tensor(4, at=16), m.Int(1)]
    plan = method(values, [m.KernelCall(0, (0, 1, 3, 2, 2))], outputs=(2,))
    return program(plan, segments=(m.Segment(0, Blob(content)),), constant_segment=m.SubsegmentOffsets(0, (0, 0)))


def constants_of(page: ProgramPage) -> list[str]:
    (constants,) = [section for section in page.files[0].sections if section.name == "constants"]
    return [name for name, _, _ in constants.items]


def test_delegates_and_weights_are_named(tmp_path: Path) -> None:
    _, page = page_of(add_weight("layer.weight"), tmp_path)
    (constants,) = [section for section in page.files[0].sections if section.name == "constants"]
    assert constants.items == (("layer.weight", 16, "float32 [4], for aten::add.out"),)


@pytest.mark.parametrize(
    ("content", "name"), [(bytes(16), "layer.weight"), (b"other" + bytes(11), "constant 1")], ids=["same", "other"]
)
def test_constants_have_the_names_of_the_object_program(content: bytes, name: str, tmp_path: Path) -> None:
    """The link drops the names. An object program with other bytes is of another build."""
    file = built_file(tmp_path, add_weight(None))
    write(add_weight("layer.weight", content), tmp_path / "tiny.object.pte")
    assert constants_of(file_document(file).programs[0]) == [name]


def test_banks_and_their_capacities(tmp_path: Path) -> None:
    found = banked(8, 16)
    file = built_file(tmp_path, found, banks=bank_report(48, 64))
    (page,) = file_document(file).programs
    buffers = [buffer.info for buffer in page.methods[0].buffers]
    assert [(item.index, item.size, item.bank, item.capacity) for item in buffers] == [
        (1, 48, "slow", 4096),
        (2, 64, "fast", 128),
    ]
    facts = dict(page.facts)
    assert facts["bank fast"] == (
        "64 of 128 bytes in buffer 2; 64 bytes moved in a call; ExecuTorch's planner: 16 bytes"
    )
    assert facts["bank slow"].endswith("ExecuTorch's planner: does not fit")
    several = tuple(method_result(name, buffers=(BufferInfo(1, "cpu", 48),)) for name in ("forward", "other"))
    write_report(file, banks=bank_report(48, 64), methods=several)
    facts = dict(file_document(file).programs[0].facts)
    assert "; 64 bytes moved if each method is called once; " in facts["bank fast"]
    data = json.loads(re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', file_page(file), re.DOTALL)[0])
    shown = data["programs"][0]["methods"][0]["buffers"]
    assert [(item["info"]["bank"], item["info"]["capacity"]) for item in shown] == [("slow", 4096), ("fast", 128)]
    assert [item.bank for item in (buffer.info for buffer in page_of(found, tmp_path)[1].methods[0].buffers)] == [
        "slow",
        "fast",
    ]


def test_inputs_of_dynamic_sizes_are_named_with_their_largest_shapes(tmp_path: Path) -> None:
    largest = tensor(4, at=0, shape_dynamism=m.TensorShapeDynamism.DYNAMIC_BOUND)
    _, page = page_of(program(method([largest, tensor(4, at=16)], [sin(0, 1)])), tmp_path)
    assert ("memory is planned for", "the largest sizes: input 0 [4]") in page.facts
