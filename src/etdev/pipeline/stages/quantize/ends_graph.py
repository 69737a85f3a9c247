"""Removal of the conversions between floats and integers at the inputs and outputs of an exported graph.

ExecuTorch's ``QuantizeInputs`` and ``QuantizeOutputs`` passes do the same for an edge program. In an edge program, the
conversion may already be inside a delegate. The passes also require that the conversion is the only user of
the input. The functions here work before lowering. They follow ops that only move elements, because such ops work on
integers, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etdev.program.analysis.quantized_ends import QuantizedEnd, Side
from etdev.runtime.interpreter.layout import scalar_type_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_MOVES = frozenset(
    f"aten.{name}"
    for name in """
    _unsafe_view.default alias.default clone.default contiguous.default detach.default expand.default
    flatten.using_ints movedim.int permute.default reshape.default select.int slice.Tensor squeeze.default squeeze.dim
    squeeze.dims t.default transpose.int unflatten.int unsqueeze.default view.default
    """.split()  # noqa: SIM905 - a paragraph of words
)
"""Ops whose output consists of unchanged elements of the first argument. The other arguments are numbers."""
_SIZES = frozenset({"aten.sym_numel.default", "aten.sym_size.int", "aten.sym_stride.int"})
"""Ops that read only the shape of a tensor, not the elements."""
_QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


_NORMALIZATION = "write a normalization as a product and a sum, which are quantized: x * (1 / std) + (-mean / std)"
_REMEDIES = {"aten.sub.Tensor": _NORMALIZATION, "aten.div.Tensor": _NORMALIZATION}
"""Maps an op that the quantizers leave in floats to a change of the model that avoids this op."""


class StaysFloatError(Exception):
    """An input or output that cannot be quantized. The message is the reason, as a clause."""

    def __init__(self, reason: str, node: Node | None = None) -> None:
        super().__init__(reason)
        self.node = node
        """The node that prevents quantization; None if the reason is not a node."""

    @property
    def remedy(self) -> str | None:
        """A change of the model that would help, or None if none is known."""
        return _REMEDIES.get(str(self.node.target)) if self.node is not None else None


@dataclass(frozen=True, slots=True)
class InputConversion:
    """The conversion of an input from floats to integers."""

    end: QuantizedEnd
    placeholder: Node
    moves: tuple[Node, ...]
    """Ops between the input and the conversion, in topological order. These ops only move elements."""
    quantizers: tuple[Node, ...]
    """All other ops that use the input or a result of ``moves``, except ops that only read sizes or strides.

    They all quantize with the same parameters.
    """


@dataclass(frozen=True, slots=True)
class OutputConversion:
    """The conversion of an output from integers to floats."""

    end: QuantizedEnd
    index: int
    """Position among the values that the graph returns."""
    moves: tuple[Node, ...]
    """Ops between the conversion and the output, in order. They only move elements."""
    dequantizer: Node


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """Return a copy with its own graph. Tensors are shared, because no stage changes them."""
    from torch.export import ExportedProgram

    module = deepcopy(program.graph_module)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=deepcopy(program.graph_signature),
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=[program.verifier],
    )


def remove_useless_casts(program: ExportedProgram) -> None:
    """Remove each cast of a tensor to the tensor's own dtype, and each check of a dtype.

    ``x.float()`` exports to a cast and a check. Both expect floats, but the tensor may become an integer tensor.
    """
    graph, signature = program.graph, program.graph_signature
    for check in [node for node in graph.nodes if str(node.target) == "aten._assert_tensor_metadata.default"]:
        graph.erase_node(check)
    with program.graph_module._set_replace_hook(signature.get_replace_hook()):
        for cast in [node for node in graph.nodes if _is_useless_cast(node)]:
            cast.replace_all_uses_with(cast.args[0])
            graph.erase_node(cast)


def _is_useless_cast(node: Node) -> bool:
    if str(node.target) != "aten.to.dtype" or node.kwargs or len(node.args) != 2:
        return False
    source: Any = node.args[0]
    if source.op == "placeholder" and any(user.op == "output" for user in node.users):
        return False  # A graph must not return an input or a weight itself.
    return bool(source.meta["val"].dtype == node.meta["val"].dtype)


def find_input(program: ExportedProgram, position: int) -> InputConversion:
    """Return the conversion of the input at ``position``. Raises :class:`StaysFloatError` if there is none."""
    name = program.graph_signature.user_inputs[position]
    placeholder = next(node for node in program.graph.find_nodes(op="placeholder") if node.name == name)
    moves: list[Node] = []
    quantizers: dict[tuple[Any, ...], list[Node]] = {}
    waiting = [placeholder]
    while waiting:
        for user in waiting.pop(0).users:
            kind = str(user.target)
            if kind == _QUANTIZE:
                quantizers.setdefault(user.args[1:], []).append(user)
            elif kind in _MOVES and _reads_once(user):
                moves.append(user)
                waiting.append(user)
            elif kind not in _SIZES:
                raise StaysFloatError(_use(user), None if user.op == "output" else user)
    if not quantizers:
        raise StaysFloatError("the method does not use the input")
    if len(quantizers) > 1:
        first, second = list(quantizers)[:2]
        reason = (
            f"two ops quantize the input differently, with scale {first[0]:g} and zero point {first[1]}, "
            f"and with scale {second[0]:g} and zero point {second[1]}"
        )
        raise StaysFloatError(reason, quantizers[second][0])
    (parameters, users), *_ = quantizers.items()
    return InputConversion(_end("input", position, parameters), placeholder, tuple(moves), tuple(users))


def find_output(program: ExportedProgram, position: int, changed: int) -> OutputConversion:
    """Return the conversion of the output at ``position`` among the program's outputs.

    ``changed`` is the number of inputs that the method changes. The program returns them before the method's own
    outputs. Raises :class:`StaysFloatError` if there is no conversion.
    """
    own = [index for index, spec in enumerate(program.graph_signature.output_specs) if spec.kind.name == "USER_OUTPUT"]
    if position < changed:
        raise StaysFloatError("the output is the new value of an input that the method changes")
    index = own[position - changed]
    node: Any = program.graph.output_node().args[0][index]
    moves: list[Node] = []
    while str(getattr(node, "target", "")) in _MOVES and _reads_once(node):
        moves.insert(0, node)
        node = node.args[0]
    if str(getattr(node, "target", "")) != _DEQUANTIZE:
        is_node = hasattr(node, "target")
        raise StaysFloatError(_source(node) if is_node else "the output is a number", node if is_node else None)
    writer = _writer(node)
    if writer is not None:
        raise StaysFloatError(f"`{writer.target}` changes the output in place", writer)
    return OutputConversion(_end("output", position, node.args[1:]), index, tuple(moves), node)


def quantize_input(conversion: InputConversion) -> None:
    """Make the input an integer tensor, and remove its conversion."""
    dtype = conversion.quantizers[0].meta["val"].dtype
    for node in (conversion.placeholder, *conversion.moves):
        node.meta["val"] = node.meta["val"].to(dtype)
    for quantizer in conversion.quantizers:
        quantizer.replace_all_uses_with(quantizer.all_input_nodes[0])
        quantizer.graph.erase_node(quantizer)


def quantize_output(program: ExportedProgram, conversion: OutputConversion) -> None:
    """Make the graph return the integers that the conversion reads. Other users of its floats do not change."""
    import torch

    graph, output = program.graph, program.graph.output_node()
    values: list[Any] = list(output.args[0])
    value = conversion.dequantizer.all_input_nodes[0]
    dtype = value.meta["val"].dtype
    with graph.inserting_before(output):
        for move in conversion.moves:
            value = graph.call_function(move.target, (value, *move.args[1:]), dict(move.kwargs))
            value.meta = {**move.meta, "val": move.meta["val"].to(dtype)}
        if value.op == "placeholder" or value in values:
            # The runtime needs a tensor of its own for each output.
            source = value
            value = graph.call_function(torch.ops.aten.clone.default, (source,))
            value.meta = {**conversion.dequantizer.meta, "val": source.meta["val"].clone()}
    values[conversion.index] = value
    output.args = (tuple(values),)
    program.graph_signature.output_specs[conversion.index].arg.name = value.name
    for node in (*reversed(conversion.moves), conversion.dequantizer):
        if not node.users:
            graph.erase_node(node)


def float_outputs(program: ExportedProgram) -> Iterator[bool]:
    """Yield a bool for each output of the method: True if it is a float32 tensor."""
    import torch

    nodes: Any = program.graph.output_node().args[0]
    for node, spec in zip(nodes, program.graph_signature.output_specs, strict=True):
        if spec.kind.name == "USER_OUTPUT":
            value = getattr(node, "meta", {}).get("val")
            yield isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _end(side: Side, position: int, parameters: Any) -> QuantizedEnd:
    scale, zero_point, low, high, dtype = parameters
    return QuantizedEnd(side, position, float(scale), int(zero_point), int(low), int(high), scalar_type_of(dtype))


def _reads_once(node: Node) -> bool:
    """Return True if the first argument of the node is the only argument that may be a tensor."""
    return node.op == "call_function" and not any(
        hasattr(value.meta.get("val"), "dtype") for value in node.all_input_nodes if value is not node.args[0]
    )


def _use(user: Node) -> str:
    if user.op == "output":
        return "the method returns it"
    if "quantized_decomposed." in str(user.target) or "choose_qparams" in str(user.target):
        return f"`{user.target}` quantizes it, but not with one constant scale and zero point"
    return f"`{user.target}` reads its floats"


def _source(node: Node) -> str:
    if node.op == "placeholder":
        return "it is an input or a weight in floats"
    if "quantized_decomposed." in str(node.target):
        return f"`{node.target}` computes it, but not with one constant scale and zero point"
    return f"`{node.target}` computes it in floats"


def _writer(value: Node) -> Node | None:
    """Return a node that writes to the memory of a value, directly or through a view; None if there is none."""
    waiting = [value]
    for node in waiting:
        for user in node.users:
            schema = getattr(user.target, "_schema", None)
            for argument, given in zip(schema.arguments if schema is not None else (), user.args, strict=False):
                if given is node and argument.alias_info is not None:
                    if argument.alias_info.is_write:
                        return user
                    waiting.append(user)
    return None
