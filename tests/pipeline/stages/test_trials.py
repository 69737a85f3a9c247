"""Wrong shapes and dtypes in a config: the input, what the model said, and a declaration that it runs with (E2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etdev.errors import EtdevError, ExportError
from etdev.pipeline.dry_run import dry_run
from etdev.pipeline.project import Project
from etdev.pipeline.project.options import BuildOptions
from support.stages import export

torch = pytest.importorskip("torch", reason="needs the extra `build`")

CONFIG = """
version = 1
[model]
entry = "model:{net}"
[methods.forward]
dims.n = {{ max = 8 }}
inputs = [{{ name = "x", dtype = "{dtype}", shape = {shape} }}]
[targets.cpu]
"""
MODEL = """
    import torch
    from torch import nn

    class Dense(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)

    class Words(nn.Embedding):
        def __init__(self):
            super().__init__(10, 4)

    class Picture(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolve = nn.Conv2d(3, 4, 3)
            self.norm = nn.BatchNorm2d(4)
            self.classify = nn.Linear(4 * 6 * 6, 2)

        def forward(self, x):
            return self.classify(self.norm(self.convolve(x)).flatten(1))

    class Grey(Picture):
        def __init__(self):
            super().__init__()
            self.convolve = nn.Conv2d(1, 4, 3)

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x):
            self.calls = self.calls + 1
            return x.reshape(-1, 3, 5) * self.calls

    class Four(nn.Module):
        def forward(self, x):
            return x.view(4, 30).relu()

    class Stubborn(nn.Module):
        def forward(self, x):
            raise ValueError("no")
"""
SHAPE, DTYPE = "methods.forward.inputs[0].shape", "methods.forward.inputs[0].dtype"

REMEDIES = {
    "a wrong width": ("Dense", "float32", "[2, 5]", SHAPE, "use this size: set `shape` to [2, 4]"),
    "a wrong width beside a dynamic axis": (
        "Dense",
        "float32",
        '["n", 5]',
        SHAPE,
        'use this size: set `shape` to ["n", 4]',
    ),
    "a wrong image size": (
        "Picture",
        "float32",
        '["n", 3, 9, 8]',
        SHAPE,
        'use this size: set `shape` to ["n", 3, 8, 8]',
    ),
    "a wrong number of channels": (
        "Picture",
        "float32",
        "[2, 1, 8, 8]",
        SHAPE,
        "use this size: set `shape` to [2, 3, 8, 8]",
    ),
    "no batch axis": ("Picture", "float32", "[3, 8, 8]", SHAPE, "add a batch axis: set `shape` to [1, 3, 8, 8]"),
    "no axis for a channel": (
        "Grey",
        "float32",
        '["n", 8, 8]',
        SHAPE,
        'add an axis of one channel: set `shape` to ["n", 1, 8, 8]',
    ),
    "state that is assigned": ("Counter", "float32", "[2, 5]", SHAPE, "use this size: set `shape` to [3, 5]"),
    "channels last": (
        "Picture",
        "float32",
        '["n", 8, 8, 3]',
        SHAPE,
        'the method takes channels first: set `shape` to ["n", 3, 8, 8]',
    ),
    "numbers for words": ("Words", "float32", '["n"]', DTYPE, 'set `dtype` to "int64", with which the method runs'),
    "integers for an image": (
        "Picture",
        "uint8",
        '["n", 3, 8, 8]',
        DTYPE,
        'set `dtype` to "float32", with which the method runs',
    ),
    "two mistakes": ("Picture", "float32", "[8, 8]", "methods.forward", None),
    "whatever it is given": ("Stubborn", "float32", "[2, 4]", "methods.forward", None),
}


def _made(project: Callable[..., Project], net: str, dtype: str, shape: str) -> Project:
    config = CONFIG.format(net=net, dtype=dtype, shape=shape)
    return project(config if '"n"' in shape else config.replace("dims.n = { max = 8 }\n", ""), model=MODEL)


def _error(run: Callable[[], object]) -> EtdevError:
    with pytest.raises(ExportError) as caught:
        run()
    return caught.value


@pytest.mark.parametrize(("net", "dtype", "shape", "key", "hint"), REMEDIES.values(), ids=REMEDIES)
@pytest.mark.sampled(2)
def test_a_declaration_that_the_model_runs_with_is_found(
    project: Callable[..., Project], net: str, dtype: str, shape: str, key: str, hint: str | None
) -> None:
    """The dry run and the export name the same place and the same remedy."""
    declared = f"{dtype} {shape}".replace('"', "")
    for stage in (export, lambda made: dry_run(made, BuildOptions())):
        error = _error(lambda stage=stage: stage(_made(project, net, dtype, shape)))
        if hint is None:
            assert error.message.startswith("method 'forward' raised ")
            assert error.hint == f"the config declares x: {declared}"
            continue
        assert str(error.where).endswith(f"({key})")
        assert error.message.startswith(f"method 'forward' does not accept input 'x' as {declared}: ")
        assert error.hint == hint


def test_a_remedy_is_one(project: Callable[..., Project]) -> None:
    """What the hint says to write passes."""
    for net, dtype, shape, key, hint in REMEDIES.values():
        if hint is not None:
            value = hint.partition("` to ")[2].partition(", with which")[0]
            written = (value.strip('"'), shape) if key == DTYPE else (dtype, value)
            assert dry_run(_made(project, net, *written), BuildOptions()).methods


def test_a_size_that_the_model_fixes_inside_the_range(project: Callable[..., Project]) -> None:
    """The remedy repeated the declaration: only the ends of the range and sizes half way were tried."""
    config = CONFIG.format(net="Four", dtype="float32", shape='["n", 30]').replace("max = 8", "max = 32")
    for stage in (export, lambda made: dry_run(made, BuildOptions())):
        error = _error(lambda stage=stage: stage(project(config, model=MODEL)))
        assert error.hint == "narrow the range, or write 4 instead of 'n' in the shapes: the method runs with n = 4"
        assert str(error.where).endswith("(methods.forward.dims.n)")


LIMITED = """
    import torch
    from torch import nn

    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(128, 4))

        def forward(self, x):
            return x + self.table[: x.shape[{axis}]]
