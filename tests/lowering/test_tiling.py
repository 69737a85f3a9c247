"""The fullest moment of a method in pieces: the same outputs in less memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etdev.linker import LinkOptions, link_foreign
from etdev.lowering.graph import Editor, FormSettings
from etdev.lowering.tiling import tile
from etdev.program import read, write
from etdev.program.footprint import planned_memory
from support.stock import shared_runtime

pytestmark = pytest.mark.integration

torch = pytest.importorskip("torch", reason="needs the extra `build`")
F = torch.nn.functional


class Net(torch.nn.Module):
    """A function of one input and of parameters."""

    def __init__(self, function: Callable[..., Any], parameters: tuple[Any, ...]) -> None:
        super().__init__()
        self.function = function
        for index, value in enumerate(parameters):
            self.register_parameter(f"p{index}", torch.nn.Parameter(value, requires_grad=False))

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.parameters())


def _random(*shape: int) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@dataclass(frozen=True)
class Case:
    """A model, and how many times less memory it has to take."""

    function: Callable[..., Any]
    x: Any
    parameters: tuple[Any, ...] = ()
    less: float = 1.0

    @property
    def net(self) -> Net:
        """The module."""
        return Net(self.function, self.parameters)


def _mlp(x: Any, first: Any, second: Any) -> Any:
    return x + F.linear(F.gelu(F.linear(F.layer_norm(x, x.shape[-1:]), first)), second)


def _attention(x: Any, wide: Any, back: Any) -> Any:
    rows, width = x.shape
    query, key, value = (part.view(rows, 4, -1).transpose(0, 1) for part in F.linear(x, wide).split(width, dim=1))
    scores = torch.softmax(query @ key.transpose(1, 2) / 4, dim=-1)
    return F.linear((scores @ value).transpose(0, 1).reshape(rows, width), back)


def _mobile(x: Any, wide: Any, each: Any, narrow: Any) -> Any:
    hidden = F.relu6(F.conv2d(x, wide))
    return F.conv2d(F.relu6(F.conv2d(F.pad(hidden, (0, 1, 0, 1)), each, stride=2, groups=each.shape[0])), narrow)


def _windows(x: Any, weight: Any) -> Any:
    """16 windows of 4 x 4, each of which looks at itself."""
    parts = x.view(4, 4, 4, 4, 8).permute(0, 2, 1, 3, 4).reshape(16, 16, 8)
    mixed = torch.softmax(parts @ parts.transpose(1, 2), dim=-1) @ parts
    return F.linear(mixed, weight).view(4, 4, 4, 4, 8).permute(0, 2, 1, 3, 4).reshape(16, 16, 8)


def _stem(x: Any, weight: Any) -> Any:
    return F.max_pool2d(F.relu(F.conv2d(x, weight, stride=2, padding=3)), 3, 2, 1)


def _head(x: Any, wide: Any, narrow: Any) -> Any:
    """A residual block of convolutions, of which one number per pixel remains."""
    hidden = F.relu(F.conv2d(x, wide, padding=1))
    return F.conv2d(hidden + F.avg_pool2d(F.pad(hidden, (1, 1, 1, 1)), 3, 1), narrow, dilation=2, padding=2)


def _signal(x: Any, first: Any, second: Any) -> Any:
    hidden = F.conv1d(x, first, stride=5)
    hidden = F.layer_norm(hidden.transpose(1, 2), hidden.shape[1:2]).transpose(1, 2)
    return F.conv1d(F.gelu(hidden), second, stride=3)


def _split(x: Any, first: Any, inner: Any, last: Any) -> Any:
    """A stage whose two halves need different rows: only one of them is convolved again."""
    left, right = F.relu(F.conv2d(x, first)).chunk(2, 1)
    return F.conv2d(torch.cat([left, right, F.relu(F.conv2d(right, inner, padding=1))], 1), last)


def _padded(x: Any, weight: Any) -> Any:
    """Some tiles of the padding would have no element of the input."""
    return F.conv2d(F.relu(F.pad(x, (0, 0, 40, 8))), weight)


def _both(x: Any, first: Any, second: Any) -> Any:
    """What is in the middle is returned too."""
    hidden = F.linear(x, first)
    return F.linear(F.gelu(hidden), second), hidden


CASES = {
    "mlp": Case(_mlp, _random(64, 32), (_random(256, 32), _random(32, 256)), less=2.5),
    "attention": Case(_attention, _random(128, 32), (_random(96, 32), _random(32, 32)), less=2.0),
    "channels": Case(
        _mobile, _random(1, 8, 24, 24), (_random(48, 8, 1, 1), _random(48, 1, 3, 3), _random(8, 48, 1, 1)), less=2.0
    ),
    "windows": Case(_windows, _random(16, 16, 8), (_random(8, 8),), less=1.2),
    "images of a batch": Case(
        lambda x, w, v: F.conv2d(F.relu(F.conv2d(x, w)), v),
        _random(8, 2, 9, 9),
        (_random(32, 2, 3, 3), _random(2, 32, 3, 3)),
        less=2.0,
    ),
    "a group norm": Case(
        lambda x, w: F.group_norm(F.conv2d(x, w), 8).amax((2, 3)),
        _random(1, 4, 16, 16),
        (_random(64, 4, 1, 1),),
        less=3.0,
    ),
    "rows of a stem": Case(_stem, _random(1, 3, 63, 40), (_random(24, 3, 7, 7),), less=1.7),
    "rows with a skip": Case(_head, _random(1, 2, 50, 30), (_random(24, 2, 3, 3), _random(1, 24, 3, 3)), less=2.0),
    "halves of channels": Case(
        _split,
        _random(1, 2, 64, 64),
        (_random(32, 2, 1, 1), _random(16, 16, 3, 3), _random(2, 48, 1, 1)),
        less=2.0,
    ),
    "much padding": Case(_padded, _random(1, 64, 16, 16), (_random(2, 64, 1, 1),), less=1.2),
    "a signal": Case(_signal, _random(1, 1, 2003), (_random(32, 1, 10), _random(4, 32, 3)), less=3.0),
    "an output in the middle": Case(_both, _random(64, 32), (_random(256, 32), _random(32, 256)), less=1.2),
    "nothing to do": Case(lambda x: x + 1, _random(64, 64)),
    "all rows are needed": Case(lambda x, w: F.linear(x, w).cumsum(0).cumsum(1), _random(64, 32), (_random(64, 32),)),
}


def _lowered(case: Case, *, pieces: bool) -> tuple[Any, int]:
    from executorch.exir import to_edge_transform_and_lower

    from etdev.lowering.graph import FormSettings
    from etdev.lowering.rewrite import apply_forms

    manager = to_edge_transform_and_lower(torch.export.export(case.net, (case.x,)))
    names = ["linear", "addmm", *(["tiling"] if pieces else [])]
    applied = apply_forms(manager.exported_program("forward"), FormSettings(frozenset(names)))
    return manager, applied.counts.get("tiling", 0)


def _outputs_and_memory(manager: Any, x: Any, folder: Path) -> tuple[list[Any], int]:
    plain, path = folder / "plain.pte", folder / "program.pte"
    plain.write_bytes(manager.to_executorch().buffer)
    linked = link_foreign(read(plain), LinkOptions())
    write(linked.program, path)
    runtime = shared_runtime()
    runtime.load(path)
    return list(runtime.call("forward", (x,))), sum(planned_memory(linked.program).values())


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.sampled(1)
def test_pieces_take_less_memory_and_compute_the_same(case: Case, tmp_path: Path) -> None:
    whole, _ = _lowered(case, pieces=False)
    parts, count = _lowered(case, pieces=True)
    _, before = _outputs_and_memory(whole, case.x, tmp_path)
    found, after = _outputs_and_memory(parts, case.x, tmp_path)

    assert (count > 0) == (case.less > 1)
    assert after * case.less <= before
    expected = case.net(case.x)
    for value, reference in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
        torch.testing.assert_close(value, reference, atol=1e-5 * float(reference.abs().max()), rtol=0)


def test_tiles_of_a_batch_are_preferred_to_tiles_of_its_matrices() -> None:
    """Each tile of the matrices computes a part of all products, and each part costs a call of the kernel."""
    from etdev.lowering.estimates import Choice
    from etdev.lowering.regions import grow_region

    case = Case(lambda x, y: (x + 1).exp() @ (y * 2), _random(64, 16, 8), (_random(64, 8, 1),))
    editor = _editor(case, "always")
    (product,) = editor.calls("bmm.default")
    found = [grow_region(editor.occupancy(), product, axis) for axis in (0, 1)]
    batch, matrices = (Choice(region, 8, full=0, fewer=1, peak=1000) for region in found if region is not None)

    assert batch.added > matrices.added
    assert batch.rank(0) < matrices.rank(0)


@pytest.mark.parametrize("extent", ["always", "auto"])
def test_layers_are_tiled_although_the_lowest_peak_takes_too_many_ops(
    extent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def layers(x: Any, first: Any, second: Any) -> Any:
        return _mlp(_mlp(_mlp(x, first, second), first, second), first, second)

    monkeypatch.setattr("etdev.lowering.tiling._MOST_ADDED", 150)
    editor = _editor(Case(layers, _random(256, 64), (_random(1024, 64), _random(64, 1024))), extent)
    before = editor.occupancy().peak()
    assert tile(editor)
    assert 2 * editor.occupancy().peak() < before


def test_only_equal_ops_at_the_peak_are_expected_to_need_equal_tilings() -> None:
    """Other ops at the peak may need fewer tiles, so the search must go on."""
    from etdev.lowering.tiling import _least_added

    nodes = [SimpleNamespace(target=kind) for kind in ("bmm", "gelu", "gelu", "bmm", "mul", "bmm")]
    occupancy: Any = SimpleNamespace(
        nodes=nodes,
        at={id(node): index for index, node in enumerate(nodes)},
        peak_index=0,
        lifetimes=SimpleNamespace(bytes=[100, 100, 98, 100, 100, 97]),
    )
    choice: Any = SimpleNamespace(added=10, region=SimpleNamespace(axes={id(nodes[0]): 0, id(nodes[1]): 0}))
    assert _least_added(occupancy, choice) == 20
    choice.region.axes[id(nodes[3])] = 0
    assert _least_added(occupancy, choice) == 10


@pytest.mark.parametrize("name", ["rows with a skip", "much padding", "an output in the middle"])
def test_each_step_of_a_search_lowers_the_peak(name: str) -> None:
    """In these graphs, one more step would raise the peak, or not change it."""
    from etdev.lowering.convolution import workspace
    from etdev.lowering.tiling import _apply, _peak_of, _Tilings

    editor = _editor(CASES[name], "auto")
    tilings = _Tilings(editor, workspace)
    lowest, lowest_peak = tilings._lowered(0, 20_000), tilings.lowest_peak()
    peaks = [_peak_of(editor.occupancy(workspace=workspace))]
    for step in lowest.steps:
        _apply(editor, [step])
        peaks.append(_peak_of(editor.occupancy(workspace=workspace)))
    assert peaks == sorted(set(peaks), reverse=True)
    assert peaks[-1][0] == lowest.peak == lowest_peak


def test_goals_of_a_few_bytes_come_to_an_end() -> None:
    x, weight = torch.ones(2, 1, dtype=torch.int8), torch.ones(1, 8, dtype=torch.int8)
    editor = _editor(Case(lambda x, weight: (x * weight).abs().amax(1), x, (weight,)), "auto")
    assert tile(editor) == 0


def test_a_goal_is_reached_by_the_tiling_for_a_higher_one() -> None:
    from etdev.lowering.tiling import _Tilings

    tilings = _Tilings(_editor(CASES["rows with a skip"], "auto"))
    lowest = tilings.lowest_peak()
    assert lowest is not None
    goal = (lowest + tilings.peak) // 2
    assert not tilings.has_reached(goal - 1)
    peak = tilings.for_goal(goal).peak
    assert peak < goal
    assert tilings.has_reached(peak)
    assert tilings.has_reached(goal - 1)
    assert not tilings.has_reached(peak - 1)
    assert not tilings.has_reached(goal + 1)


def test_goals_near_the_best_one_are_tried() -> None:
    from etdev.lowering.tiling import _NEAR, _Trials

    editor = _editor(CASES["rows with a skip"], "auto")
    trials = _Trials(editor)
    size = trials._least.size
    tried: list[int] = []
    known = 900

    def for_goal(goal: int) -> Any:
        tried.append(goal)
        return SimpleNamespace(steps=(goal,), peak=goal)

    # The cheapest goal is between the goals of the climb.
    search: Any = SimpleNamespace(
        peak=10 * size,
        has_reached=lambda goal: goal == known,
        for_goal=for_goal,
        cost=lambda found: trials._least._replace(size=size - 1_000 + abs(found.peak - 950)),
    )
    trials.refine(0)
    assert trials.steps == ()
    assert not tried
    trials.compare(search, 1_000)
    trials.refine(0)
    assert tried == [1_000, *(goal for factor in _NEAR if (goal := int(factor * 1_000)) != known)]
    assert trials.steps == (950,)
    assert trials.goal == 950
    # Goals below the lowest one are not tried.
    tried.clear()
    trials.refine(1_000)
    assert tried == [1_002, 1_054]


def _editor(case: Case, extent: Any) -> Editor:
    program = _lowered(case, pieces=False)[0].exported_program("forward")
    return Editor(program, program.graph_module, FormSettings(frozenset(["tiling"]), extent))


@pytest.mark.parametrize(
    ("case", "op"),
    [
        (lambda x, w, b: F.batch_norm(x, b, w.abs() + 1, w, b), "_native_batch_norm_legit_no_training.default"),
        (lambda x, w, b: F.layer_norm(x.movedim(1, 3).contiguous(), (6,), w, b), "native_layer_norm.default"),
        (lambda x, w, b: F.layer_norm(x, (8, 10)) * w.sum() + b.sum(), "native_layer_norm.default"),
    ],
    ids=["batch", "layer", "layer of two dimensions"],
)
@pytest.mark.parametrize("learned", [False, True])
def test_a_new_norm_has_the_same_fake_result_as_the_norm_that_torch_ran(
    case: Callable[..., Any], op: str, learned: bool
) -> None:
    """The result of a norm is made without running it, which takes ten times as long."""
    editor = _editor(Case(case, IMAGE, (_random(6), _random(6))), "auto")
    (norm,) = editor.calls(op)
    if learned:
        norm.all_input_nodes[:2][-1].meta["val"].requires_grad_()
        norm.meta["val"] = norm.target(*[a.meta["val"] if hasattr(a, "meta") else a for a in norm.args])
    with editor.before(norm):
        found = editor.call(norm.target, *norm.args).meta["val"]

    def described(values: Any) -> list[Any]:
        return [(v.dtype, v.shape, v.stride(), v.device, v.requires_grad, v.fake_mode) for v in values]

    assert described(found) == described(norm.meta["val"])


def test_a_dynamic_expansion_stays_dynamic() -> None:
    """An estimate of memory must not fix a size that changes."""
    from executorch.exir import to_edge_transform_and_lower

    from etdev.lowering.forms import FORMS
    from etdev.lowering.graph import FormSettings
    from etdev.lowering.rewrite import apply_forms

    class Expand(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x.unsqueeze(0).expand(3, -1, -1) * y + 1

    size = torch.export.Dim("n", min=2, max=64)
    shapes = {"x": {0: size}, "y": {1: size}}
    exported = torch.export.export(Expand(), (_random(10, 4), _random(3, 10, 4)), dynamic_shapes=shapes)
    program = to_edge_transform_and_lower(exported).exported_program("forward")
    apply_forms(program, FormSettings(frozenset(form.name for form in FORMS)))

    sizes = [node.meta["val"].shape[0] for node in program.graph.nodes if node.name == "x"]
    assert not sizes[0].node.expr.is_number


@pytest.fixture(scope="module")
def own_ops() -> Any:
    """Operators of somebody's own: one named like ATen's that does something else, one that changes its operand."""
    library = torch.library.Library("etdevtest", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    library.impl("relu", lambda x: x.flip(0).clone(), "CompositeExplicitAutograd")
    library.define("bump(Tensor(a!) x) -> ()")
    library.impl("bump", lambda x: (x.add_(1), None)[1], "CompositeExplicitAutograd")
    yield torch.ops.etdevtest
    library._destroy()


def _graph(function: Callable[..., Any], *inputs: Any) -> Any:
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    exported = torch.export.export(Net(function, inputs[1:]), inputs[:1])
    lowered = to_edge_transform_and_lower(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return lowered.exported_program("forward")


def test_what_is_only_named_like_an_op_of_atens_stays_whole(own_ops: Any) -> None:
    from etdev.lowering.axes import needs

    program = _graph(lambda x: (own_ops.relu(x + 1), (x * 2).view(torch.int32) + 1), _random(8, 8))
    named = {node.target.__name__: node for node in program.graph.nodes if node.op == "call_function"}
    assert needs(named["aten.add.Tensor"], 0)
    for name in ("etdevtest.relu.default", "aten.view_copy.dtype"):
        assert needs(named[name], 0) is None
        assert needs(named[name], 1) is None


def test_nothing_is_read_after_an_op_that_changes_it(own_ops: Any) -> None:
    """Pieces are done where the last op of a region is; the op in between writes over what the first one reads."""
    from etdev.lowering.graph import FormSettings
    from etdev.lowering.rewrite import apply_forms

    def mlp(x: Any, first: Any, second: Any) -> Any:
        doubled = x * 2
        hidden = F.linear(doubled, first)
        own_ops.bump(doubled)
        return F.linear(F.gelu(hidden) * hidden, second), doubled

    program = _graph(mlp, _random(64, 32), _random(256, 32), _random(32, 256))
    assert apply_forms(program, FormSettings(frozenset(["linear", "tiling"]))).counts["tiling"]
    order = {node: place for place, node in enumerate(program.graph.nodes)}
    (change,) = (node for node in order if "auto_functionalized" in str(node.target))
    (doubled,) = change.all_input_nodes
    assert {user for user in doubled.users if order[user] > order[change]} == set()


# What each op needs ---------------------------------------------------------------------------------------------------


IMAGE, ROWS, BATCH = _random(2, 6, 8, 10), _random(6, 8), _random(4, 6, 8)
OPS: dict[str, Case] = {
    "broadcast": Case(lambda x: x * x.mean(1, keepdim=True) + x[0, 0, 0] + 1, IMAGE),
    "where": Case(lambda x: torch.where(x > 0, x, -x).clamp(-1, 1), IMAGE),
    "views": Case(lambda x: x.view(2, 3, 2, 80).view(12, 8, 10).unsqueeze(1).squeeze(1).view(12, 80) + 1, IMAGE),
    "moved": Case(lambda x: x.permute(2, 0, 3, 1).transpose(1, 2) + 1, IMAGE),
    "linear": Case(F.linear, BATCH, (_random(10, 8), _random(10))),
    "product": Case(lambda x, y: x @ y, ROWS, (_random(8, 12),)),
    "products": Case(lambda x: x @ x.transpose(1, 2), BATCH),
    "softmax": Case(lambda x: F.softmax(x, 1) + F.log_softmax(x, -1), BATCH),
    "layer norm": Case(lambda x, w, b: F.layer_norm(x, (8,), w, b), BATCH, (_random(8), _random(8))),
    "group norm": Case(lambda x, w, b: F.group_norm(x, 3, w, b), IMAGE, (_random(6), _random(6))),
    "batch norm": Case(lambda x, w, b: F.batch_norm(x, b, w.abs() + 1, w, b), IMAGE, (_random(6), _random(6))),
    "convolution": Case(lambda x, w, b: F.conv2d(x, w, b, 2, 1), IMAGE, (_random(8, 6, 3, 3), _random(8))),
    "convolution of groups": Case(lambda x, w: F.conv2d(x, w, groups=3), IMAGE, (_random(12, 2, 3, 3),)),
    "convolution of pixels": Case(F.conv2d, IMAGE, (_random(8, 6, 1, 1),)),
    "dilated convolution": Case(lambda x, w: F.conv2d(x, w, dilation=2, padding=3), IMAGE, (_random(4, 6, 3, 3),)),
    "convolution of a signal": Case(lambda x, w: F.conv1d(x, w, stride=3, padding=1), BATCH, (_random(4, 6, 4),)),
    "pools": Case(lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), IMAGE),
    "a pool of one number": Case(lambda x: F.max_pool2d(x, (3,), (1,), (1,)) + F.max_pool2d(x[0], 3, 1, 1), IMAGE),
    "padded pools": Case(
        lambda x: F.max_pool2d(x, 3, 1, 1) + F.max_pool2d(x, 3, 1, 1, dilation=2).sum() + F.avg_pool2d(x, 3, 1, 1),
        IMAGE,
    ),
    "larger images": Case(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), IMAGE),
    "reductions": Case(lambda x: x.sum(1).amax(-1) + x.mean((1, 3)), IMAGE),
    "parts": Case(
        lambda x: torch.cat([x[:, 1:3], x[:, ::2]], 1).split([2, 3], 1)[1] + x[:, :3].select(2, 1)[:, :, None], IMAGE
    ),
    "padding": Case(lambda x: F.pad(x, (0, 0, 1, 2)) + F.pad(x, (0, 0, 2, 1), value=2.0), IMAGE),
    "expansion": Case(lambda x: x.unsqueeze(1).expand(2, 5, 6, 8, 10) + 1, IMAGE),
    "rows of a table": Case(lambda x, w: F.embedding((x > 0).long(), w), ROWS, (_random(4, 6),)),
    "rows by index": Case(lambda x: x[(x[:4, :4] > 0).long()] + x[:, (x[0] > 0).long()].sum(), ROWS),
    "pixels by index": Case(lambda x: x[:, :, (x[0, 0, :6, :1] > 0).long(), (x[1, 0, 0] > 0).long()], IMAGE),
    "elements by index": Case(lambda x: x.gather(1, (x > 0).long()), ROWS),
}


@pytest.mark.parametrize("case", OPS.values(), ids=OPS)
@pytest.mark.sampled(3)
def test_pieces_of_an_op_make_up_its_output(case: Case) -> None:
    """Along each axis that the rules allow, in two and in three pieces."""
    from etdev.lowering.axes import needs, shape_of

    manager, _ = _lowered(case, pieces=False)
    program = manager.exported_program("forward")
    values = _values(program, case)
    seen = 0
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        for axis in range(len(shape_of(node) or ())):
            what = needs(node, axis)
            for count in (2, 3):
                if what is not None and what.grain >= count:
                    rows = (shape_of(node) or [])[axis] // what.grain
                    bounds = [what.grain * number // count * rows for number in range(count + 1)]
                    pieces = [_piece(node, axis, what, values, range(*pair)) for pair in pairwise(bounds)]
                    torch.testing.assert_close(torch.cat(pieces, axis), _first(values[node]), atol=1e-5, rtol=1e-5)
                    seen += 1
    assert seen


def _piece(node: Any, axis: int, what: Any, values: dict[Any, Any], tile: range) -> Any:
    """One tile of an op's output, computed from tiles of its inputs."""
    from etdev.lowering.axes import VIEWS, piece_arguments
    from etdev.lowering.graph import edge
    from etdev.lowering.occupancy import kind_of

    def part(source: Any) -> Any:
        value, along = values[source], what.axes[source]
        if along is None:
            return value
        wanted = what.source_range(source, tile)
        found = value.narrow(along, wanted.start, len(wanted)).contiguous()
        if what.halo is None or kind_of(node) == "constant_pad_nd":
            return found
        amounts = [0, 0] * (value.dim() - 1 - along) + list(what.halo.missing(tile, value.shape[along]))
        return F.pad(found, amounts, value=what.halo.fill)

    given = piece_arguments(node, axis, what.halo, tile, torch.fx.node.map_arg(node.args, part))
    target = edge("view_copy.default") if kind_of(node) in VIEWS else node.target
    return _first(target(*given, **torch.fx.node.map_arg(node.kwargs, part)))


