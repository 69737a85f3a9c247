"""Stage *export*: what it hands on, and what ``torch.export`` refuses in the config's own terms (E2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.errors import ExportError, MismatchError
from etdev.pipeline.project import Project
from etdev.pipeline.project.source_lines import SourceLines, model_frames
from support.stages import Failure, check_failure, export

torch = pytest.importorskip("torch", reason="needs the extra `build`")

X = '{ name = "x", dtype = "float32", shape = ["n", 4] }'
Y = '{ name = "y", dtype = "float32", shape = ["m", 4] }'
CONFIG = """
version = 1
[model]
entry = "model:Net"
[methods.forward]
dims.n = {{ max = {most} }}
{more}inputs = [{inputs}]
[targets.cpu]
"""
MODEL = """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, *more):
        {body}
"""
METHOD = "etdev.toml:4:1 (methods.forward)"
DIM = "etdev.toml:5:10 (methods.forward.dims.n)"
DECLARED = "the config declares x: float32 [n, 4]"
AT = "model.py:11, in forward"
BRANCH = "use torch.where or torch.cond instead of `if`; bound a size with torch._check(n <= 128)"
NUMBER = "keep the value a tensor; a size may be `n = t.long().item()`, bounded with torch._check(n <= 128)"


def _config(inputs: str = X, most: int = 8, more: str = "") -> str:
    return CONFIG.format(inputs=inputs, most=most, more=more)


# Dimensions -----------------------------------------------------------------------------------------------------------

DIMENSIONS = {
    "one size": (
        "return x.view(8, 4) + torch.ones(8, 4)",
        "the model works only with 'n' = 8, not with all of 1..8",
        "write 8 instead of 'n' in the shapes, or change the model so that the size is not fixed",
    ),
    "one size, by a list": (
        "return x * len(x.tolist())",
        "the model works only with 'n' = 8, not with all of 1..8",
        "write 8 instead of 'n' in the shapes, or change the model so that the size is not fixed",
    ),
    "a range": (
        "return x if x.shape[0] <= 4 else x + 1",
        "the model does not work the same way for all sizes 1..8 of 'n': it depends on 5 <= n and n <= 8",
        "declare the range min 5, max 8, which works; or write the branch with torch.cond",
    ),
    "all but one": (
        "return x if x.shape[0] == 4 else x + 1",
        "the model does not work the same way for all sizes 1..8 of 'n': it depends on n != 4",
        "fix the size, or write the branch with torch.cond",
    ),
    "a view of merged axes": (
        (
            "n = x.shape[0]; q = x.view(n, 4, 1).transpose(0, 1).reshape(2, 2 * n, 1); "
            "return (q @ torch.ones(2, 1, 16)).view(4, n, 16)"
        ),
        "the model does not work the same way for all sizes 1..8 of 'n': it depends on (n*min(16, 32*n)) == (16*n)",
        "fix the size, or use flatten and unflatten instead of view and reshape to merge and split axes",
    ),
    "a multiple": (
        "return x.view(-1, 16)",
        "the model does not work the same way for all sizes 1..8 of 'n': it depends on ((4*n) % 16) == 0",
        "only multiples of 4 work: set `multiple_of` of 'n' to 4, or fix the size",
    ),
}


@pytest.mark.parametrize(("body", "message", "hint"), DIMENSIONS.values(), ids=DIMENSIONS)
@pytest.mark.sampled(2)
def test_a_model_that_does_not_take_the_whole_range(
    project: Callable[..., Project], body: str, message: str, hint: str
) -> None:
    made = project(_config(), model=MODEL.format(body=body))
    check_failure(lambda: export(made), Failure(ExportError, DIM, message, hint))


def test_multiples(project: Callable[..., Project]) -> None:
    """The program takes only these sizes, and its largest one is that of the config."""
    config = _config().replace("max = 8", "max = 24, multiple_of = 8")
    program = export(project(config, model=MODEL.format(body="return x.view(-1, 32)"))).methods["forward"].program
    assert program.module()(torch.ones(16, 4)).shape == (2, 32)
    value = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"][-1]
    number, symbol = value.shape[0].node.expr.as_coeff_Mul()
    assert (number, int(program.range_constraints[symbol].upper)) == (8, 3)


IN_STEPS = "the model does not work the same way for all sizes 2..24 in steps of 2 of 'n'"
NARROW = "narrow the range, fix the size, or write a branch with torch.cond"
MULTIPLES = {
    "larger multiples": (
        "return x.view(-1, 32)",
        f"{IN_STEPS}: with n = 2, it does not satisfy ((4*n) % 32) == 0",
        "only multiples of 8 work: set `multiple_of` of 'n' to 8, or fix the size",
    ),
    "a branch": (
        "return x if x.shape[0] <= 8 else x + 1",
        f"{IN_STEPS}: with n = 2, it does not satisfy n > 8",
        "set `min` of 'n' to 10, fix the size, or write a branch with torch.cond",
    ),
    "a branch on the smallest size": (
        "return x if x.shape[0] <= 2 else x + 1",
        f"{IN_STEPS}: with n = 2, it does not satisfy n > 2",
        "set `min` of 'n' to 4, fix the size, or write a branch with torch.cond",
    ),
    "a constant": (
        "return x + (2 if x.shape[0] <= 8 else 3)",
        f"{IN_STEPS}: with n = 2, it does not satisfy n > 8",
        "set `min` of 'n' to 10, fix the size, or write a branch with torch.cond",
    ),
    "all but one": (
        "return x if x.shape[0] != 10 else x + 1",
        f"{IN_STEPS}: with n = 10, it does not satisfy n != 10",
        NARROW,
    ),
    "a part": (
        "return x[: int(x.shape[0] * 0.3)] + 1",
        f"{IN_STEPS}: with n = 2, it does not satisfy math.trunc(0.3*torch.sym_float(n)) == 7",
        "set `min` of 'n' to 24, fix the size, or write a branch with torch.cond",
    ),
    "one size": (
        "return x * len(x.tolist())",
        "the model works only with 'n' = 24, not with all of 2..24 in steps of 2",
        "write 24 instead of 'n' in the shapes, or change the model so that the size is not fixed",
    ),
}


@pytest.mark.parametrize(("body", "message", "hint"), MULTIPLES.values(), ids=MULTIPLES)
def test_a_model_that_does_not_take_all_multiples(
    project: Callable[..., Project], body: str, message: str, hint: str
) -> None:
    """``torch.export`` accepts all of these but the last one, with the code of one size for all sizes."""
    made = project(_config().replace("max = 8", "max = 24, multiple_of = 2"), model=MODEL.format(body=body))
    check_failure(lambda: export(made), Failure(ExportError, DIM, message, hint))


PAIRS = {
    "a product": ("return x + (1 if x.shape[0] * more[0].shape[0] > 20 else 2)", "n = 2, m = 1", "m*n > 20"),
    "more than the other": ("return x + (1 if x.shape[0] > more[0].shape[0] else 2)", "n = 2, m = 8", "n > m"),
}


@pytest.mark.parametrize(("body", "sizes", "condition"), PAIRS.values(), ids=PAIRS)
def test_multiples_and_another_dimension(
    project: Callable[..., Project], body: str, sizes: str, condition: str
) -> None:
    """Not with the largest size of the other one alone."""
    config = _config(f"{X}, {Y}", more="dims.m = { max = 8 }\n").replace(
        "n = { max = 8", "n = { max = 24, multiple_of = 2"
    )
    with pytest.raises(ExportError) as caught:
        export(project(config, model=MODEL.format(body=body)))
    assert f"with {sizes}, it does not satisfy " in caught.value.message, caught.value.message
    assert caught.value.message.endswith(condition), caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        "return x.view(1, 4, -1, 4).transpose(1, 2) + 1",
        "return x.reshape(-1, 8).sum(0)",
        "return torch.nn.functional.avg_pool1d(x.T, 2)",
    ],
    ids=["a view", "a reduction", "pooling"],
)
def test_conditions_that_change_nothing(project: Callable[..., Project], body: str) -> None:
    """A condition on the contiguity of a view refused a model that runs."""
    config = _config().replace("max = 8", "max = 32, multiple_of = 4")
    program = export(project(config, model=MODEL.format(body=body))).methods["forward"].program
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    assert str(placeholders[-1].meta["val"].shape[0]).startswith("4*")


def test_a_relation_of_multiples(project: Callable[..., Project]) -> None:
    config = _config(f"{X}, {Y}", more="dims.m = { max = 12 }\n").replace(
        "n = { max = 8", "n = { max = 24, multiple_of = 2"
    )
    with pytest.raises(ExportError) as caught:
        export(project(config, model=MODEL.format(body="return x + more[0].repeat(2, 1)")))
    assert "factor_of" not in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("most", "place", "names"),
    [(8, "", ("m", "n")), (16, f" ({AT})", ("n", "m"))],
    ids=["equal maxima", "different maxima"],
)
def test_dimensions_that_have_to_be_equal(
    project: Callable[..., Project], most: int, place: str, names: tuple[str, str]
) -> None:
    first, second = names
    made = project(
        _config(f"{X}, {Y}", more=f"dims.m = {{ max = {most} }}\n"), model=MODEL.format(body="return x + more[0]")
    )
    line = {"n": 5, "m": 6}[first]
    check_failure(
        lambda: export(made),
        Failure(
            ExportError,
            f"etdev.toml:{line}:10 (methods.forward.dims.{first})",
            f"the model needs {first!r} and {second!r} to be equal{place}",
            f"write {first!r} in the shapes instead of {second!r}",
        ),
    )


def test_dimensions_of_equal_maxima_stay_apart(project: Callable[..., Project]) -> None:
    made = project(
        _config(f"{X}, {Y}", more="dims.m = { max = 8 }\n"), model=MODEL.format(body="return x + 1, more[0] + 1")
    )
    module = export(made).methods["forward"].program.module()
    assert [tuple(out.shape) for out in module(torch.ones(2, 4), torch.ones(5, 4))] == [(2, 4), (5, 4)]


@pytest.mark.parametrize("least", [1, 2, 5])
def test_all_sizes_of_the_range_are_exported(project: Callable[..., Project], least: int) -> None:
    made = project(
        _config().replace("{ max", f"{{ min = {least}, max"), model=MODEL.format(body="return self.linear(x).sum(0)")
    )
    exported = export(made)
    module = exported.methods["forward"].program.module()
    for size in range(least, 9):
        x = torch.randn(size, 4)
        torch.testing.assert_close(module(x), exported.eager["forward"](x))


def test_a_dimension_of_one_size_is_static(project: Callable[..., Project]) -> None:
    made = project(_config(most=4).replace("{ max", "{ min = 4, max"), model=MODEL.format(body="return x.view(2, 8)"))
    assert not export(made).methods["forward"].program.range_constraints


# The model itself -----------------------------------------------------------------------------------------------------

MODELS = {
    "a branch on a value": (
        "return x if x.sum() > 0 else -x",
        f"method 'forward' branches on a tensor's value at {AT}, but the value is known only at run time",
        BRANCH,
    ),
    "a branch on an item": (
        "return x if x[0, 0].item() > 0 else -x",
        f"method 'forward' branches on a tensor's value at {AT}, but the value is known only at run time",
        BRANCH,
    ),
    "a number of a value": (
        "return x * float(x[0, 0])",
        f"method 'forward' turns a tensor's value into a number at {AT}, but the value is known only at run time",
        NUMBER,
    ),
    "a value as a size": (
        "return torch.zeros(int(x[0, 0].item()))",
        f"method 'forward' turns a tensor's value into a number at {AT}, but the value is known only at run time",
        NUMBER,
    ),
    "a value as an index of a list": (
        "return x * [1, 2, 3][x[0, 0].long()]",
        f"method 'forward' turns a tensor's value into a number at {AT}, but the value is known only at run time",
        NUMBER,
    ),
    "shapes that do not fit": (
        "return self.linear(x[:, :3])",
        (
            "method 'forward' raised RuntimeError while it was traced: a and b must have same reduction dim, "
            f"but got [n, 3] X [4, 4]. ({AT})"
        ),
        DECLARED,
    ),
    "the model raises": (
        "raise ValueError('width must be 3\\nand more')",
        f"method 'forward' raised ValueError while it was traced: width must be 3 ({AT})",
        DECLARED,
    ),
    "an object of its own": (
        "return Net()",
        "method 'forward' returns an object of the type Net",
        "return tensors, or tuples, lists and dicts of tensors",
    ),
    "numpy": (
        "return torch.from_numpy(x.numpy())",
        (
            "method 'forward' raised RuntimeError while it was traced: .numpy() is not supported for tensor "
            f"subclasses. ({AT})"
        ),
        DECLARED,
    ),
}


@pytest.mark.parametrize(("body", "message", "hint"), MODELS.values(), ids=MODELS)
def test_a_model_that_cannot_be_traced(
    project: Callable[..., Project], capfd: pytest.CaptureFixture[str], body: str, message: str, hint: str
) -> None:
    """Judging point 7: data-dependent branch. What torch prints on the way is not shown."""
    made = project(_config(), model=MODEL.format(body=body))
    error = check_failure(lambda: export(made), Failure(ExportError, METHOD, message, hint))
    assert "\n" not in error.message
    shown = capfd.readouterr().err
    assert "def forward" not in shown
    assert "Traceback" not in shown


def test_a_buffer_in_the_place_of_another(project: Callable[..., Project]) -> None:
    buffers = "self.register_buffer('one', torch.ones(4)); self.register_buffer('other', torch.zeros(4))"
    model = MODEL.replace("self.linear = nn.Linear(4, 4)", buffers)
    made = project(_config(), model=model.format(body="self.one = self.other; return x + self.one"))
    check_failure(
        lambda: export(made),
        Failure(
            ExportError,
            METHOD,
            "method 'forward' assigns an input or another buffer to a buffer, which torch.export cannot trace",
            "copy the value into the buffer: `self.NAME.copy_(value)` instead of `self.NAME = value`",
        ),
    )


def test_a_constant_of_another_size(project: Callable[..., Project]) -> None:
    made = project(_config(), model=MODEL.format(body="return x + torch.ones(5, 4)"))
    message = (
        "method 'forward' does not accept n = 8 (x: float32 [n, 4]): RuntimeError: "
        f"The size of tensor a (n) must match the size of tensor b (5) at non-singleton dimension 0) ({AT})"
    )
    hint = "narrow the range, or write 1 instead of 'n' in the shapes: the method runs with n = 1"
    check_failure(lambda: export(made), Failure(ExportError, DIM, message, hint))


# Methods --------------------------------------------------------------------------------------------------------------

TWO = """
version = 1
[model]
entry = "model:Net"
[methods.encode]
inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }]
[methods.forward]
inputs = [{ name = "x", dtype = "float32", shape = [2, 4] }, { name = "y", dtype = "float32", shape = [2, 4] }]
[methods.nothing]
inputs = []
[targets.cpu]
"""
NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(1))
            self.register_buffer("steps", torch.zeros(1))

        def forward(self, x, y):
            self.count = self.count + 1
            return self.encode(x) + y

        def encode(self, x):
            self.steps.add_(1)
            return self.linear(x) + self.steps

        def nothing(self):
            return self.linear.bias * 2
"""


