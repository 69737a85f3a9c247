"""Tensors in channels-last order: kernels that do not take them get others (E2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from etdev.pipeline.project.places import object_place
from etdev.pipeline.project.quiet import quiet_libraries
from etdev.pipeline.stages.emit import emit_object
from etdev.runtime.stock import ProgramFailureError
from pipeline.stages.emit.emitting import PX, Case, Emitted, X, emit, prepare

MIXED = Case(
    """
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("bias", torch.arange(1.0, 5.0).view(1, 4, 1, 1))
        self.register_buffer("state", torch.zeros(1, 4, 4, 6))
        last = torch.ones(1, 4, 4, 6).contiguous(memory_format=torch.channels_last)
        self.register_buffer("last", last)
        self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        y = (x + 1).to(memory_format=torch.channels_last)
        self.state.copy_(y)
        self.last.add_(x)
        one, other = y.split([1, 3], 1)
        single = [y / torch.tensor(2.0) + self.bias, y + x, y.relu() * y, self.last * 1, self.state * 1]
        shaped = [y[:, 1], y.flatten(1), y.permute(0, 2, 3, 1), y.flip(1), nn.functional.pad(y, (1, 1)), one, other]
        several = [torch.cat([y, y], 1), torch.where(x > 0, y, x), y.gather(1, (x > 9).long())]
        layers = [self.conv(y), self.norm(y), nn.functional.max_pool2d(y, 2), nn.functional.layer_norm(y, (6,))]
        shuffled = self.conv(nn.functional.pixel_shuffle(torch.cat([y] * 4, 1), 2)) / torch.tensor(3.0) + self.bias
        branch = torch.cond(x.sum() > 0, lambda y: y * self.bias, lambda y: y + self.bias, (y,))
        return *single, *shaped, *several, *layers, shuffled, branch
    """,
    {"forward": {"x": "float32 [1, 4, 4, 6]"}},
)


@pytest.mark.nightly
def test_all_ops_take_tensors_in_channels_last_order(tmp_path: Path) -> None:
    made = emit(tmp_path, MIXED)

    made.check_addresses()
    made.check_answers()


KEPT = Case(
    """
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)
    def forward(self, x):
        y = self.conv(x.to(memory_format=torch.channels_last)).relu()
        return nn.functional.max_pool2d(y + y, 2)
    """,
    {"forward": {"x": "float32 [1, 4, 6, 6]"}},
)


def test_ops_that_take_them_keep_the_order(tmp_path: Path) -> None:
    made = emit(tmp_path, KEPT)

    names = [made.plan().operators[call.op_index].name for call in made.plan().chains[0].instructions]  # type: ignore[union-attr]
    assert sum("dim_order" in name for name in names) == 1
    made.check_answers()


def _layers(init: str, forward: str, shape: str = "[1, 3, 6, 5]") -> Case:
    """Return a model with layers in channels-last order. In ``forward``, ``y`` is the input in that order."""
    body = f"""
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        {init}
        self.to(memory_format=torch.channels_last)
    def forward(self, x):
        y = x.to(memory_format=torch.channels_last)
        return {forward}
    """
    return Case(body, {"forward": {"x": f"float32 {shape}"}})


def _constant(tensor: str, forward: str) -> Case:
    """Return a model with a parameter ``a`` that is not contiguous."""
    body = f"""
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Parameter({tensor})
    def forward(self, x): return {forward}
    """
    return Case(body, {"forward": X})


ODD = {
    "one channel": _layers("pass", "y * 2, y.clone(), torch.zeros_like(y)", "[2, 1, 4, 3]"),
    "one channel, one column": _layers("pass", "y * 2", "[2, 1, 4, 1]"),
    "one pixel": _layers("pass", "y * 2", "[2, 3, 1, 1]"),
    "a convolution of one channel": _layers("self.a = nn.Conv2d(1, 4, 3)", "self.a(y).relu()", "[1, 1, 6, 5]"),
    "a convolution to one channel": _layers(
        "self.a, self.b, self.c = nn.Conv2d(3, 1, 3, padding=1), nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(3, 4, 1)",
        "self.b(self.a(y).sigmoid()) + self.c(y)",
    ),
    "a depthwise convolution": _layers("self.a = nn.Conv2d(3, 3, 3, groups=3)", "self.a(y) * 2"),
    "a convolution to one pixel": _layers("self.a = nn.Conv2d(3, 4, (6, 5))", "self.a(y).relu() + 1"),
    "a convolution of an input in contiguous order": _layers("self.a = nn.Conv2d(3, 4, 3)", "self.a(x).relu()"),
    "squeeze and excite": _layers(
        "self.a, self.b = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)",
        "(lambda z: z * self.b(nn.functional.adaptive_avg_pool2d(z, 1)).sigmoid())(self.a(y))",
    ),
    "pools and sums": _layers(
        "pass",
        "nn.functional.avg_pool2d(y, 3, 1, 1) + y, y / y.sum((1, 2), keepdim=True), y.mean(1) + y.expand(2, 3, 6, 5)",
    ),
    "broadcast in channels-last order": _layers(
        'self.register_buffer("a", torch.randn(1, 3, 1, 1).to(memory_format=torch.channels_last))',
        "y * self.a, y + self.a, torch.maximum(self.a, y)",
    ),
    "a transposed constant": _constant("torch.randn(8, 4).t()", "x + self.a, self.a.exp(), self.a * 2, self.a.sum(0)"),
    "a copied constant": _constant("torch.randn(8, 4).t()", "self.a.clone() + x, self.a.to(torch.float64)"),
    "an expanded constant": _constant("torch.randn(1, 8).expand(4, 8)", "self.a + x, self.a * 2"),
    "a permuted constant": _constant("torch.randn(2, 4, 5, 3).permute(0, 2, 3, 1)", "self.a * 2, self.a.mean(1), x"),
    "a transposed constant in branches": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.arange(32.0).view(8, 4).t())
        def forward(self, p, x): return torch.cond(p, lambda x, a: x + a * 2, lambda x, a: x - a.sin(), (x, self.a))
        """,
        {"forward": PX},
    ),
    "transposed state": Case(
        """
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.arange(32.0).view(8, 4).t())
            self.register_buffer("b", torch.zeros(2, 1, 4, 4).to(memory_format=torch.channels_last))
            self.register_buffer("c", torch.zeros(8, 4).t())
            self.register_buffer("d", torch.ones(8, 4).t())
        def forward(self, x):
            old = self.c.clone()
            self.c.copy_(self.d)
            self.d.copy_(old)
            self.a.add_(x)
            self.b.copy_(x.view(2, 1, 4, 4).to(memory_format=torch.channels_last))
            return self.a * 2, self.b + 1, self.c + 1, old
        """,
        {"forward": X},
    ),
}
"""Tensors in orders that are neither contiguous nor channels-last, or that their strides do not express."""


