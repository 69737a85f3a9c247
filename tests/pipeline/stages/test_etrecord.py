"""An ETRecord says of the shipped file what its instructions are (judging point of objects and linking; E2)."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

pytest.importorskip("executorch", reason="needs the extra `build`")

import etdev
from etdev.errors import EmitError, ProgramError
from etdev.pipeline.builder.build import build_project
from etdev.pipeline.project.options import BuildOptions
from etdev.pipeline.stages.etrecord import InstructionMaps, delegate_outputs, read_delegates, write_record
from etdev.program import read
from etdev.program.model import DelegateCall, ExecutionPlan, KernelCall
from etdev.program.sidecar import read_sidecar
from support.projects import make_project, write_project
from support.stages import Failure, check_failure

pytestmark = pytest.mark.integration

MODEL = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(8, 8)
            self.register_buffer("count", torch.zeros(4, 8))

        def forward(self, p, x):
            y = self.layer(x).relu().view(4, 1, 8)
            z = torch.cond(p, lambda a: a.view(4, 8).sin().exp().view(4, 1, 8), lambda a: a.cos(), (y,))
            joined = torch.cat([y.abs(), z], 1)
            self.count.add_(x)
            return joined.reshape(8, 8).softmax(-1), (joined[:, 0] + self.count).permute(1, 0)
"""
CONFIG = """
    version = 1
    [project]
    name = "net"
    [model]
    entry = "model:Net"
    [methods.forward]
    inputs = [{ name = "p", dtype = "bool", shape = [] }, { name = "x", dtype = "float32", shape = [4, 8] }]
    [targets.portable]
    etrecord = true
    lowering = "stock"
    [targets.xnnpack]
    etrecord = true
    partitioners = [{ backend = "xnnpack" }]
"""
TARGETS = ["portable", "xnnpack"]
BRANCHES = {"sin", "exp", "cos"}
"""Ops that :data:`MODEL` has in branches only."""
FILES = ["net.etrecord", "net.object.etrecord", "net.object.json", "net.object.pte", "net.pte", "report.json"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config of a project that was built with records."""
    config = write_project(tmp_path_factory.mktemp("project"), CONFIG, model=MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETDEV_CACHE_DIR", str(config.parent / ".cache"))
        etdev.build(config, verify=False)
    return config


@pytest.fixture
def config(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that project and its cache, to link again."""
    shutil.copytree(built.parent, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("ETDEV_CACHE_DIR", str(tmp_path / "copy" / ".cache"))
    return tmp_path / "copy" / "etdev.toml"


def stages(config: Path, *overrides: str, target: str = "portable") -> list[str]:
    """What a build without verification does, the time of the first import of the model left out."""
    done = etdev.build(config, targets=[target], overrides=list(overrides), verify=False)[target].seconds
    return [stage for stage in done if stage != "load"]


def parse(file: Path) -> Any:
    """The record beside a program, by executorch's own reader."""
    from executorch.devtools.etrecord import parse_etrecord

    return parse_etrecord(str(file.with_suffix(".etrecord")))


def names(plan: ExecutionPlan) -> list[str]:
    """What each instruction does: the operator's name for a kernel, else the kind of instruction."""
    return [
        plan.operators[call.op_index].name.split("::")[1] if isinstance(call, KernelCall) else type(call).__name__
        for call in plan.chains[0].instructions
    ]


def ops_by_handle(program: Any) -> dict[int, set[str]]:
    """The ops of an edge program, its branches and loop bodies: handle → names."""
    found: dict[int, set[str]] = {}
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            if hasattr(getattr(node.target, "_op", None), "_schema"):
                name = node.target._op._schema.name.split("::")[1]
                found.setdefault(node.meta["debug_handle"], set()).add(name)
    return found


def listed(handles: Any) -> list[int]:
    """Handles as a record has them, always in a list."""
    return handles if isinstance(handles, list) else [handles]


def check_names(plan: ExecutionPlan, program: Any, handles: dict[str, Any]) -> set[str]:
    """Every handle of a kernel leads to an op of its name. Gives the names of those that have one.

    Only jumps and moves, and the copies that write state back, come from no op of the model.
    """
    ops = ops_by_handle(program)
    seen = set()
    for position, name in enumerate(names(plan)):
        if str(position) not in handles:
            assert name in {"JumpFalseCall", "MoveCall", "copy_"}
        elif name != "DelegateCall":
            (handle,) = listed(handles[str(position)])
            assert {"et_view": "view_copy"}.get(name, name) in ops[handle]
            seen.add(name)
    return seen


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["net.object.pte", "net.pte"])
def test_the_record_leads_from_instructions_to_their_ops(built: Path, target: str, name: str) -> None:
    file = built.parent / "build" / target / name
    record, plan = parse(file), read(file).method("forward")
    seen = check_names(plan, record.edge_dialect_program, record._debug_handle_map["forward"])

    assert seen >= BRANCHES
    if target == "portable":
        assert seen >= {"addmm", "relu", "cat", "add", "_softmax"}


@pytest.mark.parametrize(("target", "moved"), [("portable", "_softmax"), ("xnnpack", "DelegateCall")])
def test_the_link_moved_instructions(built: Path, target: str, moved: str) -> None:
    """Else the tests here would show nothing."""
    folder = built.parent / "build" / target
    before, after = (names(read(folder / name).method("forward")) for name in ("net.object.pte", "net.pte"))
    assert [at for at, name in enumerate(before) if name == moved] != [
        at for at, name in enumerate(after) if name == moved
    ]


def test_delegates_lead_to_the_ops_inside(built: Path) -> None:
    file = built.parent / "build" / "xnnpack" / "net.pte"
    record, plan = parse(file), read(file).method("forward")
    calls = {str(at): call for at, call in enumerate(plan.chains[0].instructions) if isinstance(call, DelegateCall)}
    handles, ops = record._debug_handle_map["forward"], ops_by_handle(record.edge_dialect_program)

    inside = [set().union(*(ops[handle] for handle in listed(handles[position]))) for position in calls]
    assert len(calls) > 1
    assert {"linear", "relu"} <= inside[0]
    assert "_softmax" in inside[-1]
    assert {at: found["name"] for at, found in record._delegate_map["forward"].items()} == dict.fromkeys(
        calls, "XnnpackBackend"
    )
    outputs = record._instruction_id_to_num_outs_map["forward"]
    assert outputs.keys() == calls.keys()
    written = {value for position, call in calls.items() for value in call.args[len(call.args) - outputs[position] :]}
    assert not written & set(plan.inputs)
    assert written >= set(plan.outputs)


def test_the_inspector_finds_the_op_of_every_event(built: Path) -> None:
    """Events as a runtime with a tracer logs them, one for each kernel of the shipped file."""
    from executorch.devtools import Inspector

    file = built.parent / "build" / "portable" / "net.pte"
    kernels = {at: name for at, name in enumerate(names(read(file).method("forward"))) if name.islower()}
    with pytest.warns(UserWarning, match="Output Buffer not found"):
        inspector = Inspector(etdump_data=etdump(kernels), etrecord=str(file.with_suffix(".etrecord")))
    (block,) = inspector.event_blocks

    found = {event._instruction_id: event for event in block.events}
    assert found.keys() == kernels.keys()
    for position, name in kernels.items():
        # The Inspector reads the outer graph only, and knows a handle of a branch without its op.
        expected = [] if name in BRANCHES | {"copy_"} else [f"aten.{name}"]
        if name == "addmm":  # The model's `linear` became two ops, and the link has done one of them.
            expected.insert(0, "aten.permute_copy")
        assert [op.rpartition(".")[0] for op in found[position].op_types] == expected, name
        assert (found[position].debug_handles is None) == (name == "copy_")


def etdump(kernels: dict[int, str]) -> bytes:
    """What a runtime logs: an event for each kernel."""
    from executorch.devtools.etdump import schema_flatcc as schema
    from executorch.devtools.etdump.serialize import serialize_to_etdump_flatcc

    events = [
        schema.Event(schema.ProfileEvent(f"native_call_{name}", 0, position, -1, "", b"", 10, 20), None, None)
        for position, name in kernels.items()
    ]
    data = serialize_to_etdump_flatcc(schema.ETDumpFlatCC(0, [schema.RunData("Execute", -1, [], events)]))
    return struct.pack("<I", len(data)) + data  # The runtime writes its size in front.


@pytest.mark.nightly
def test_several_methods_and_dynamic_sizes(tmp_path: Path) -> None:
    """Constant methods have no instructions and are not in a record."""
    config = write_project(
        tmp_path,
        """
        version = 1
        [model]
        entry = "model:Net"
        [constants]
        size = 3
        [methods.forward]
        inputs = [{ name = "x", dtype = "float32", shape = ["n", 4] }]
        dims.n = { min = 1, max = 8 }
        [methods.encode]
        inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }]
        [targets.cpu]
        etrecord = true
        """,
        model="""
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return x.sin().view(x.shape[0], 2, 2).relu().tanh()

            def encode(self, x):
                return torch.cat([x.view(8).cos(), x.reshape(8).exp()])
        """,
    )
    file = tmp_path / etdev.build(config, verify=False)["cpu"].artifact
    record, program = parse(file), read(file)

    assert record._debug_handle_map.keys() == record.edge_dialect_program.keys() == {"forward", "encode"}
    for method, kernels in {"forward": {"sin", "relu", "tanh"}, "encode": {"cos", "exp"}}.items():
        handles = record._debug_handle_map[method]
        plan, edge = program.method(method), record.edge_dialect_program[method]
        ops = ops_by_handle(edge)
        for position, name in enumerate(names(plan)):
            if name in kernels:
                assert ops[handles[str(position)]] == {name}


# What a build leaves ---------------------------------------------------------------------------------------------


def left(config: Path, target: str = "portable") -> list[str]:
    """Return the names of a target's files; a build that writes none leaves no folder."""
    return sorted(path.name for path in (config.parent / "build" / target).glob("[!.]*"))


def test_a_link_alone_moves_the_record_too(config: Path) -> None:
    folder = config.parent / "build" / "portable"
    before = parse(folder / "net.pte")._debug_handle_map
    assert stages(config, "targets.portable.elide.views=false") == ["link", "write"]

    record, plan = parse(folder / "net.pte"), read(folder / "net.pte").method("forward")
    assert record._debug_handle_map != before
    check_names(plan, record.edge_dialect_program, record._debug_handle_map["forward"])
    assert left(config) == FILES


def test_equal_links_give_equal_records(config: Path) -> None:
    file = config.parent / "build" / "portable" / "net.etrecord"
    before = file.read_bytes()
    assert stages(config, "targets.portable.elide.views=false") == ["link", "write"]
    assert file.read_bytes() != before
    for entry in (config.parent / ".cache" / "entries").glob("*/linked-*"):
        entry.unlink()  # So that it is linked again.
    assert stages(config) == ["link", "write"]
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["net.etrecord", "net.object.etrecord"])
@pytest.mark.parametrize("content", [None, b"PK"])
def test_a_record_that_is_gone_or_broken_is_put_back(config: Path, name: str, content: bytes | None) -> None:
    file = config.parent / "build" / "portable" / name
    before = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    assert stages(config) == []
    assert file.read_bytes() == before