def test_an_earlier_export_of_a_loop_changes_nothing(project: Callable[..., Project]) -> None:
    """Torch kept the loop of the first model, and added a condition about its sizes to the second one."""
    scan = "from torch._higher_order_ops.scan import scan; rows = {}; "
    body = scan + "return scan(lambda c, row: (c + row, c * row), rows[0] * 0, rows)[1]"
    export(project(_config(most=4), model=MODEL.format(body=body.format("torch.stack([x, x])"))))
    found = export(project(_config(X.replace("4]", "2, 1]"), most=4), model=MODEL.format(body=body.format("x"))))
    assert len(found.methods) == 1


def test_methods_are_exported_side_by_side(project: Callable[..., Project]) -> None:
    exported = export(project(TWO, model=NET))
    assert list(exported.methods) == ["encode", "forward", "nothing"]
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    net = exported.eager["forward"]
    layer = net.linear  # type: ignore[attr-defined]
    expected = {"encode": layer(x) + 1, "forward": layer(x) + 1 + y, "nothing": layer.bias * 2}
    for name, inputs in {"encode": (x,), "forward": (x, y), "nothing": ()}.items():
        program = exported.methods[name].program
        assert set(program.state_dict) <= {"linear.weight", "linear.bias", "count", "steps"}
        torch.testing.assert_close(program.module()(*inputs), expected[name])
        # The exported program works on the module's own buffers.
        net.steps.zero_()  # type: ignore[attr-defined]


