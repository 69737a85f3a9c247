"""Quantized inputs and outputs: the change of a graph, and what stands in its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra `build`")
pytest.importorskip("torchao.quantization.pt2e.quantize_pt2e", reason="needs the extra `build`")

import torch

from etdev.pipeline.stages.quantize.ends_graph import (
    StaysFloatError,
    copy_program,
    find_input,
    find_output,
    quantize_input,
    quantize_output,
    remove_useless_casts,
)

OPS = torch.ops.quantized_decomposed
QPARAMS = (0.5, -3, -128, 127, torch.int8)
OTHER = (0.25, 4, -128, 127, torch.int8)


def q(x: Any, parameters: tuple[Any, ...] = QPARAMS) -> Any:
    return OPS.quantize_per_tensor.default(x, *parameters)


def dq(x: Any, parameters: tuple[Any, ...] = QPARAMS) -> Any:
    return OPS.dequantize_per_tensor.default(x, *parameters)


def exported(function: Callable[..., Any], *inputs: Any, **settings: Any) -> Any:
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.arange(4.0))
            self.register_buffer("state", torch.zeros(4))

        def forward(self, *args: Any) -> Any:
            return function(self, *args)

    return torch.export.export(Module(), inputs, strict=False, **settings)


X = torch.tensor([[0.4, -1.3, 2.0, 99.0]])


def converted(program: Any, inputs: list[int], outputs: list[int]) -> Any:
    """A copy of the program with these quantized inputs and outputs."""
    copy = copy_program(program)
    remove_useless_casts(copy)
    found = [find_input(copy, position) for position in inputs]
    ends = [find_output(copy, position, 0) for position in outputs]
    for one in found:
        quantize_input(one)
    for other in ends:
        quantize_output(copy, other)
    copy.graph.lint()
    copy.graph_module.recompile()
    copy.validate()
    return copy


def run(program: Any, *inputs: Any) -> tuple[Any, ...]:
    """Outputs of the graph, called without the checks of its inputs."""
    table = {**program.state_dict, **program.constants}
    specs = program.graph_signature.input_specs
    given = iter(inputs)
    values = [next(given) if spec.kind.name == "USER_INPUT" else table[spec.target] for spec in specs]
    return tuple(program.graph_module(*values))


def quantizers(program: Any) -> int:
    return sum("quantized_decomposed" in str(node.target) for node in program.graph.nodes)


def twice(y: Any) -> Any:
    return y, y * 2


def with_cast(y: Any) -> Any:
    return y, y.float()


def overwritten(y: Any) -> Any:
    y.view(4).relu_()
    return y


PROGRAMS = {
    "one op": lambda self, x: dq(q(dq(q(x)) * 2, OTHER), OTHER),
    "moved elements": lambda self, x: dq(q(dq(q(x.permute(1, 0).unsqueeze(0))) + 1)).flatten(1).clone(),
    "a part of the input": lambda self, x: dq(q(dq(q(x[:, 1:3])).relu(), OTHER), OTHER),
    "two users with the same parameters": lambda self, x: dq(q(dq(q(x)) + dq(q(x.view(1, 4))))),
    "returned as it is": lambda self, x: dq(q(x)),
    "casts to the type it has": lambda self, x: dq(q(dq(q(x.float())) * 2, OTHER), OTHER).float(),
    "a user of the returned floats": lambda self, x: twice(dq(q(dq(q(x)) * 2))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_integers(name: str) -> None:
    program = exported(PROGRAMS[name], X)
    before = str(program.graph)
    changed = converted(program, [0], [0])
    wanted, (found, *rest) = run(program, X), run(changed, q(X))

    assert found.dtype == torch.int8
    plain = copy_program(program)
    remove_useless_casts(plain)
    parameters = find_output(plain, 0, 0).end
    scale, zero_point = parameters.scale, parameters.zero_point
    assert torch.equal((found.to(torch.float32) - zero_point) * scale, wanted[0])
    assert all(torch.equal(one, other) for one, other in zip(rest, wanted[1:], strict=True))
    assert quantizers(changed) == quantizers(program) - len(find_input(plain, 0).quantizers) - (not rest)
    assert str(program.graph) == before, "the original is not changed"
    if name != "returned as it is":
        changed.run_decompositions({})


def test_a_returned_cast_of_a_weight_stays() -> None:
    program = exported(lambda self, x: (self.weight.float(), *with_cast(x * 2), (x + 1).float()), X)
    wanted = run(program, X)
    remove_useless_casts(program)
    program.graph.lint()
    program.graph_module.recompile()
    program.validate()
    assert str(program.graph).count("aten.to.dtype") == 1
    assert all(torch.equal(one, other) for one, other in zip(run(program, X), wanted, strict=True))


def test_each_output_is_a_tensor_of_its_own() -> None:
    def function(self: Any, x: Any) -> Any:
        y = q(dq(q(x)) * 2)
        return dq(y), dq(y)

    changed = converted(exported(function, X), [], [0, 1])
    assert len({spec.arg.name for spec in changed.graph_signature.output_specs}) == 2
    first, second = run(changed, X)
    assert torch.equal(first, second)
    assert first.dtype == torch.int8


def test_one_of_several() -> None:
    def function(self: Any, x: Any, y: Any) -> Any:
        return dq(q(dq(q(x)) + dq(q(y, OTHER), OTHER))), dq(q(y, OTHER), OTHER) * 2

    program = exported(function, X, X + 1)
    changed = converted(program, [1], [0])
    found, wanted = run(changed, X, q(X + 1, OTHER)), run(program, X, X + 1)
    assert torch.equal(dq(found[0]), wanted[0])
    assert torch.equal(found[1], wanted[1])
    end = find_input(program, 1).end
    assert (end.position, end.scale, end.zero_point, end.quant_min, end.quant_max) == (1, 0.25, 4, -128, 127)


def test_dynamic_sizes() -> None:
    batch = torch.export.Dim("batch", min=1, max=8)

    def function(self: Any, x: Any) -> Any:
        return dq(q(dq(q(x.reshape(x.shape[0], 2, 2))) * x.shape[0]))

    program = exported(function, X.expand(8, 4).clone(), dynamic_shapes=(({0: batch},),))
    changed = converted(program, [0], [0])
    for size in (1, 5, 8):
        x = torch.randn(size, 4)
        assert torch.equal(dq(run(changed, q(x))[0]), run(program, x)[0])


def test_a_state_keeps_its_floats() -> None:
    def function(self: Any, x: Any) -> Any:
        y = dq(q(dq(q(x)) + self.state))
        self.state.copy_(y[0])
        return y

    changed = converted(exported(function, X), [0], [0])
    written = changed.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    assert written[0].args[1].meta["val"].dtype == torch.float32
    assert run(changed, q(X))[0].dtype == torch.int8


NOT_CONSTANT = ", but not with one constant scale and zero point"
INPUTS = {
    "read in floats": (lambda self, x: dq(q(x)) + x, "`aten.add.Tensor` reads its floats"),
    "returned": (lambda self, x: (dq(q(x)), x), "the method returns it"),
    "never used": (lambda self, x: self.weight * 2, "the method does not use the input"),
    "two scales": (
        lambda self, x: dq(q(x)) + dq(q(x, OTHER), OTHER),
        (
            "two ops quantize the input differently, with scale 0.5 and zero point -3, "
            "and with scale 0.25 and zero point 4"
        ),
    ),
    "a scale per channel": (
        lambda self, x: OPS.quantize_per_channel.default(x, self.weight + 1, self.weight, 1, -128, 127, torch.int8),
        f"`quantized_decomposed.quantize_per_channel.default` quantizes it{NOT_CONSTANT}",
    ),
    "a scale at run time": (
        lambda self, x: OPS.quantize_per_tensor.tensor(
            x, self.weight[1], self.weight[0].to(torch.int64), -128, 127, torch.int8
        ),
        f"`quantized_decomposed.quantize_per_tensor.tensor` quantizes it{NOT_CONSTANT}",
    ),
    "changed": (lambda self, x: dq(q(x.view(4).add_(1))), "`aten.add_.Tensor` reads its floats"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_that_stays_float(name: str) -> None:
    function, reason = INPUTS[name]
    with pytest.raises(StaysFloatError) as error:
        find_input(exported(function, X), 0)
    assert str(error.value) == reason


def test_a_normalization_has_a_remedy() -> None:
    with pytest.raises(StaysFloatError) as error:
        find_input(exported(lambda self, x: dq(q((x - self.weight) / 2)), X), 0)
    assert error.value.remedy is not None
    assert "x * (1 / std) + (-mean / std)" in error.value.remedy


OUTPUTS = {
    "computed in floats": (lambda self, x: dq(q(x)).softmax(-1), "`aten.softmax.int` computes it in floats"),
    "an input": (lambda self, x: x, "it is an input or a weight in floats"),
    "a scale per channel": (
        lambda self, x: OPS.dequantize_per_channel.default(
            q(x), self.weight + 1, self.weight, 1, -128, 127, torch.int8
        ),
        f"`quantized_decomposed.dequantize_per_channel.default` computes it{NOT_CONSTANT}",
    ),
    "changed in place": (
        lambda self, x: overwritten(dq(q(x))),
        "`aten.relu_.default` changes the output in place",
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_stays_float(name: str) -> None:
    function, reason = OUTPUTS[name]
    with pytest.raises(StaysFloatError) as error:
        find_output(exported(function, X), 0, 0)
    assert str(error.value) == reason


def test_a_changed_input_comes_before_the_outputs() -> None:
    program = exported(lambda self, x: dq(q(x)), X)
    with pytest.raises(StaysFloatError, match="an input that the method changes"):
        find_output(program, 0, 1)
    assert find_output(program, 1, 1).end.position == 1
