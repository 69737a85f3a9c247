"""What the sidecar says of instructions: where they come from, and that they are what the graph says (E2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.stages.emit import emission as stage
from etdev.pipeline.stages.emit.instructions import MismatchError, match_instructions
from etdev.pipeline.stages.emit.module_paths import module_path
from etdev.program.model import (
    Chain,
    DelegateCall,
    ExecutionPlan,
    FreeCall,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
)
from etdev.program.sidecar import OutputNote, Source
from pipeline.stages.emit.emitting import FIRST_LINE, PX, Case, Emitted, X, emit

MODEL = Case(
    """
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, p, x):
        y = torch.cond(p, lambda a: a.sin(), lambda a: a.cos(), (x,))
        y = torch_map(lambda a, b: a.exp() + b, y, x[0])
        return self.layer(y), y.erf()
    """,
    {"forward": PX},
    backend="xnnpack",
)
COND, MAP, END = (FIRST_LINE + line for line in (4, 5, 6))
EXPECTED = {
    "select_copy": MAP,
    "JumpFalseCall": COND,
    "sin": COND,
    "MoveCall": COND,
    "JumpFalseCall 2": COND,
    "cos": COND,
    "MoveCall 2": COND,
    "sym_size": MAP,
    "select_copy 2": MAP,
    "exp": MAP,
    "add": MAP,
    "et_copy_index": MAP,
    "add 2": MAP,
    "eq": MAP,
    "JumpFalseCall 3": MAP,
    "sub": MAP,
    "erf": END,
    "DelegateCall": END,
}
"""The instructions in order, and the line of each."""


def _emitted(folder: Path, case: Case) -> tuple[Emitted, Any]:
    """An object program with upstream's manager, which the stage does not hand on."""
    managers = []
    to_executorch = stage._to_executorch

    def spied(*arguments: Any) -> Any:
        managers.append(to_executorch(*arguments))
        return managers[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_to_executorch", spied)
        return emit(folder, case), managers[0]


@cache
def _model(folder: Path) -> tuple[Emitted, Any]:
    return _emitted(folder, MODEL)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Emitted, Any]:
    """:data:`MODEL`, made once."""
    return _model(tmp_path_factory.mktemp("model"))


def _named(plan: ExecutionPlan) -> list[str]:
    """The instructions, numbered where there are several of a name."""
    names: list[str] = []
    for instruction in plan.chains[0].instructions:
        kernel = isinstance(instruction, KernelCall)
        name = plan.operators[instruction.op_index].name.split("::")[1] if kernel else type(instruction).__name__
        count = 1 + sum(other.split(" ")[0] == name for other in names)
        names.append(name if count == 1 else f"{name} {count}")
    return names


def test_every_instruction_has_the_line_it_comes_from(model: tuple[Emitted, Any]) -> None:
    """Jumps, moves and what counts iterations have that of their condition or loop, a delegate that of its last op."""
    made, _ = model
    sources = made.object.sidecar.methods["forward"].sources
    names = _named(made.plan())

    assert {name: sources[index].line for index, name in enumerate(names)} == EXPECTED
    assert list(EXPECTED) == names
    assert sources[names.index("erf")] == Source("model.py", END, "forward", "return self.layer(y), y.erf()")
    assert {source.file for source in sources.values()} == {"model.py"}


def test_instructions_have_the_module_they_come_from(model: tuple[Emitted, Any]) -> None:
    """A delegate has that of all its ops, and an instruction of the model's own code has an empty path."""
    made, _ = model
    modules = made.object.sidecar.methods["forward"].modules
    names = _named(made.plan())

    assert modules[names.index("DelegateCall")] == "layer"
    assert modules[names.index("erf")] == ""
    assert {modules.get(names.index(name), "") for name in names if name != "DelegateCall"} == {""}


def test_outputs_of_delegates_have_the_module_that_computes_them(model: tuple[Emitted, Any]) -> None:
    made, _ = model
    outputs = made.object.sidecar.methods["forward"].outputs
    place = Source("model.py", END, "forward", "return self.layer(y), y.erf()")

    assert outputs == {_named(made.plan()).index("DelegateCall"): (OutputNote("layer", place),)}