def test_ops_have_the_lines_of_methods_with_any_name_and_of_helpers(project: Callable[..., Project]) -> None:
    made = project(TWO, model=NET)
    exported = export(made)
    lines = SourceLines(made.loaded.root)
    found = {
        name: [
            (source.line, source.function)
            for node in method.program.graph.nodes
            if node.op == "call_function" and (source := lines.of([node])) is not None
        ]
        for name, method in exported.methods.items()
    }
    step, shifted = [(16, "encode")], [(17, "encode")] * 2
    assert found["encode"] == [*step, *shifted]
    assert found["forward"] == [(12, "forward"), *step, *shifted, (13, "forward"), (12, "forward")]
    assert found["nothing"] == [(20, "nothing")]


def test_the_frames_that_torch_keeps_are_chosen_only_inside_the_block() -> None:
    from torch.fx.proxy import TracerBase

    def chosen() -> object:
        return vars(TracerBase)["_filter_traceback_frames"]

    def fail_to_export() -> None:
        with model_frames(chosen):
            outer = chosen()
            with model_frames(chosen):
                assert chosen() not in (before, outer)
            assert chosen() is outer
            raise ValueError("not exportable")

    before = chosen()
    with pytest.raises(ValueError, match="not exportable"):
        fail_to_export()
    assert chosen() is before


