"""``etdev.relink``: smaller memory for any file, the same results, and never a worse or half-written file."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings

import etdev
from etdev.config.models import Elide
from etdev.decisions import ALL_ELISIONS
from etdev.errors import LinkError, ProgramError, UnlinkableError, UsageError, WriteError
from etdev.linker import link
from etdev.pipeline import relink as relink_module
from etdev.pipeline.relink import RelinkResult
from etdev.pipeline.results.decision_counts import KINDS, CopiesOfKind, InPlaceOutputs
from etdev.program import Program, read, write
from etdev.program import model as m
from etdev.program.info import BufferInfo
from program.hand import everything, loop, tensor
from program.strategies import programs
from support.draws import examples
from support.files import branches, chain, copies, counters, delegated, method, overwriting, program


def relinked(found: Program, folder: Path, **arguments: object) -> tuple[RelinkResult, Program]:
    """A program's file linked again, and the program in the new file."""
    write(found, folder / "a.pte")
    result = etdev.relink(folder / "a.pte", folder / "b.pte", **arguments)  # type: ignore[arg-type]
    return result, read(folder / "b.pte")


def total(buffers: tuple[BufferInfo, ...]) -> int:
    return sum(buffer.size for buffer in buffers)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=programs())
def test_a_new_plan_is_never_larger_unless_state_gets_bytes_of_its_own(found: Program, tmp_path: Path) -> None:
    """Laws: what is written is what was said, and to link it again changes nothing more."""
    try:
        result, written = relinked(found, tmp_path)
    except ProgramError:
        return  # Most programs that chance makes overwrite what they still read, or go by what nobody wrote.

    sizes = [sum(plan.non_const_buffer_sizes[1:]) for plan in written.execution_plan]
    assert sizes == [total(item.after) for item in result.methods]
    apart = any(buffer.state for item in result.methods for buffer in item.after)
    assert apart or all(total(item.after) <= total(item.before) for item in result.methods)
    etdev.relink(tmp_path / "b.pte", tmp_path / "b.pte")
    assert read(tmp_path / "b.pte") == written


@pytest.mark.parametrize("unused", [0, 1])
def test_a_buffer_that_needs_no_bytes_is_gone_at_once(unused: int, tmp_path: Path) -> None:
    """A chain names a tensor as its output that the method does not have as one; nothing names the next."""
    plan = method([tensor(4, at=0)] * (1 + unused), [], inputs=(), outputs=())
    found = program(replace(plan, chains=(m.Chain((), outputs=(0,)),)))
    _, written = relinked(found, tmp_path)
    assert written.execution_plan[0].non_const_buffer_sizes == (0,)
    etdev.relink(tmp_path / "b.pte", tmp_path / "b.pte")
    assert read(tmp_path / "b.pte") == written


@pytest.mark.parametrize("dynamism", [m.TensorShapeDynamism.STATIC, m.TensorShapeDynamism.DYNAMIC_BOUND])
def test_a_tensor_among_numbers_is_refused(dynamism: m.TensorShapeDynamism, tmp_path: Path) -> None:
    """The runtime ends where an item of a list of numbers is not a number."""
    named = replace(tensor(4, at=0), shape_dynamism=dynamism)
    first = m.Chain((m.JumpFalseCall(2, 1),))
    values = (named, m.Bool(True), m.IntList((0, 1)))
    plan = replace(method([named], [], inputs=(1,), outputs=()), values=values, chains=(first,))
    with pytest.raises(ProgramError, match="expected an integer, but value 0 is a tensor"):
        relinked(program(plan), tmp_path)


def test_a_move_of_a_list_is_refused(tmp_path: Path) -> None:
    """A list of lists is not a list of numbers, and the runtime copies a reference to one."""
    values = (m.Null(), m.IntList((0, 1)))
    plan = replace(method([], [], inputs=(), outputs=(0,)), values=values, chains=(m.Chain((m.MoveCall(1, 0),)),))
    with pytest.raises(ProgramError, match="move_from"):
        relinked(program(plan), tmp_path)