"""


def test_the_largest_size_that_runs(project: Callable[..., Project]) -> None:
    """The remedy was the least size, although others run."""
    config = CONFIG.format(net="Positions", dtype="float32", shape='["n", 4]').replace("max = 8", "max = 512")
    for stage in (export, lambda made: dry_run(made, BuildOptions())):
        error = _error(lambda stage=stage: stage(project(config, model=LIMITED.replace("{axis}", "0"))))
        assert error.message.startswith("method 'forward' does not accept n = 512 (x: float32 [n, 4]): RuntimeError: ")
        assert error.hint == "narrow the range: the largest size that runs is 128"
        assert str(error.where).endswith("(methods.forward.dims.n)")


def test_the_largest_size_of_one_of_two_dimensions(project: Callable[..., Project]) -> None:
    config = CONFIG.replace("dims.n =", "dims.m = {{ max = 16 }}\ndims.n =").replace("max = 8", "min = 2, max = 500")
    config = config.format(net="Positions", dtype="float32", shape='["m", "n", 4]')
    model = LIMITED.replace("{axis}", "1")
    error = _error(lambda: dry_run(project(config, model=model), BuildOptions()))
    assert error.hint == "narrow the range of 'n': the largest size that runs is 128"
    assert str(error.where).endswith("(methods.forward.dims.n)")


def test_the_largest_size_with_the_minimum_of_the_others(project: Callable[..., Project]) -> None:
    """The two dimensions share a limit: with the maximum of the other one, the stated size does not run."""
    model = """
    import torch
    from torch import nn

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(128))

        def forward(self, x):
            return x.flatten() + self.table[: x.numel()]
    """
    config = CONFIG.replace("dims.n =", "dims.m = {{ max = 16 }}\ndims.n =").replace("max = 8", "min = 2, max = 500")
    config = config.format(net="Shared", dtype="float32", shape='["m", "n"]')
    error = _error(lambda: dry_run(project(config, model=model), BuildOptions()))
    assert error.hint == (
        "narrow the range of 'n': the largest size that runs with the minimum of the other sizes is 128"
    )


@pytest.mark.parametrize(("factor", "most"), [(3, 500), (4, 502)])
def test_no_largest_size_if_only_multiples_run(factor: int, most: int, project: Callable[..., Project]) -> None:
    """The bisection ended at a multiple, and the message called it the largest size, although others run."""
    body = f"return x.reshape(-1, {factor}, 4).sum(1)"
    model = f"""
    from torch import nn

    class Groups(nn.Module):
        def forward(self, x):
            {body}
    """
    config = CONFIG.format(net="Groups", dtype="float32", shape='["n", 4]')
    config = config.replace("max = 8", f"min = {factor}, max = {most}")
    error = _error(lambda: dry_run(project(config, model=model), BuildOptions()))
    changed = f" and `max` to {most // factor * factor}"
    assert error.hint == f"only multiples of {factor} run: set `multiple_of` of 'n' to {factor}{changed}"


def test_multiples_of_the_dimensions_that_need_them(project: Callable[..., Project]) -> None:
    """Not of the batch, for which every size runs."""
    model = """
    import torch
    from torch import nn

    class Halves(nn.Module):
        def forward(self, x):
            half = nn.functional.avg_pool2d(x, 2)
            return x + half.repeat_interleave(2, 2).repeat_interleave(2, 3)
    """
    dims = "dims.b = {{ max = 9 }}\ndims.h = {{ min = 2, max = 17 }}\ndims.w = {{ max = 30 }}"
    config = CONFIG.replace("dims.n = {{ max = 8 }}", dims)
    config = config.format(net="Halves", dtype="float32", shape='["b", 1, "h", "w"]')
    error = _error(lambda: dry_run(project(config, model=model), BuildOptions()))
    assert error.hint == (
        "only multiples of 2 run: set `multiple_of` of 'h' to 2 and `max` to 16; "
        "set `multiple_of` of 'w' to 2 and `min` to 2"
    )
    assert str(error.where).endswith("(methods.forward.dims)")


def test_dimensions_that_have_to_be_equal_are_told_by_a_dry_run(project: Callable[..., Project]) -> None:
    config = CONFIG.replace("dims.n", "dims.m = {{ max = 8 }}\ndims.n").format(
        net="Sum", dtype="float32", shape='["n"]'
    )
    config = config.replace("}]\n", '}, { name = "y", dtype = "float32", shape = ["m"] }]\n')
    model = "from torch import nn\nclass Sum(nn.Module):\n    def forward(self, x, y): return x.reshape(y.shape) + y\n"
    error = _error(lambda: dry_run(project(config, model=model), BuildOptions()))
    assert error.hint == "write 'm' in the shapes instead of 'n': the method runs where they are equal"
    assert str(error.where).endswith("(methods.forward.dims)")
