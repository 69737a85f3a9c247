"""Writes to buffers and inputs, of every kind, reach the file (E2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from etdev.errors import ExportError
from etdev.pipeline.results.result import CheckResult
from etdev.pipeline.stages.writes import aten_clone, separate_copies, separate_writes
from pipeline.stages.emit.emitting import FIRST_LINE, Case, emit
from support.verification import prepare

EVERY_KIND = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("initial", torch.arange(4.0))
        for position, name in enumerate("abcdefghx"):
            self.register_buffer(name, torch.full((4,), float(position)))

    def forward(self, x):
        before = self.a * 1, self.b * 1, self.c * 1
        a = self.a.clone()
        self.a.copy_(self.b)
        self.b.copy_(self.c)
        self.c.copy_(a)
        self.d[:] = self.initial
        self.d[1:3] = self.e[:2]
        self.e.copy_(x)
        both = self.f + x
        self.f.copy_(both)
        self.g.copy_(both)
        self.h.copy_(self.f)
        self.f.add_(1)
        self.x.sub_(x)
        return *before, self.d, self.e, self.f, self.g, self.h, self.x, self.initial, self.initial, x
    """,
    {"forward": {"x": "float32 [4]"}},
)
"""A rotation, constants, slices, inputs, one value for two buffers, and a buffer with the name of an input."""


def test_every_kind_of_write_reaches_the_file(tmp_path: Path) -> None:
    made = emit(tmp_path, EVERY_KIND)

    made.check_addresses()
    made.check_answers(rounds=4)


IN_A_BRANCH = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.full((4,), 5.0))
        self.register_buffer("other", torch.full((4,), 7.0))

    def forward(self, p, xs):
        one, other = torch.cond(
            p, lambda a, b: (a.clone(), b.clone()), lambda a, b: (b.clone(), a.clone()), (self.one, self.other)
        )
        carry, ys = scan(lambda carry, x: (carry.clone(), carry + x), other, xs, dim=0)
        self.one.copy_(self.other)
        self.other.copy_(carry)
        return one + xs[0], ys
    """,
    {"forward": {"p": "bool []", "xs": "float32 [3, 4]"}},
)


@pytest.mark.integration
def test_values_that_pass_through_branches_and_loops(tmp_path: Path) -> None:
    made = emit(tmp_path, IN_A_BRANCH)

    made.check_addresses()
    made.check_answers(rounds=3)


ONE_NAME = Case(
    """
    def __init__(self):
        super().__init__()
        self.register_buffer("x", torch.full((4,), 5.0))

    def forward(self, x):
        self.x.add_(1)
        x.mul_(2)
        return self.x + x
    """,
    {"forward": {"x": "float32 [4]"}},
)
"""A buffer and an input of the same name, both of which are written."""


def test_a_written_input_with_the_name_of_a_buffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="writes to its input 'x'") as caught:
        emit(tmp_path, ONE_NAME)

    line = FIRST_LINE + ONE_NAME.text.strip("\n").split("\n").index("        x.mul_(2)")
    assert f"'x' (model.py:{line}, in forward), which has the same name as a buffer" in caught.value.message


NO_BUFFER = Case(
    """
    def __init__(self):
        super().__init__()
        self.cache = torch.zeros(4)

    def forward(self, x):
        self.cache[1:] = x
        return self.cache + 1
    """,
    {"forward": {"x": "float32 [3]"}},
)


def test_a_written_tensor_that_is_not_a_buffer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="writes to the tensor 'cache'") as caught:
        emit(tmp_path, NO_BUFFER)

    line = FIRST_LINE + NO_BUFFER.text.strip("\n").split("\n").index("        self.cache[1:] = x")
    assert f"'cache' (model.py:{line}, in forward), which is not a buffer of the model" in caught.value.message
    assert caught.value.hint is not None
    assert "register_buffer('cache'" in caught.value.hint


TIED = """
    def __init__(self):
        super().__init__()
        both = torch.full((4,), 5.0)
        self.register_buffer("one", both)
        self.register_buffer("other", {other})

    def forward(self, x):
        self.one.add_(x)
        {more}
        return self.one + 1, self.other * 1