@pytest.mark.parametrize(
    ("found", "arguments", "sizes"),
    [
        (chain(10), {}, [(176, 16)]),
        (chain(10), {"planner": "naive"}, [(176, 16)]),
        (chain(10), {"inplace": "none"}, [(176, 32)]),
        (chain(10), {"inplace": "none", "planner": "greedy"}, [(176, 32)]),
        (chain(10), {"inplace": "none", "planner": "naive"}, [(176, 176)]),
        (chain(10), {"inplace": "none", "alignment": 64}, [(176, 80)]),
        (chain(10), {"inplace": "none", "planner": "naive", "alignment": 64}, [(176, 656)]),
        (delegated(), {}, [(96, 96)]),
        (loop(), {}, [(32, 16)]),
    ],
)
def test_sizes(found: Program, arguments: dict[str, object], sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    result, _ = relinked(found, tmp_path, **arguments)

    assert [(total(item.before), total(item.after)) for item in result.methods] == sizes
    assert result.plan == "passed"
    assert (result.size_before, result.size_after) == (
        (tmp_path / "a.pte").stat().st_size,
        (tmp_path / "b.pte").stat().st_size,
    )


def test_a_smaller_plan_of_the_file_is_kept(tmp_path: Path) -> None:
    """It uses that two branches never both run, which etdev's lifetimes do not show."""
    result, written = relinked(branches(), tmp_path, inplace="none")

    (item,) = result.methods
    assert item.kept == "a new plan would need 64 more bytes"
    assert (total(item.before), total(item.after), result.plan) == (192, 192, "not run")
    assert written == branches()


@pytest.mark.parametrize("arguments", [{"planner": "greedy"}, {"alignment": 16}])
def test_who_asks_for_a_plan_gets_it(arguments: dict[str, object], tmp_path: Path) -> None:
    result, _ = relinked(branches(), tmp_path, inplace="none", **arguments)

    (item,) = result.methods
    assert (item.kept, total(item.before)) == (None, 192)
    assert total(item.after) > 192


def test_a_link_changes_methods_only() -> None:
    """Methods of before and after the link stand beside each other in one program; they share what is around them."""
    for found in (everything(), chain(3), counters(), delegated()):
        assert replace(link(found).program, execution_plan=()) == replace(found, execution_plan=())


def test_state_gets_bytes_of_its_own(tmp_path: Path) -> None:
    """A program that only some loaders run right becomes one that all do, and larger."""
    result, _ = relinked(counters(), tmp_path, inplace="none")

    assert (result.memory_before, result.memory_after) == ({"cpu": 48}, {"cpu": 64})
    assert [[(b.index, b.size) for b in item.before] for item in result.methods] == [[(1, 48)], [(1, 48)]]
    assert [[(b.index, b.size, b.state) for b in item.after] for item in result.methods] == [
        [(1, 32, False), (2, 16, True)],
        [(1, 32, False), (2, 32, True)],
    ]


def test_shared_state_stays_shared(tmp_path: Path) -> None:
    result, written = relinked(counters(buffer=2), tmp_path)

    assert len(result.shared_state) == 1
    places = [plan.values[1].allocation_info for plan in written.execution_plan if isinstance(plan.values[1], m.Tensor)]
    assert places == [m.AllocationDetails(2, 0)] * 2


def test_decisions_are_reported(tmp_path: Path) -> None:
    """C4: each candidate with what became of it and why; the counts are those of the decisions."""
    result, _ = relinked(copies(), tmp_path)

    (item,) = result.methods
    assert [(copied.instruction, copied.kind, copied.action, copied.nbytes) for copied in item.copy_decisions] == [
        (1, "views", "alias", 16),
        (2, "slices", "kept", 8),
        (4, "write_back", "placed", 16),
        (5, "cat", "placed", 24),
    ]
    assert item.copies == (
        CopiesOfKind("views", removed=1, removed_bytes=16, kept=0, kept_bytes=0, reasons={}, partly={}),
        CopiesOfKind(
            "slices",
            removed=0,
            removed_bytes=0,
            kept=1,
            kept_bytes=8,
            reasons={"its output is a part of another tensor": 1},
            partly={},
        ),
        CopiesOfKind("cat", removed=1, removed_bytes=24, kept=0, kept_bytes=0, reasons={}, partly={}),
        CopiesOfKind("write_back", removed=1, removed_bytes=16, kept=0, kept_bytes=0, reasons={}, partly={}),
    )
    refused = "argument 0 is needed afterwards"
    assert [(out.instruction, out.argument, out.reason) for out in item.inplace_decisions] == [
        (0, None, refused),
        (3, 0, ""),
        (6, 0, ""),
    ]
    assert item.inplace == InPlaceOutputs(taken=2, taken_bytes=40, refused=1, reasons={refused: 1})
    assert (result.elide, result.inplace) == (KINDS, "default")


@pytest.mark.parametrize("kind", ["views", "slices", "cat", "write_back"])
def test_each_kind_of_copies_has_a_switch(kind: str, tmp_path: Path) -> None:
    left = [name for name in KINDS if name != kind]
    result, _ = relinked(copies(), tmp_path, elide=left)

    (item,) = result.methods
    assert result.elide == tuple(left)
    assert {counted.kind for counted in item.copies} == {"views", "slices", "cat", "write_back"} - {kind}
    (alone,) = relinked(copies(), tmp_path, elide=kind)[0].methods
    assert [counted.kind for counted in alone.copies] == [kind]


def test_nothing_but_a_plan(tmp_path: Path) -> None:
    """C8: a setting of the link, off without a trace."""
    result, _ = relinked(copies(), tmp_path, elide=(), inplace="none")

    (item,) = result.methods
    assert (item.copies, item.copy_decisions, item.inplace_decisions) == ((), (), ())
    assert item.inplace == InPlaceOutputs()
    assert item.instructions_after == item.instructions_before == 8
    everything_again = relinked(copies(), tmp_path, elide="all")[0]
    assert everything_again == relinked(copies(), tmp_path)[0]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (delegated(ambiguous=True), "the file does not say which arguments of instruction 0 (XnnpackBackend)"),
        (everything(), "the file does not say which arguments of instruction 1 (InSegment)"),
    ],
)
def test_a_method_that_cannot_be_planned_keeps_its_plan(found: Program, reason: str, tmp_path: Path) -> None:
    result, written = relinked(found, tmp_path)

    (item,) = result.methods
    assert item.kept is not None
    assert item.kept.startswith(reason)
    assert (result.plan, written) == ("not run", found)
    assert all(buffer.lower_bound is None for buffer in item.after)


