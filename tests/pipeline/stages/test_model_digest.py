"""The digest that tells whether two processes made the same model."""

from __future__ import annotations

from typing import Any

import pytest

from etdev.pipeline.stages import model_digest
from etdev.pipeline.stages.artifacts import ExportedMethod, ExportedModel

torch = pytest.importorskip("torch", reason="needs the extra `build`")


class Shift(torch.nn.Module):
    """Adds a weight and a constant."""

    def __init__(self, weight: Any, constant: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight)
        self.constant = torch.tensor([constant, 0.0])

    def forward(self, x: Any) -> Any:
        return x + self.weight + self.constant


def _digest(*methods: str, module: Shift | None = None, **constants: object) -> str:
    module = module or Shift(torch.tensor([1.0, 2.0]))
    example = (torch.zeros(2),)
    exported = ExportedMethod(torch.export.export(module, example), example)
    return model_digest.digest_of_model(
        ExportedModel(dict.fromkeys(methods, exported), {}, {}, {}, constants=constants)
    )


def test_equal_models_have_equal_digests() -> None:
    assert _digest("forward") == _digest("forward")
    # A view with other strides has the same values in the same order.
    transposed = Shift(torch.tensor([[1.0, 9.0], [2.0, 9.0]]).t()[0])
    assert not transposed.weight.is_contiguous()
    assert _digest("forward", module=transposed) == _digest("forward")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: _digest("forward", module=Shift(torch.tensor([1.0, 3.0]))), id="a weight"),
        pytest.param(lambda: _digest("forward", module=Shift(torch.tensor([1.0, 2.0]), 3.0)), id="a constant tensor"),
        pytest.param(lambda: _digest("forward", module=Shift(torch.tensor([1.0, 2.0]).double())), id="a dtype"),
        pytest.param(lambda: _digest("other"), id="a method's name"),
        pytest.param(lambda: _digest("forward", "other"), id="a method more"),
        pytest.param(lambda: _digest("forward", vocabulary=7), id="a constant method"),
    ],
)
def test_any_difference_changes_the_digest(other: Any) -> None:
    assert other() != _digest("forward")


def test_weights_that_methods_share_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = model_digest.bytes_of
    monkeypatch.setattr(model_digest, "bytes_of", lambda tensor: read.append(tensor.nbytes) or original(tensor))
    _digest("forward", "other")
    assert read == [8, 8], "the weight and the constant"