def test_a_link_that_changes_nothing_leaves_the_maps_of_the_object(built: Path, tmp_path: Path) -> None:
    """What executorch wrote and what a link writes are the same, so only the positions differ between the two."""
    folder = built.parent / "build" / "xnnpack"
    program, sidecar = read(folder / "net.object.pte"), read_sidecar(folder / "net.object.json")
    notes = {"forward": sidecar.methods["forward"]}
    delegates = read_delegates(folder / "net.object.etrecord")
    outputs = delegate_outputs(program, {name: note.delegate_inputs for name, note in notes.items()})
    maps = InstructionMaps({name: note.debug_handles for name, note in notes.items()}, delegates, outputs)
    write_record(folder / "net.object.etrecord", maps, tmp_path / "same.etrecord")

    with ZipFile(folder / "net.object.etrecord") as wanted, ZipFile(tmp_path / "same.etrecord") as found:
        assert found.namelist() == wanted.namelist()
        for name in wanted.namelist():
            assert found.read(name) == wanted.read(name), name


@pytest.mark.nightly
def test_the_program_is_the_same_without(config: Path) -> None:
    file = config.parent / "build" / "portable" / "net.pte"
    before = file.read_bytes()
    etdev.build(config, targets=["portable"], overrides=["targets.portable.etrecord=false"], verify=False, cache=False)
    assert file.read_bytes() == before
    assert left(config) == [name for name in FILES if not name.endswith(".etrecord")]