def test_state_that_a_delegate_owns_is_none_of_its_outputs(tmp_path: Path) -> None:
    """The graph of the delegate returns it, but the call does not."""
    body = """
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Buffer(torch.zeros(4, 8)), nn.Buffer(torch.zeros(4, 8))
        self.layer = nn.Linear(8, 8)
    def forward(self, x):
        self.one.add_(x)
        self.two.sub_(x)
        return self.layer(self.one * self.two)
    """
    made = emit(tmp_path, Case(body, {"forward": X}, backend="reference"))
    notes, (call,) = made.object.sidecar.methods["forward"], made.plan().instructions
    (note,) = notes.outputs_of(0, call.args).values()
    assert note.module == "layer"
    assert note.source is not None
    assert note.source.text == "return self.layer(self.one * self.two)"


@pytest.mark.nightly
def test_modules_of_modules_have_their_path(tmp_path: Path) -> None:
    made = emit(
        tmp_path,
        Case(
            """
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Softplus()) for _ in range(2))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
    """,
            {"forward": X},
        ),
    )
    modules = made.object.sidecar.methods["forward"].modules

    assert set(modules.values()) == {"blocks.0.0", "blocks.0.1", "blocks.1.0", "blocks.1.1"}
    assert len(modules) == len(made.plan().instructions)


def test_debug_handles_are_those_of_upstream(model: tuple[Emitted, Any]) -> None:
    """Outside of branches and loops, where upstream keeps them; inside, the kernels have theirs too."""
    made, manager = model
    handles = made.object.sidecar.methods["forward"].debug_handles
    names = _named(made.plan())
    upstream = {
        index: tuple(handle) if isinstance(handle, list) else (handle,)
        for index, handle in manager.debug_handle_map["forward"].items()
    }

    assert upstream == {index: handles[index] for index in upstream}
    assert [names[index] for index in handles if index not in upstream] == ["sin", "cos", "exp", "add"]


def test_only_delegate_calls_have_inputs_of_delegates(model: tuple[Emitted, Any]) -> None:
    made, _ = model

    assert made.object.sidecar.methods["forward"].delegate_inputs == {len(EXPECTED) - 1: 1}


# What is not what the graph says --------------------------------------------------------------------------------------

Change = Callable[[list[Instruction]], object]


def _replace(index: int, **changes: Any) -> Change:
    def change(instructions: list[Any]) -> None:
        instructions[index] = replace(instructions[index], **changes)

    return change


MISMATCHES: dict[str, tuple[Change, str]] = {
    "one too few": (lambda all_: all_.pop(), "the instructions end before executorch_call_delegate"),
    "one too many": (lambda all_: all_.append(FreeCall(0)), "instruction 18 comes after the end of the graph"),
    "another kind": (lambda all_: all_.insert(2, FreeCall(0)), "instruction 2 is a FreeCall instead of a KernelCall"),
    "another kernel": (
        _replace(2, op_index=0),
        "instruction 2 calls aten::select_copy.int_out instead of aten::sin.out (aten_sin_default)",
    ),
    "a longer true branch": (
        _replace(1, destination_instruction=3),
        "a branch of cond ends at instruction 3 instead of 2",
    ),
    "a shorter true branch": (
        _replace(1, destination_instruction=6),
        "instruction 4 is a JumpFalseCall instead of a MoveCall",
    ),
    "a jump elsewhere": (_replace(14, destination_instruction=9), "map_impl jumps back to instruction 9 instead of 8"),
    "another delegate": (_replace(17, delegate_index=1), "instruction 17 calls delegate 1 instead of 0"),
    "an argument more": (
        _replace(17, args=(0, 0, 0)),
        "instruction 17 has 3 arguments instead of 2 (executorch_call_delegate)",
    ),
}


@pytest.mark.parametrize(("change", "message"), MISMATCHES.values(), ids=MISMATCHES)
def test_a_mismatch_is_never_guessed_at(model: tuple[Emitted, Any], change: Change, message: str) -> None:
    made, manager = model
    plan = made.plan()
    instructions = list(plan.chains[0].instructions)
    assert [type(instructions[index]) for index in (1, 3, 17)] == [JumpFalseCall, MoveCall, DelegateCall]
    change(instructions)
    changed = replace(plan, chains=(Chain(tuple(instructions)),))
    graph = manager.exported_program("forward").graph_module

    assert len(match_instructions(graph, plan)) == len(EXPECTED)
    with pytest.raises(MismatchError) as caught:
        match_instructions(graph, changed)
    assert str(caught.value) == message