@pytest.mark.integration
@pytest.mark.parametrize("name", ODD)
@pytest.mark.sampled(2)
def test_tensors_in_odd_orders_are_contiguous(tmp_path: Path, name: str) -> None:
    """Plain ExecuTorch 1.5.1 fails with error 0x12 in most of these cases, and computes wrong values in others."""
    made = emit(tmp_path, ODD[name])

    orders = {tuple(tensor.dim_order) for _, tensor in made.plan().tensors()}
    assert orders <= {*(tuple(range(rank)) for rank in range(6)), (0, 2, 3, 1)}
    made.check_addresses()
    made.check_answers()


def test_without_the_copies_the_runtime_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with plain ExecuTorch: a division of a tensor in channels-last order by a number (Swin2SR)."""
    body = "def forward(self, x): return x.to(memory_format=torch.channels_last) / torch.tensor(2.0)"
    project, exported, lowered = prepare(tmp_path, Case(body, MIXED.methods))
    monkeypatch.setattr("etdev.pipeline.stages.emit.emission.set_plain_orders", lambda program: None)
    with quiet_libraries():
        objects = emit_object(project, lowered, exported, "cpu", object_place(project, "cpu"))

    with pytest.raises(ProgramFailureError, match="0x12"):
        Emitted(project, exported, lowered, objects).check_answers()