@pytest.mark.nightly
def test_a_program_without_a_record_has_none_of_an_earlier_one_beside_it(config: Path) -> None:
    """Nor has the object program. Wanted once more, both are there."""
    stages(config, "targets.portable.etrecord=false")
    assert left(config) == [name for name in FILES if not name.endswith(".etrecord")]
    assert stages(config) == []
    assert left(config) == FILES
    assert stages(config, "targets.portable.etrecord=false") == []
    assert left(config) == [name for name in FILES if not name.endswith(".etrecord")]


def test_a_rejected_program_has_no_record(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etdev.pipeline.builder.targets.outcome", lambda _: "rejected")
    assert stages(config, "targets.portable.elide.views=false") == ["link", "write"]
    assert left(config) == [{"net.pte": "net.pte.rejected"}.get(name, name) for name in FILES if name != "net.etrecord"]


def test_what_stood_there_stays_if_the_record_cannot_be_written(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = config.parent / "build" / "portable"
    before = {name: (folder / name).read_bytes() for name in FILES}

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("etdev.pipeline.stages.write.write_record", fail)
    with pytest.raises(KeyboardInterrupt):
        stages(config, "targets.portable.elide.views=false")
    assert {name: (folder / name).read_bytes() for name in left(config)} == before


@pytest.mark.nightly
def test_a_model_that_executorch_cannot_serialize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its serializer does not know a tensor that a branch made of a number."""
    monkeypatch.chdir(tmp_path)
    model = MODEL.replace("a.cos()", "a.cos() + 1")
    project = make_project(tmp_path, CONFIG, model=model)
    expected = Failure(
        EmitError,
        "etdev.toml:9:12 (targets.portable.etrecord)",
        "executorch cannot serialize the model's graphs for an ETRecord: getattr nodes containing tensors…",
        "set `etrecord` to false to build without an ETRecord",
    )

    check_failure(lambda: build_project(project, BuildOptions(targets=("portable",), verify=False)), expected)
    assert left(tmp_path / "etdev.toml") == []


# The file --------------------------------------------------------------------------------------------------------


def _archive(path: Path, members: dict[str, bytes]) -> None:
    with ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_only_the_maps_change(tmp_path: Path) -> None:
    before = {"ETRECORD_V0": b"", "graph": bytes(range(256)), "debug_handle_map": b"{}", "delegate_map": b'{"f": {}}'}
    before |= {"instruction_id_to_num_outs_map": b"{}", "graph_constants": b"c" * 3_000_000}
    _archive(tmp_path / "a", before)
    maps = InstructionMaps({"f": {0: (3,), 1: (4,), 2: (5, 6)}}, {"f": {1: {"name": "B"}}}, {"f": {1: 2}})
    write_record(tmp_path / "a", maps, tmp_path / "b")

    with ZipFile(tmp_path / "b") as archive:
        after = {name: archive.read(name) for name in archive.namelist()}
    changed = {name: json.loads(after[name]) for name in before if after[name] != before[name]}
    assert list(after) == list(before)
    assert changed == {
        "debug_handle_map": {"f": {"0": 3, "1": [4], "2": [5, 6]}},
        "delegate_map": {"f": {"1": {"name": "B"}}},
        "instruction_id_to_num_outs_map": {"f": {"1": 2}},
    }
    assert read_delegates(tmp_path / "b") == {"f": {1: {"name": "B"}}}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: None, id="no file"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
        pytest.param(lambda path: path.write_bytes(b"text"), id="no zip"),
        pytest.param(lambda path: _archive(path, {"ETRECORD_V0": b""}), id="no map"),
        pytest.param(lambda path: _archive(path, {"delegate_map": b"{"}), id="no JSON"),
        pytest.param(lambda path: _archive(path, {"delegate_map": b"[]"}), id="a list"),
        pytest.param(lambda path: _archive(path, {"delegate_map": b'{"f": 1}'}), id="a number for a method"),
        pytest.param(lambda path: _archive(path, {"delegate_map": b'{"f": {"x": {}}}'}), id="no position"),
    ],
)
def test_what_is_no_record(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "a.etrecord")
    with pytest.raises(ProgramError, match="this is not an ETRecord") as caught:
        read_delegates(tmp_path / "a.etrecord")
    assert caught.value.where == str(tmp_path / "a.etrecord")