def test_another_backend_is_a_mismatch(model: tuple[Emitted, Any]) -> None:
    made, manager = model
    plan = replace(made.plan(), delegates=(replace(made.plan().delegates[0], id="Other"),))
    with pytest.raises(MismatchError, match="instruction 17 does not call the backend 'XnnpackBackend'"):
        match_instructions(manager.exported_program("forward").graph_module, plan)


# Lines ----------------------------------------------------------------------------------------------------------------


class _Node:
    """As much of a node as a line is found by."""

    target = None

    def __init__(self, *frames: tuple[Any, int, str, str]) -> None:
        texts = (
            f'File "{file}", line {line}, in {name}\n' + (f"    {text}\n" if text else "")
            for file, line, name, text in frames
        )
        self.meta = {"stack_trace": "  ".join(texts).rstrip()} if frames else {}


TORCH = (torch.nn.__file__, 5, "forward", "x")
INSTALLED = (pytest.__file__, 6, "forward", "installed = 1")


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((), None),
        ((("ROOT/model.py", 3, "forward", "x + 1"),), Source("model.py", 3, "forward", "x + 1")),
        ((("ROOT/parts/layer.py", 3, "forward", ""),), Source("parts/layer.py", 3, "forward", "")),
        (
            (("ROOT/model.py", 3, "forward", "self.a(x)"), ("ROOT/a.py", 4, "forward", "x - 1"), TORCH),
            Source("a.py", 4, "forward", "x - 1"),
        ),
        ((("ROOT/model.py", 3, "forward", "f(x)"), INSTALLED), Source("model.py", 3, "forward", "f(x)")),
        ((INSTALLED, TORCH), Source("pytest/__init__.py", 6, "forward", "installed = 1")),
        ((TORCH,), None),
        ((("torch/fx/passes/runtime_assert.py", 24, "insert_deferred_runtime_asserts", ""),), None),
        (
            (("ROOT/model.py", 3, "forward", "cond()"), ("<eval_with_key>.7", 4, "forward", "y")),
            Source("model.py", 3, "forward", "cond()"),
        ),
        ((("ROOT/../elsewhere.py", 3, "forward", "x"),), Source("elsewhere.py", 3, "forward", "x")),
    ],
    ids=[
        "nothing known",
        "the project's",
        "in a folder, unreadable",
        "the innermost",
        "the project's before an installed package's",
        "an installed package's",
        "torch's own",
        "torch's own, with a relative path",
        "inside a branch",
        "outside of the project",
    ],
)
def test_the_line_of_a_node(tmp_path: Path, frames: tuple[Any, ...], expected: Source | None) -> None:
    node: Any = _Node(*((file.replace("ROOT", str(tmp_path)), *rest) for file, *rest in frames))

    assert SourceLines(tmp_path).of([node]) == expected


def test_a_line_in_the_text_of_an_error_is_the_users(tmp_path: Path) -> None:
    files = (tmp_path / "model.py", pytest.__file__)
    own, theirs = (f'failed\n  File "{file}", line 3, in run\n    x' for file in files)
    lines = SourceLines(tmp_path)
    assert lines.in_trace(own, installed=False) == Source("model.py", 3, "run", "x")
    assert lines.in_trace(theirs, installed=False) is None
    assert lines.in_trace(theirs) is not None


def test_a_link_to_the_project_changes_no_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    node: Any = _Node((tmp_path / "link" / "model.py", 3, "forward", "x"))

    assert SourceLines(tmp_path / "real").of([node]) == Source("model.py", 3, "forward", "x")
    assert SourceLines(tmp_path / "link").of([node]) == Source("model.py", 3, "forward", "x")


def test_nodes_that_torch_adds_itself_have_no_module() -> None:
    """torch gives them a path that no module has."""
    from torch._export.passes import _node_metadata_hook

    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.sin.default, (graph.placeholder("x"),))
    key = _node_metadata_hook._EMPTY_NN_MODULE_STACK_KEY
    node.meta["nn_module_stack"] = {key: (key, key)}
    assert module_path(node) is None
    node.meta["nn_module_stack"] = {"": ("", "Net"), "layer": ("layer", "Linear")}
    assert module_path(node) == "layer"