def test_the_data_beside_stays_needed(tmp_path: Path) -> None:
    assert relinked(everything(), tmp_path)[0].external_data == ("weight",)


def test_as_json(tmp_path: Path) -> None:
    document = json.loads(relinked(chain(3), tmp_path)[0].to_json())

    assert document["format"] == 1
    assert [document["methods"][0][side][0]["size"] for side in ("before", "after")] == [64, 16]
    assert document["methods"][0]["after"][0]["lower_bound"] == 16
    assert document["methods"][0]["inplace"] == {"taken": 3, "taken_bytes": 48, "refused": 0, "reasons": {}}
    assert document["methods"][0]["inplace_decisions"][0] == {
        "instruction": 0,
        "operator": "aten::sin.out",
        "output": 0,
        "argument": 0,
        "nbytes": 16,
        "reason": "",
    }


def test_a_file_is_replaced_by_its_own_link(tmp_path: Path) -> None:
    """What was read from the old file stays good, and nothing else is left in the folder."""
    file = tmp_path / "a.pte"
    write(delegated(), file)
    before = read(file)
    etdev.relink(file, file)

    assert before == delegated()
    assert read(file).segments == before.segments
    assert os.listdir(tmp_path) == ["a.pte"]


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a /dev/shm that can be written")
def test_a_file_in_shared_memory_is_replaced_too(tmp_path: Path) -> None:
    """The link reads the weights from the old file, which is mapped, while it writes the new one."""
    found = everything()
    expected = relinked(found, tmp_path)[1]
    with TemporaryDirectory(dir="/dev/shm", prefix="etdev-test-") as folder:
        file = Path(folder, "a.pte")
        write(found, file)
        size = file.stat().st_size
        result = etdev.relink(file, file)
        assert (result.size_before, result.size_after) == (size, file.stat().st_size)
        assert read(file) == expected
        assert file.read_bytes() == (tmp_path / "b.pte").read_bytes()


