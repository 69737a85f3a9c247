"""Sizes of the model's modules: what each of them has in the file and in memory."""

from __future__ import annotations

from dataclasses import replace

from etdev.inspection.inspect import describe_methods
from etdev.inspection.planned_memory import method_memories
from etdev.inspection.provenance import Provenance
from etdev.inspection.report.dataflow import data_flow
from etdev.inspection.report.modules import module_paths, modules
from etdev.page.model import Texts
from etdev.program import Blob, Program
from etdev.program import model as m
from etdev.program.sidecar import MethodNotes, OutputNote
from program.hand import tensor
from support.files import ADD, chain, delegated, method
from support.files import program as make_program

NO_NOTES = Provenance()


def noted(paths: dict[int, str]) -> Provenance:
    return Provenance(notes={"forward": MethodNotes(modules=paths)})


def table(program: Program, known: Provenance) -> dict[str | None, tuple[int, int, int, int]] | None:
    """Instructions, weights, written bytes and bytes at the peak of each module, by path."""
    plan, memory, texts = program.execution_plan[0], method_memories(program), Texts()
    found = data_flow(program, plan, memory[0])
    paths = module_paths(plan, found.operands, known)
    peaks = describe_methods(program, memory, known.notes)[0].peaks
    made = modules(program, plan, found, paths, known.notes.get("forward", MethodNotes()), peaks, texts)
    if made is None:
        return None
    rows = zip(made.path, made.instructions, made.weights, made.written, made.peak, strict=True)
    return {None if path < 0 else texts.all()[path]: tuple(sizes) for path, *sizes in rows}  # type: ignore[misc]


def weighted() -> Program:
    """``(x + weight) + weight + other``: two weights of 16 and 32 bytes, the first used twice."""
    info = [m.ExtraTensorInfo(fully_qualified_name=name) for name in ("encoder.layers.0.bias", "decoder.bias")]
    small = tensor(4, data=1, extra_tensor_info=info[0])
    large = tensor(2, 4, data=2, extra_tensor_info=info[1])
    values = [tensor(4, at=0), small, large, tensor(4, at=16), tensor(4, at=0), tensor(2, 4, at=32), m.Int(1)]
    calls = [m.KernelCall(0, (*pair, 6, out, out)) for *pair, out in ((0, 1, 3), (3, 1, 4), (4, 2, 5))]
    plan = method(values, calls, outputs=(5,), operators=(ADD,))
    data = m.SubsegmentOffsets(0, (0, 0, 16))
    return make_program(plan, segments=(m.Segment(0, Blob(bytes(48))),), constant_segment=data)


def test_a_module_has_what_its_submodules_have() -> None:
    paths = {0: "encoder.layers.0", 1: "encoder.layers.1", 2: "decoder"}
    # At the peak, instruction 2 reads 16 bytes of instruction 1, and writes 32 bytes.
    assert table(weighted(), noted(paths)) == {
        "": (3, 48, 64, 48),
        "decoder": (1, 32, 32, 32),
        "encoder": (2, 16, 32, 16),
        "encoder.layers": (2, 16, 32, 16),
        "encoder.layers.0": (1, 16, 16, 0),
        "encoder.layers.1": (1, 0, 16, 16),
    }


def test_a_weight_counts_where_it_is_used_first() -> None:
    found = table(weighted(), noted({0: "a", 1: "b", 2: "b"}))
    assert found is not None
    assert (found["a"][1], found["b"][1]) == (16, 32)
    # Its bytes are those of another place if that comes first.
    moved = table(weighted(), noted({0: "b", 1: "a", 2: "b"}))
    assert moved is not None
    assert (moved[""][1], moved["b"][1]) == (48, 48)


def test_without_notes_names_of_constants_say_the_module() -> None:
    assert table(weighted(), NO_NOTES) == {
        "": (3, 48, 64, 48),
        "decoder": (1, 32, 32, 32),
        "encoder": (2, 16, 32, 16),
        "encoder.layers": (2, 16, 32, 16),
        "encoder.layers.0": (2, 16, 32, 16),
    }


def test_what_belongs_to_no_module_is_listed() -> None:
    found = table(weighted(), noted({0: "encoder"}))
    assert found == {"": (1, 16, 16, 0), "encoder": (1, 16, 16, 0), None: (2, 32, 48, 48)}


def test_the_model_itself_has_an_empty_path() -> None:
    found = table(chain(2), noted({0: "", 1: "head"}))
    assert found is not None
    assert set(found) == {"", "head", None}  # The input at the peak is of no module.
    assert found[None] == (0, 0, 0, 16)


def test_nothing_is_known_without_notes_and_names() -> None:
    assert table(chain(2), NO_NOTES) is None
    assert table(chain(2), Provenance(notes={"forward": MethodNotes()})) is None


def test_an_output_of_a_delegate_belongs_to_the_op_that_computes_it() -> None:
    found = delegated()
    plan = found.execution_plan[0]
    values = (*plan.values, tensor(2, at=32))
    both = replace(plan, values=values, chains=(m.Chain((m.DelegateCall(0, (0, 1, 2)),)),), outputs=(1, 2))
    outputs = {0: (OutputNote("net.first", None), OutputNote(None, None))}
    notes = MethodNotes(delegate_inputs={0: 1}, modules={0: "net"}, outputs=outputs)

    assert table(replace(found, execution_plan=(both,)), Provenance(notes={"forward": notes})) == {
        "": (1, 8, 24, 24),
        "net": (1, 8, 24, 24),
        "net.first": (0, 0, 16, 16),
        None: (0, 0, 0, 16),
    }


def test_data_that_a_delegate_looks_up_counts_as_its_weight_once() -> None:
    blob, library = Blob(b"a_so_blob\na_weights_blob"), Blob(bytes(1000))
    found = delegated(backend="CudaBackend")
    plan = found.execution_plan[0]
    twice = replace(plan, chains=(m.Chain((m.DelegateCall(0, (0, 1)), m.DelegateCall(0, (0, 1)))),))
    held = replace(
        found,
        execution_plan=(twice,),
        segments=(found.segments[0], m.Segment(128, blob), m.Segment(256, library)),
        named_data=(m.NamedData("a_weights_blob", 2), m.NamedData("other", 0)),
    )
    made = table(held, noted({0: "net.first", 1: "net.second"}))
    assert made is not None
    assert (made["net"][1], made["net.first"][1]) == (len(blob) + 1000, len(blob) + 1000)


def test_a_delegate_counts_as_a_weight_once() -> None:
    found = delegated()
    plan = found.execution_plan[0]
    twice = replace(plan, chains=(m.Chain((m.DelegateCall(0, (0, 1)), m.DelegateCall(0, (0, 1)))),))
    made = table(replace(found, execution_plan=(twice,)), noted({0: "net", 1: "net"}))
    assert made is not None
    assert made["net"][:2] == (2, len(b"delegate"))