def test_exporting_leaves_the_module_as_it_was(project: Callable[..., Project]) -> None:
    exported = export(project(TWO, model=NET))
    module = exported.eager["forward"]
    assert "forward" not in vars(module)
    assert type(module.count) is torch.Tensor  # type: ignore[attr-defined]
    assert (module.count.item(), module.steps.item()) == (0, 0)  # type: ignore[attr-defined]


def test_a_method_that_the_model_does_not_have(project: Callable[..., Project]) -> None:
    made = project(TWO.replace("methods.encode", "methods.endcode"), model=NET)
    hint = "use a method that the model's class defines: forward, encode, nothing"
    message = "the model Net has no method 'endcode'"
    check_failure(lambda: export(made), Failure(MismatchError, "etdev.toml:4:1 (methods.endcode)", message, hint))


def test_a_model_without_forward(project: Callable[..., Project]) -> None:
    made = project(TWO, model=NET.replace("def forward", "def froward"))
    hint = "use a method that the model's class defines: froward, encode, nothing"
    message = "the model Net has no method 'forward'"
    check_failure(lambda: export(made), Failure(MismatchError, "etdev.toml:6:1 (methods.forward)", message, hint))


@pytest.mark.parametrize(
    ("signature", "message", "takes"),
    [
        ("self, x, y, z", "missing a required argument: 'z'", "(x, y, z)"),
        ("self, x, scale=1", None, ""),
        ("self, x", "too many positional arguments", "(x)"),
        ("self, *, x, y", "too many positional arguments", "(*, x, y)"),
        ("self, *all", None, ""),
        ("self, x, *more", None, ""),
    ],
)
def test_the_number_of_inputs(project: Callable[..., Project], signature: str, message: str | None, takes: str) -> None:
    static = Y.replace('"m"', "2")
    body = f"import torch\nclass Net(torch.nn.Module):\n    def forward({signature}):\n        return torch.ones(1)\n"
    made = project(_config(f"{X}, {static}"), model=body)
    if message is None:
        assert len(export(made).methods["forward"].example) == 2
        return
    where = "etdev.toml:6:10 (methods.forward.inputs)"
    text = f"method 'forward' cannot be called with the 2 declared inputs: {message}"
    check_failure(
        lambda: export(made), Failure(MismatchError, where, text, f"declare inputs that match the parameters {takes}")
    )