"""


@pytest.mark.parametrize("more", ["pass", "self.other.mul_(2)", "self.other.copy_(self.one + 1)"])
@pytest.mark.nightly
def test_a_tensor_with_two_names_is_one_state(more: str, tmp_path: Path) -> None:
    made = emit(tmp_path, Case(TIED.format(other="both", more=more), {"forward": {"x": "float32 [4]"}}))

    made.check_answers(rounds=3)


def test_buffers_that_are_parts_of_each_other_are_refused(tmp_path: Path) -> None:
    text = TIED.format(other="both[:2]", more="pass")
    with pytest.raises(
        ExportError, match="the buffers 'one' and 'other' share memory, and the method writes"
    ) as caught:
        emit(tmp_path, Case(text, {"forward": {"x": "float32 [4]"}}))

    line = FIRST_LINE + text.strip("\n").split("\n").index("        self.one.add_(x)")
    assert f"'one' (model.py:{line}, in forward)" in caught.value.message
    assert (
        caught.value.hint
        == "register one buffer for the shared memory, and compute 'other' from that buffer in the method"
    )


class Exchange(torch.nn.Module):
    """Exchanges an input and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.full((4,), 5.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.state.clone()
        self.state.copy_(x)
        x.copy_(before)
        return x + 1


def test_a_graph_that_is_functional_already() -> None:
    """As a saved program may be: the writes are outputs, and two of them are placeholders."""
    functional = torch.export.export(Exchange(), (torch.ones(4),)).run_decompositions({})
    kinds = {"BUFFER_MUTATION", "USER_INPUT_MUTATION"}
    specs = functional.graph_signature.output_specs
    count = sum(spec.kind.name in kinds for spec in specs)
    assert count == 2

    separate_writes(functional, aten_clone)

    written = functional.graph.output_node().args[0][:count]  # type: ignore[index]
    assert [node.op for node in written] == ["call_function"] * count  # type: ignore[union-attr]
    assert [spec.arg.name for spec in specs[:count]] == [node.name for node in written]  # type: ignore[union-attr]
    functional.validate()
    x, module = torch.zeros(4), functional.module()
    assert module(x).tolist() == [6.0] * 4
    assert (x.tolist(), module.state.tolist()) == ([5.0] * 4, [0.0] * 4)


def test_a_write_of_its_own_value_gets_no_clone() -> None:
    class Sum(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.state + x
            self.state.copy_(y)
            return y

    program = torch.export.export(Sum(), (torch.ones(4),))
    nodes = len(program.graph.nodes)
    separate_copies(program)

    assert len(program.graph.nodes) == nodes


def test_a_copy_to_a_computed_tensor_gets_no_clone() -> None:
    class Copy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            one, other = torch.zeros_like(x), torch.ones(2, 4)
            return one.copy_(x), other[0].copy_(x)

    program = torch.export.export(Copy(), (torch.ones(4),))
    nodes = len(program.graph.nodes)
    separate_copies(program)

    assert len(program.graph.nodes) == nodes
    one, other = program.run_decompositions().module()(torch.arange(4.0))
    assert one.tolist() == other.tolist() == [0.0, 1.0, 2.0, 3.0]


CONFIG = """
    version = 1
    [model]
    entry = "model:Net"
    share_state = {share}
    [methods.forward]
    inputs = [{{ name = "x", dtype = "float32", shape = [4] }}]
    [methods.{other}]
    inputs = [{{ name = "x", dtype = "float32", shape = [4] }}]
    [targets.cpu]
"""
RESET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.full((4,), 5.0))
            self.register_buffer("initial", torch.full((4,), 5.0))

        def forward(self, x):
            self.state.add_(x)
            return self.state * 1

        def reset(self, x):
            self.state.copy_(self.initial)
            return x * 1
"""
DELAY = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("older", torch.zeros(4))
            self.register_buffer("newer", torch.zeros(4))

        def forward(self, x):
            y = self.older + x
            self.older.copy_(self.newer)
            self.newer.copy_(x)
            return y

        def double(self, x):
            return x * 2
"""
MODELS = {"a reset of shared state": (RESET, "reset", True), "a delay line of its own": (DELAY, "double", False)}


def _judge(folder: Path, model: str, other: str, share: bool) -> dict[str, CheckResult]:
    config = CONFIG.format(other=other, share=str(share).lower())
    return prepare(folder, "cpu", config, model=model).judge()


@pytest.mark.parametrize(("model", "other", "share"), MODELS.values(), ids=MODELS)
@pytest.mark.sampled(1)
def test_a_program_with_state_is_called_in_a_row(tmp_path: Path, model: str, other: str, share: bool) -> None:
    checks = _judge(tmp_path, model, other, share)

    for check in (checks["runtime"], checks["replay"]):
        assert check.status == "passed", check.problems
        assert check.summary.startswith("4 samples, then 6 calls in a row, max abs error 0; equal")


@pytest.mark.parametrize(("model", "other", "share"), MODELS.values(), ids=MODELS)
@pytest.mark.sampled(1)
def test_a_write_that_emission_drops_fails_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, other: str, share: bool
) -> None:
    """Each call on fresh state is right."""
    monkeypatch.setattr("etdev.pipeline.stages.export.separate_copies", lambda program: None)
    monkeypatch.setattr("etdev.pipeline.stages.emit.emission.separate_writes", lambda program, clone: None)
    checks = _judge(tmp_path, model, other, share)

    for check in (checks["runtime"], checks["replay"]):
        assert (check.status, check.gate) == ("failed", False)
        assert check.problems[0].startswith("output 0 of 'forward' has an error of")
        assert check.problems[0].endswith("in a row)")
