"""The reference backend: what it takes, and that a program computes the same with it (B1, B2, B5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from etdev.backends.reference import DELEGATE_ID
from etdev.backends.reference.options import ReferenceOptions
from etdev.errors import LinkError, LowerError
from etdev.linker import LinkOptions
from etdev.pipeline.stages.link.nested import link_nested, nested_program, reference_delegates, with_nested_of
from etdev.program import Blob, Program, parse, serialize
from etdev.program.analysis.effects import operator_name
from etdev.program.devices import delegate_device
from etdev.program.footprint import planned_memory
from etdev.program.model import Int, Tensor
from etdev.runtime.interpreter.reference import BACKEND

torch = pytest.importorskip("torch", reason="needs the extra `build`")
pytest.importorskip("executorch", reason="needs the extra `build`")
nn, F = torch.nn, torch.nn.functional


class Layers(nn.Module):
    """Three layers with ops between them, and a weight that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x: Any) -> Any:
        x = self.layers[0](x * self.scale)
        x = self.layers[1](x.sin())
        return self.layers[2](x.cos() * self.scale), x


class Tied(nn.Module):
    """One weight, transposed by each of two layers, and once more outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(8, 8, bias=False) for _ in range(2))
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).sin()) + self.first.weight.t()[:2]


class Counter(nn.Module):
    """State that begins with something else than zero, and an output of it."""

    def __init__(self, body: Callable[[Any, Any], Any], initial: float) -> None:
        super().__init__()
        self.register_buffer("count", torch.full((2, 8), initial))
        self.body = body

    def forward(self, x: Any) -> Any:
        return self.body(self.count, x)


def _counted(count: Any, x: Any) -> Any:
    count.add_(x)
    return (count * 2).sin()


def _returned(count: Any, x: Any) -> Any:
    count.add_(x)
    return count * 2, count


def _silent(count: Any, x: Any) -> Any:
    count.add_(1)
    return x.sin()


class Branches(nn.Module):
    """Ops in both branches of a condition."""

    def forward(self, x: Any) -> Any:
        y = torch.cond(x.sum() > 0, lambda a: a.relu() * 2, lambda a: a.sin() - 1, (x.cos(),))
        return y + 1


class Shared(nn.Module):
    """Two modules that use one weight in one form."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.one, self.two = Function(torch.mm), Function(torch.mm)

    def forward(self, x: Any) -> Any:
        weight = self.weight.t()
        return self.two(self.one(x, weight).sin(), weight)