def test_into_what_cannot_be_read_again(tmp_path: Path) -> None:
    write(chain(10), tmp_path / "a.pte")
    result = etdev.relink(tmp_path / "a.pte", "/dev/null")

    assert (result.size_after, result.memory_after, result.plan) == (None, {"cpu": 16}, "passed")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ({"planner": "my_planners:tight"}, "there is no planner 'my_planners:tight'", "relink does not run code"),
        ({"planner": "bets"}, "there is no planner 'bets'", "one of: best, greedy, naive"),
        ({"alignment": 24}, "24 bytes is not an alignment", "use a power of two"),
        ({"alignment": 2**40}, f"{2**40} bytes is not an alignment", "use a power of two up to 16384"),
        ({"alignment": 16.0}, "16.0 bytes is not an alignment", "use a power of two"),
        ({"alignment": 0}, "0 bytes is not an alignment", "use a power of two"),
        ({"elide": ["views", "slice"]}, "unknown kind of copies 'slice'", "did you mean `slices`?"),
        ({"elide": "nothing"}, "unknown kind of copies 'nothing'", "one of: views, slices, cat, write_back, "),
        ({"elide": [7]}, "unknown kind of copies 7", "one of: views"),
        (
            {"inplace": "aten::relu.out"},
            "there is no list of in-place operators with the name 'aten::relu.out'",
            "use one of: default, none;",
        ),
    ],
)
def test_arguments_that_do_not_fit(arguments: dict[str, object], message: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        relinked(chain(1), tmp_path, **arguments)
    assert caught.value.message == message
    assert str(caught.value.hint).startswith(hint)
    assert not (tmp_path / "b.pte").exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("new.ptd", "cannot be the output program: etdev uses the suffix .ptd for other kinds of files"),
        ("new.etrecord", "cannot be the output program: etdev uses the suffix .etrecord for other kinds of files"),
        ("weights", "is a file that `--data` reads"),
    ],
)
def test_places_that_are_not_for_programs(place: str, message: str, tmp_path: Path) -> None:
    """Weights that the program needs as before would be lost."""
    write(chain(1), tmp_path / "a.pte")
    (tmp_path / "weights").write_bytes(b"weights")
    with pytest.raises(UsageError) as caught:
        relink_module.relink(tmp_path / "a.pte", tmp_path / place, data=tmp_path / "weights")
    assert caught.value.message == f"{str(tmp_path / place)!r} {message}"
    assert sorted(os.listdir(tmp_path)) == ["a.pte", "weights"]
    assert (tmp_path / "weights").read_bytes() == b"weights"


def test_a_program_that_overwrites_its_values(tmp_path: Path) -> None:
    with pytest.raises(UnlinkableError, match="reads value 1 at bytes 16 to 32 of buffer 1 after") as caught:
        relinked(overwriting(), tmp_path)
    assert caught.value.exit_code == 4
    assert caught.value.where == f"{tmp_path / 'a.pte'}, method 'forward'"
    assert os.listdir(tmp_path) == ["a.pte"]


