"""State in object programs: what it starts with, what it is called, and which of it methods may share (E2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etdev.errors import EmitError
from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.stages.emit import emit_object
from etdev.program.sidecar import StateNote
from pipeline.stages.emit.emitting import Case, Emitted, emit, prepare
from support.stages import Failure, check_failure

FOUR = {"x": "float32 [4]"}
PRIVATE = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.full((4,), 2.0))
        self.register_buffer("total", torch.zeros(4))
    def forward(self, x):
        self.level.add_(x)
        return self.level * 1
    def down(self, x):
        self.level.sub_(x)
        self.total.add_(self.level)
        return self.level + self.total
    def peek(self):
        return self.level * 1
    """,
    {"forward": FOUR, "down": FOUR, "peek": {}},
)
LEVEL, TOTAL = ("level", True), ("total", False)


def _state(made: Emitted) -> dict[str, list[tuple[str, bool]]]:
    """Name, and is there an initial value, of each state of each method; in the notes as in the file."""
    found = {}
    for plan in made.object.program.execution_plan:
        notes = made.object.sidecar.methods[plan.name].state
        assert list(notes) == [
            StateNote(index, tensor.extra_tensor_info.fully_qualified_name or "", tensor.data_buffer_idx > 0)
            for index, tensor in plan.tensors()
            if tensor.extra_tensor_info is not None and tensor.allocation_info is not None
        ]
        found[plan.name] = [(note.name, note.initialized) for note in notes]
    return found


@pytest.mark.nightly
def test_methods_keep_state_apart(tmp_path: Path) -> None:
    """What a method changes is its own, with the initial value; what it only reads is a constant to it."""
    made = emit(tmp_path, PRIVATE)

    assert _state(made) == {"forward": [LEVEL], "down": [LEVEL, TOTAL], "peek": []}
    made.check_addresses()
    made.check_answers("forward")


def test_shared_state_is_state_in_every_method_that_uses_it(tmp_path: Path) -> None:
    made = emit(tmp_path, replace(PRIVATE, share=True))

    assert _state(made) == {"forward": [LEVEL], "down": [LEVEL, TOTAL], "peek": [LEVEL]}
    made.check_addresses()
    made.check_answers("down")


def test_state_as_constants_are(tmp_path: Path) -> None:
    """A reproducer: with names, executorch 1.4.1 takes the initial value of state from the constant with the same
    bytes, by an index that means something else."""
    case = Case(
        """
        def __init__(self):
            super().__init__()
            self.one, self.two = (nn.Parameter(torch.full((4,), value)) for value in (3.0, 7.0))
            self.register_buffer("state", torch.full((4,), 7.0))
            self.register_buffer("other", torch.full((4,), 7.0))
        def forward(self, x):
            self.state.add_(x)
            self.other.mul_(x)
            return self.state * self.one + self.two, self.other * 1
        """,
        {"forward": FOUR},
    )
    made = emit(tmp_path, case)

    assert _state(made) == {"forward": [("state", True), ("other", True)]}
    made.check_answers()


VALUES = {
    "zeros": ("torch.zeros(4)", False),
    "minus": ("-torch.zeros(4)", True),
    "nan": ("torch.full((4,), float('nan'))", True),
    "truth": ("torch.tensor([False, False, True, False])", True),
    "whole": ("torch.zeros(4, dtype=torch.int64)", False),
    "scalar": ("torch.tensor(2.0)", True),
    "small": ("torch.eye(2).t().reshape(4).to(torch.bfloat16)", True),
}


@pytest.mark.nightly
def test_only_zeros_are_left_to_the_runtime(tmp_path: Path) -> None:
    """By their bytes: -0.0 is not zeros."""
    made = emit(
        tmp_path,
        Case(
            f"""
            def __init__(self):
                super().__init__()
                values = [{", ".join(text for text, _ in VALUES.values())}]
                for name, value in zip({list(VALUES)}, values):
                    self.register_buffer(name, value, persistent=name < "small")
            def forward(self, x):
                before = tuple(1 / buffer.float() for buffer in self.buffers())
                for buffer in self.buffers():
                    buffer.copy_(x + 1 if buffer.dim() else x[0] + 1)
                return before
            """,
            {"forward": FOUR},
        ),
    )

    assert sorted(_state(made)["forward"]) == sorted((name, kept) for name, (_, kept) in VALUES.items())
    made.check_answers()


def test_a_part_of_a_cache_and_names_of_submodules(tmp_path: Path) -> None:
    case = Case(
        """
        class Layer(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("cache", torch.zeros(1, 8, 4))
            def forward(self, at, x):
                self.cache[:, at] = x
                return self.cache.sum(1)
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([self.Layer(), self.Layer()])
        def forward(self, at, x): return self.layers[0](at, x), self.layers[1](at, x + 1)
        """,
        {"forward": {"at": "int64 [1]", "x": "float32 [1, 1, 4]"}},
    )
    made = emit(tmp_path, case)

    assert _state(made) == {"forward": [("layers.0.cache", False), ("layers.1.cache", False)]}
    made.check_addresses()
    made.check_answers()


FROZEN = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.ones(4, 4))
    def forward(self, x):
        self.weight.add_(x)
        return x.erf()
    def apply(self, x): return nn.functional.linear(x, self.weight)
    """,
    {"forward": {"x": "float32 [4, 4]"}, "apply": {"x": "float32 [2, 4]"}},
    backend="xnnpack",
)


@pytest.mark.nightly
def test_a_delegate_may_not_keep_a_copy_of_shared_state(tmp_path: Path) -> None:
    project, exported, lowered = prepare(tmp_path, replace(FROZEN, share=True))
    with quiet_libraries():
        check_failure(
            lambda: emit_object(project, lowered, exported, "cpu", object_place(project, "cpu")),
            Failure(
                EmitError,
                f"{tmp_path / 'etdev.toml'}:5:15 (model.share_state)",
                (
                    "in method 'apply', a delegate has its own copy of the state 'weight'; changes by ops outside "
                    "the delegate do not reach that copy"
                ),
                "exclude the ops that use this state from the partitioners, or give each method its own "
                "state (set `model.share_state` to false)",
            ),
        )


@pytest.mark.nightly
def test_to_a_method_of_its_own_the_copy_is_right(tmp_path: Path) -> None:
    made = emit(tmp_path, FROZEN)

    assert _state(made) == {"forward": [("weight", True)], "apply": []}
    made.check_answers("apply")