class Function(nn.Module):
    """A function of the inputs."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: Any) -> Any:
        return self.body(*inputs)


@dataclass(frozen=True)
class Case:
    """A model, what the partitioners take in order, and what comes of it."""

    model: Callable[[], Any]
    steps: tuple[dict[str, Any], ...] = ({},)
    inside: tuple[str, ...] | None = None
    """Kernels of the nested programs, one text for each delegate in the order of the file; None for any."""
    outside: str = ""
    """Kernels that the method itself needs."""
    inputs: tuple[Any, ...] = field(default_factory=lambda: (_random(2, 8),))
    dynamic: bool = False
    """Whether the first size of the inputs changes."""
    calls: int = 1


def _random(*sizes: int) -> Any:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)))


CASES = {
    "everything": Case(
        lambda: Function(lambda x: (x.sin(), F.softmax(x, -1))), inside=("aten::_softmax.out aten::sin.out",)
    ),
    "an op by name": Case(
        lambda: Function(lambda x: x.sin().cos().sin()),
        ({"ops": ("sin",)},),
        ("aten::sin.out", "aten::sin.out"),
        "aten::cos.out",
    ),
    "an op of one overload": Case(
        lambda: Function(lambda x: x * x + x.sum(0) + x.sum()),
        ({"ops": ("aten.sum.dim_IntList", "aten::mul.out")},),
        ("aten::mul.out aten::sum.IntList_out",),
        "aten::add.out",
    ),
    "an op that ExecuTorch would decompose": Case(
        lambda: nn.Linear(8, 4), ({"ops": ("linear",)},), ("aten::linear.out",)
    ),
    "an op whose name numbers have too": Case(
        lambda: Function(lambda x: x.pow(3)), inside=("aten::pow.Tensor_Scalar_out",)
    ),
    "a module": Case(
        Layers,
        ({"modules": ("layers.1",)},),
        ("aten::addmm.out aten::permute_copy.out aten::relu.out",),
        "aten::addmm.out aten::cos.out aten::mul.out aten::permute_copy.out aten::relu.out aten::sin.out",
    ),
    "modules by a pattern, one after the other": Case(
        Layers,
        ({"modules": ("layers.[01]",)}, {"modules": ("layers.2", "nothing.*")}),
        ("aten::addmm.out aten::permute_copy.out aten::relu.out",) * 3,
        "aten::cos.out aten::mul.out aten::sin.out",
    ),
    "two halves": Case(
        lambda: Function(lambda x: x.sin().cos().sin().cos()),
        ({"part": (0.0, 0.5)}, {"part": (0.5, 1.0)}),
        ("aten::cos.out aten::sin.out",) * 2,
    ),
    "the middle, which the second looks for next to the first": Case(
        lambda: Function(lambda x: x.sin().cos().exp().tanh()),
        ({"part": (0.0, 0.25)}, {"part": (0.5, 0.75)}),
        ("aten::sin.out", "aten::exp.out"),
        "aten::cos.out aten::tanh.out",
    ),
    "a weight of two delegates and of the host": Case(
        Layers,
        ({"modules": ("layers.0",)}, {"ops": ("mul",)}),
        None,
        "aten::addmm.out aten::cos.out aten::permute_copy.out aten::relu.out aten::sin.out",
    ),
    "weights that are transposed first": Case(
        lambda: nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))),
        ({"part": (0.0, 0.5)}, {"part": (0.5, 1.0)}),
        ("aten::addmm.out aten::permute_copy.out",) * 2,
        "",
    ),
    "a transposed weight of two delegates and of the host": Case(
        Tied,
        ({"modules": ("first",)}, {"modules": ("second",)}),
        ("aten::mm.out aten::permute_copy.out",) * 2,
        "aten::add.out aten::permute_copy.out aten::sin.out aten::slice_copy.Tensor_out",
    ),
    "what is computed of a weight goes with the delegate that uses it": Case(
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)),
        ({"part": (0.0, 0.4)}, {"part": (0.6, 1.0)}),
        ("aten::addmm.out aten::permute_copy.out",) * 2,
        "aten::relu.out",
    ),
    "what is computed of a weight for two delegates stays outside": Case(
        Shared, ({"modules": ("one",)}, {"modules": ("two",)}), None, "aten::permute_copy.out aten::sin.out"
    ),
    "weights as arguments": Case(Layers, ({"own_weights": False},)),
    "several outputs of one op": Case(
        lambda: Function(lambda x: (*x.split(3, -1), *F.layer_norm(x, (8,)).topk(2), F.layer_norm(x, (8,)).sin())),
        inside=("aten::native_layer_norm.out aten::sin.out aten::split_with_sizes_copy.out aten::topk.values",),
        inputs=(_random(3, 8),),
    ),
    "nothing but constants": Case(lambda: Function(lambda x: (torch.arange(3), x + 1))),
    "branches": Case(
        Branches,
        ({"ops": ("relu", "sin", "mul", "sub", "add")},),
        ("aten::mul.out aten::relu.out", "aten::sin.out aten::sub.out", "aten::add.out"),
        "aten::cos.out aten::gt.Scalar_out aten::sum.IntList_out dim_order_ops::_to_dim_order_copy.out",
    ),
    "a dynamic size": Case(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), dynamic=True),
    "a size as an argument": Case(
        lambda: Function(lambda x: (x.sin()[:, :4].reshape(x.shape[0] * 2, 2), x.new_ones(x.shape[0], 3))),
        ({"ops": ("view_copy", "full")},),
        dynamic=True,
    ),
    "sizes of an argument are no arguments": Case(
        lambda: Function(lambda x: x.sin().reshape(x.shape[0] * 2, 4).flatten(0).cos()),
        inside=("aten::cos.out aten::sin.out aten::sym_size.int aten::view_copy.out executorch_prim::mul.Scalar",),
        dynamic=True,
    ),
    "half of an op between cuts": Case(Layers, ({"part": (0.3, 0.6)}, {"part": (0.7, 0.8)})),
    "state of its own": Case(lambda: Counter(_counted, 7.0), calls=3),
    "state of its own, zero at first": Case(lambda: Counter(_counted, 0.0), calls=3),
    "state that stays outside": Case(lambda: Counter(_counted, 0.0), ({"own_state": False},), calls=3),
    "state that the host reads": Case(lambda: Counter(_counted, 0.0), ({"ops": ("add",)},), calls=3),
    "state that two delegates use": Case(
        lambda: Counter(_counted, 0.0), ({"ops": ("add",)}, {"ops": ("mul", "sin")}), calls=3
    ),
    "state that is also an output": Case(lambda: Counter(_returned, 0.0), calls=3),
    "state that nothing comes of": Case(lambda: Counter(_silent, 0.0), ({"ops": ("add",)},), calls=3),
    "sizes that depend on the data stay outside": Case(
        lambda: Function(lambda x: (x.nonzero(), x.sin())), inside=("aten::sin.out",), outside="aten::nonzero.out"
    ),
}


def _lower(case: Case, *devices: str) -> Program:
    """The method as ExecuTorch emits it; partitioners have these devices, in order, or the host."""
    from executorch.exir import to_edge_transform_and_lower

    from etdev.backends.reference.partitioner import ReferencePartitioner

    specs = [{"target_device": device} for device in devices] or [{}] * len(case.steps)
    partitioners = [
        ReferencePartitioner(ReferenceOptions(**step), spec) for step, spec in zip(case.steps, specs, strict=True)
    ]
    torch.manual_seed(0)
    model = case.model().eval()
    shapes: Any = tuple({0: torch.export.Dim("size", min=1, max=5)} for _ in case.inputs) if case.dynamic else None
    if case.dynamic and isinstance(model, Function):
        shapes = (shapes,)
    exported = torch.export.export(model, case.inputs, dynamic_shapes=shapes)
    lowered = to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch()
    return parse(Blob(bytes(lowered.buffer)))


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.sampled(4)
def test_the_program_computes_what_the_model_does(case: Case) -> None:
    """As ExecuTorch emits it, and with its nested programs linked; what is inside and outside is as the case says."""
    from etdev.runtime.replay import ReplayRuntime

    emitted = _lower(case)
    linked, reports = link_nested(emitted)
    assert reports
    if case.inside is not None:
        assert tuple(_kernels(nested) for nested in _nested(emitted)) == case.inside
        assert _kernels(emitted) == case.outside
    for program in (emitted, linked):
        torch.manual_seed(0)
        model = case.model().eval()
        with ReplayRuntime() as runtime:
            runtime.load(program)
            for inputs in _calls(case):
                expected = model(*inputs)
                expected = expected if isinstance(expected, tuple) else (expected,)
                torch.testing.assert_close(tuple(runtime.call("forward", inputs)), expected)


TURNED: dict[str, Callable[[Any], Any]] = {
    "a branch": lambda x: torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a - 1, (x.t(),)),
    "rows": lambda x: _map(lambda row: row.sin() * 2, x.view(2, 4, 2).permute(1, 2, 0)),
    "every turn": lambda x: _map(lambda row, other: (other * 2).sin() + row.sum(), x, (x + 1).t()),
    "scanned rows": lambda x: _scan(
        lambda total, row: (total * 2 + row.sum(), row.tanh() * 2), x[0, :1].sin(), x.view(2, 4, 2).permute(1, 2, 0)
    ),
    "the next turn": lambda x: _scan(lambda total, row: (total * 2 + row.sum(), total.tanh()), x.t(), x + 1),
    "every scanned turn": lambda x: _scan_with((x + 1).t(), x),
    "a scan in a branch": lambda x: torch.cond(
        x.sum() > 0,
        lambda a: _scan(lambda total, row: (total * 2 + row.sum(), total.tanh()), a.t(), a + 1)[0],
        lambda a: a.t() - 1,
        (x,),
    ),
}


def _scan_with(other: Any, x: Any) -> Any:
    return _scan(lambda total, row: (total + row.sum(), (other * 2).tanh()), x[0, :1].sin(), x)


def _map(body: Any, *operands: Any) -> Any:
    from torch._higher_order_ops.map import map as torch_map

    return torch_map(body, *operands)


def _scan(body: Any, *operands: Any) -> Any:
    from torch._higher_order_ops.scan import scan as torch_scan

    return torch_scan(body, *operands)


@pytest.mark.integration
@pytest.mark.parametrize("body", TURNED.values(), ids=TURNED)
def test_what_branches_and_loops_receive_is_in_order(body: Callable[[Any], Any]) -> None:
    """Their operand is the copy of a transposed tensor, whose elements are in order, and no view."""
    nested = _nested(_lower(Case(lambda: Function(body))))
    assert nested
    assert all(tensor.is_in_order for program in nested for _, tensor in program.execution_plan[0].tensors())


def _calls(case: Case) -> list[tuple[Any, ...]]:
    sizes = (1, 5, 2) if case.dynamic else (2,) * case.calls
    given = [tuple(_random(size, *each.shape[1:]) for each in case.inputs) for size in sizes]
    return given if case.dynamic or case.calls > 1 else [case.inputs]


def _nested(program: Program) -> list[Program]:
    return [nested_program(program, plan, index) for plan, index, _ in reference_delegates(program)]


def _kernels(program: Program) -> str:
    return " ".join(sorted({operator_name(op) for op in program.execution_plan[0].operators}))


OWNERS = {
    "state of its own": (True, {}),
    "state that stays outside": (False, {"own_state": False}),
    "state that is also an output": (False, {}),
    "state that the host reads": (False, {"ops": ("add",)}),
    "state that nothing comes of": (False, {"ops": ("add",)}),
}


@pytest.mark.parametrize(("name", "is_owned"), [(name, owned) for name, (owned, _) in OWNERS.items()])
@pytest.mark.sampled(2)
def test_state_is_a_delegates_own_only_if_nobody_else_sees_it(name: str, is_owned: bool) -> None:
    """A delegate that owned what others change or read would go on with a copy of it."""
    program = _lower(CASES[name])
    assert ("aten::copy_" not in _kernels(program)) == is_owned
    assert any("aten::copy_" in _kernels(nested) for nested in _nested(program)) == is_owned


@pytest.mark.nightly
def test_each_delegate_has_the_device_of_its_partitioner() -> None:
    """B1, B2: in branches too; equal parts on two devices share one blob, and each has memory of its own."""
    case = Case(lambda: Function(lambda x: x.sin().cos().sin().cos()), CASES["two halves"].steps)
    linked, reports = link_nested(_lower(case, "cuda:0", "cuda:1"))
    found = [delegate for _, _, delegate in reference_delegates(linked)]
    assert [str(delegate_device(delegate)) for delegate in found] == ["cuda:0", "cuda:1"]
    assert found[0].processed == found[1].processed
    assert [(str(report.device), report.memory) for report in reports] == [("cuda:0", 64), ("cuda:1", 64)]
    branches = [plan for plan, _, _ in reference_delegates(_lower(CASES["branches"], "cuda:3"))]
    assert len(branches) == 3
    assert {str(delegate_device(item)) for item in branches[0].delegates} == {"cuda:3"}


@pytest.mark.nightly
def test_equal_parts_give_equal_bytes() -> None:
    assert serialize(link_nested(_lower(CASES["a module"]))[0]) == serialize(link_nested(_lower(CASES["a module"]))[0])


def test_inputs_and_outputs_of_a_nested_program_have_no_memory_of_their_own() -> None:
    for nested in _nested(_lower(CASES["a size as an argument"])):
        plan = nested.execution_plan[0]
        values = [plan.values[index] for index in (*plan.inputs, *plan.outputs)]
        assert any(isinstance(value, Int) for value in values)
        assert all(value.allocation_info is None for value in values if isinstance(value, Tensor))


@pytest.mark.nightly
def test_nested_programs_are_linked_with_the_settings_of_the_target() -> None:
    case = CASES["everything"]
    emitted = _lower(case)
    for options in (LinkOptions(planner="naive", elide=frozenset(), inplace={}), LinkOptions()):
        linked, reports = link_nested(emitted, options)
        sizes = [sum(planned_memory(nested).values()) for nested in _nested(linked)]
        assert [report.memory for report in reports] == sizes
        assert with_nested_of(emitted, linked) == linked
    naive, best = (
        sum(report.memory for report in link_nested(_lower(CASES["two halves"]), LinkOptions(planner=planner))[1])
        for planner in ("naive", "best")
    )
    assert best <= naive


def test_a_nested_program_that_does_something_else_is_not_taken_for_the_same() -> None:
    one, other = (_lower(Case(lambda f=f: Function(f))) for f in (torch.sin, torch.cos))
    assert with_nested_of(one, other) == one


def test_a_blob_that_is_no_program() -> None:
    """B3: the delegate is named."""
    program = _lower(CASES["everything"])
    place = program.execution_plan[0].delegates[0].processed.index
    segments = list(program.segments)
    segments[place] = replace(segments[place], data=Blob(b"no program"))
    with pytest.raises(LinkError, match="the blob of the delegate is not a program: ") as caught:
        link_nested(replace(program, segments=tuple(segments)))
    assert caught.value.where == "method 'forward', delegate 0"


@pytest.mark.parametrize(("name", "near"), [("rel", "aten::relu.out"), ("mine::op", None)])
def test_an_operator_that_has_no_kernel(name: str, near: str | None) -> None:
    with pytest.raises(LowerError, match=f"the backend 'reference' has no kernel for the operator '{name}'") as caught:
        _lower(Case(lambda: Function(torch.sin), ({"ops": (name,)},)))
    assert near is None or near in str(caught.value.hint)


def test_a_program_without_reference_delegates_stays_as_it_is() -> None:
    program = _lower(Case(lambda: Function(torch.sin), ({"ops": ("cos",)},)))
    assert link_nested(program) == (program, ())


def test_its_name_is_the_same_everywhere() -> None:
    """The runtime knows the delegate too, and imports no backend."""
    assert BACKEND == DELEGATE_ID