def test_an_object_program_is_left_to_the_build(tmp_path: Path) -> None:
    """What its methods share is not in the file."""
    file = tmp_path / "net.object.pte"
    write(chain(2), file)
    relink_module.relink(file, tmp_path / "b.pte")  # Without the sidecar it is a program like any other.
    file.with_suffix(".json").write_text("{}")
    with pytest.raises(UsageError, match="this is an object program; only `etdev build` can link it") as caught:
        relink_module.relink(file, tmp_path / "b.pte")
    assert str(caught.value.hint).startswith("relink the program that was built from it: net.pte;")


def test_what_would_be_lost_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.pte"
    write(delegated(), file)
    with file.open("ab") as opened:
        opened.write(b"signature of somebody's")
    content = file.read_bytes()

    with pytest.raises(ProgramError, match="does not know and would lose: 23 bytes after the last segment") as caught:
        etdev.relink(file, file)
    assert (caught.value.exit_code, caught.value.where) == (2, str(file))
    assert file.read_bytes() == content


def test_a_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path: Path) -> None:
    write(chain(1), tmp_path / "a.pte")
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError) as caught:
        etdev.relink(tmp_path / "a.pte", tmp_path / "folder")
    assert caught.value.where == str(tmp_path / "folder")


def test_a_wrong_plan_is_not_put_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check reads what was written, and does not believe the linker."""

    def wrong(found: Program, options: object, **_: object) -> object:
        good = link(found)
        plan = good.program.execution_plan[0]
        values = tuple(
            replace(value, allocation_info=m.AllocationDetails(1, 0)) if isinstance(value, m.Tensor) else value
            for value in plan.values
        )
        return replace(good, program=replace(good.program, execution_plan=(replace(plan, values=values),)))

    values = [tensor(4, at=0), tensor(4, at=16), tensor(4, at=32), tensor(4, at=48), m.Int(1)]
    calls = [m.KernelCall(1, (0, 1, 1)), m.KernelCall(2, (0, 2, 2)), m.KernelCall(0, (1, 2, 4, 3, 3))]
    write(program(method(values, calls, outputs=(3,))), tmp_path / "a.pte")
    content = (tmp_path / "a.pte").read_bytes()
    monkeypatch.setattr(relink_module, "link_foreign", wrong)

    with pytest.raises(LinkError, match="the link is wrong: method 'forward': instruction 1"):
        etdev.relink(tmp_path / "a.pte", tmp_path / "a.pte")
    assert (tmp_path / "a.pte").read_bytes() == content
    assert os.listdir(tmp_path) == ["a.pte"]


def test_every_kind_of_copies_has_a_key_in_the_config() -> None:
    """What a build can switch off, a link alone can switch off by the same name."""
    assert set(KINDS) == ALL_ELISIONS == set(Elide.model_fields)


@pytest.mark.parametrize(
    "found",
    [chain(10), loop(), branches(), copies()],
    ids=["chain", "loop", "branches", "copies"],
)
@pytest.mark.sampled(1)
def test_the_stock_runtime_computes_the_same(found: Program, tmp_path: Path) -> None:
    """The arithmetic is untouched: results are equal bit by bit."""
    torch = pytest.importorskip("torch", reason="torch holds the values")
    pytest.importorskip("executorch", reason="executorch runs the programs")
    from support.stock import shared_runtime

    relinked(found, tmp_path, planner="greedy")
    plan = found.execution_plan[0]
    sizes = [plan.values[index] for index in plan.inputs]
    torch.manual_seed(0)
    for flag in (True, False):
        inputs = [torch.randn(item.sizes) if item.sizes else torch.tensor(flag) for item in sizes]
        results = []
        for name in ("a.pte", "b.pte"):
            shared_runtime().load(tmp_path / name)
            results.append(shared_runtime().call("forward", inputs, fresh=True))
        assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
        assert results[0][0].abs().sum() > 0