NAMES = ("rows of a stem", "rows with a skip", "halves of channels", "much padding", "a signal", "channels")
CONVOLUTIONS = {name: CASES[name] for name in NAMES}


@pytest.fixture(scope="module")
def convolutions() -> dict[str, tuple[Any, list[Any]]]:
    """Programs with convolutions, and their outputs."""
    programs = {
        name: _lowered(case, pieces=False)[0].exported_program("forward") for name, case in CONVOLUTIONS.items()
    }
    return {name: (program, _results(program, CONVOLUTIONS[name])) for name, program in programs.items()}


def _results(program: Any, case: Case) -> list[Any]:
    values = _values(program, case)
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    return [values[node] for node in output.all_input_nodes]


@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_overlapping_tiles_of_any_part_compute_the_same(
    convolutions: dict[str, tuple[Any, list[Any]]], data: st.DataObject
) -> None:
    """The ops of any part of a graph, along any axis, in any number of tiles."""
    from etdev.lowering.axes import is_whole, shape_of
    from etdev.lowering.regions import grow_region, part_of
    from etdev.lowering.tiles import rewrite_region

    name = data.draw(st.sampled_from(list(convolutions)))
    program, expected = convolutions[name]
    editor = Editor(program, program.graph_module, FormSettings(frozenset(["tiling"]))).copy()
    occupancy = editor.occupancy()
    ops = [node for node in occupancy.nodes if node.op == "call_function" and node.target is not operator.getitem]
    seed = data.draw(st.sampled_from(ops))
    whole = grow_region(occupancy, seed, data.draw(st.integers(0, len(shape_of(seed) or [0]) - 1)))
    assume(whole is not None)
    order = list(whole.axes)
    at = order.index(seed)
    first, last = data.draw(st.integers(0, at)), data.draw(st.integers(at, len(order) - 1))
    part = part_of(whole, order[first : last + 1], seed)
    assume(part is not None and all(map(is_whole, part.outputs)))
    pieces = data.draw(st.integers(2, min(part.most_tiles, 12)))
    possible = all(part.tile(number, pieces) is not None for number in range(pieces))
    assert part.is_possible(pieces) == possible
    assume(possible)
    inside = {occupancy.at[node] for node in part.axes}
    others = set(range(min(inside), max(inside))) - inside
    assume(not any(inside.intersection(occupancy.ops[index].sources) for index in others))

    rewrite_region(editor, part, pieces)

    values = _values(program, CONVOLUTIONS[name], editor.graph)
    for node, computed in values.items():
        fake, real = _first(node.meta["val"]), _first(computed)
        assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride()), node
    (output,) = (node for node in editor.graph.nodes if node.op == "output")
    for node, reference in zip(output.all_input_nodes, expected, strict=True):
        found = values[node]
        torch.testing.assert_close(found, reference, atol=1e-5 * float(reference.abs().max()), rtol=0)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (tuple, list)) else value


def _values(program: Any, case: Case, graph: Any = None) -> dict[Any, Any]:
    """What each node of a graph is for the case's input. The default is the program's graph."""
    values: dict[Any, Any] = {}
    for node in (graph or program.graph).nodes:
        if node.op == "placeholder":
            signature = program.graph_signature
            tables = (
                signature.inputs_to_parameters,
                signature.inputs_to_buffers,
                signature.inputs_to_lifted_tensor_constants,
            )
            names = [table[node.name] for table in tables if node.name in table]
            values[node] = {**program.constants, **program.state_dict}[names[0]] if names else case.x
        elif node.op == "call_function":
            values[node] = node.target(
                *torch.fx.node.map_arg(node.args, values.__getitem__),
                **torch.fx.node.map_arg(node.kwargs, values.__getitem__),
            )
    return values
