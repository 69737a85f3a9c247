"""Direct emission of plain methods: an object program straight from the lowered graphs.

ExecuTorch's emission visits each op about ten times and copies all weights. That takes longer than all other stages if
tiling turns two hundred ops into a thousand. A method is *plain* if it consists of kernels with out variants, delegates
and tensors of fixed sizes. It has no branches, loops or state. For such methods, this module makes the same program as
ExecuTorch's emission. Its constants are the model's own tensors, not copies.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from etdev.pipeline.project import Project
from etdev.pipeline.project.source_lines import SourceLines
from etdev.pipeline.stages.artifacts import Emitted, EmittedTrial, ExportedModel, LoweredModel
from etdev.pipeline.stages.emit.constant_data import Constants, Delegates, program_of
from etdev.pipeline.stages.emit.debug_handles import debug_handles
from etdev.pipeline.stages.emit.external_data import data_names
from etdev.pipeline.stages.emit.graphs import graph_modules, lowered_module
from etdev.pipeline.stages.emit.instructions import Origin
from etdev.pipeline.stages.emit.method_notes import describe_origins
from etdev.pipeline.stages.emit.mutable_state import find_state
from etdev.pipeline.stages.emit.values import NotPlainError, Values, describe
from etdev.program import model as m
from etdev.program.sidecar import MethodNotes, Sidecar

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node


def emit_directly(project: Project, lowered: LoweredModel, exported: ExportedModel, target: str) -> EmittedTrial | None:
    """Emit the lowered methods if all of them are plain; otherwise return None.

    The caller must have inserted the copies of :mod:`.dim_orders` and the clones of :mod:`etdev.pipeline.stages.writes`
    into the graphs. This function only removes unused ops.
    """
    if project.config.targets[target].etrecord or lowered.manager.config_methods:
        return None  # ``config_methods`` are the constant methods, those of quantized inputs and outputs included.
    constants, delegates = Constants(), Delegates()
    methods: list[_Method] = []
    plans = []
    try:
        for name in sorted(lowered.methods):
            if find_state(project, lowered, exported, name):
                return None
            methods.append(_Method(name, lowered.manager.exported_program(name), constants, delegates))
            plans.append(methods[-1].plan())
        named = lowered.manager._named_data_store.get_named_data_store_output()
        program = program_of(plans, constants, delegates, named)
    except NotPlainError:
        return None

    def sidecar(lines: SourceLines | None) -> Sidecar:
        return Sidecar({method.name: method.notes(lines) for method in methods}, {}, lowered.records)

    return EmittedTrial(program, sidecar(None), lambda: Emitted(program, sidecar(SourceLines(project.loaded.root))))


class _Method:
    """Emission of one method."""

    def __init__(self, name: str, program: ExportedProgram, constants: Constants, delegates: Delegates) -> None:
        self.name, self._program = name, program
        self._constants, self._data = constants, delegates
        self._graph_module = program.graph_module
        signature = program.graph_signature
        self._names: dict[str, str] = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        """Maps the placeholder of each constant to the constant's name."""
        self._values = Values()
        self._known: dict[Node, Any] = {}
        """Maps each emitted node to the index of its value; to a list of indices if the node has several results."""
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._delegates: list[m.BackendDelegate] = []
        self._origins: list[Origin] = []

    def plan(self) -> m.ExecutionPlan:
        """Return the emitted method. Raises :class:`NotPlainError` if the method is not plain."""
        if sum(1 for _ in graph_modules(self._graph_module)) > 1:
            raise NotPlainError("the method has branches or loops")
        if any(spec.kind.name != "USER_OUTPUT" for spec in self._program.graph_signature.output_specs):
            raise NotPlainError("the method writes to a buffer or an input")
        self._graph_module.graph.eliminate_dead_code()
        for node in self._graph_module.graph.nodes:
            self._emit(node)
        return m.ExecutionPlan(
            self.name,
            tuple(self._values.values),
            tuple(self._inputs),
            tuple(self._outputs),
            (m.Chain(tuple(self._values.instructions)),),
            tuple(self._values.operators),
            tuple(self._delegates),
            (0, self._values.end),
            container_meta_type=m.ContainerMetadata(*map(_nesting, self._program.call_spec)),
        )

    def notes(self, lines: SourceLines | None) -> MethodNotes:
        """Return the sidecar's notes on the method, without source lines and debug handles if ``lines`` is None."""
        handles = {} if lines is None else debug_handles(self._graph_module)
        notes = describe_origins(self._origins, handles, lines)
        return replace(notes, data_names=data_names(self._graph_module))

    def _emit(self, node: Node) -> None:
        match node.op:
            case "placeholder":
                self._known[node] = self._placeholder(node)
            case "output":
                self._outputs = [self._output(item) for item in _results(node)]
            case "call_function":
                self._known[node] = self._call(node)

    def _placeholder(self, node: Node) -> int:
        tensor: Any = node.meta["val"]
        found = describe(tensor, requires_grad=getattr(tensor, "requires_grad", False))
        name = self._names.get(str(node.target))
        if name is None:
            self._inputs.append(self._values.add_planned(tensor, requires_grad=found.requires_grad))
            return self._inputs[-1]
        return self._values.add(self._constant(name, found))

    def _constant(self, name: str, described: m.Tensor) -> m.Tensor:
        import torch

        tensors = self._program.state_dict if name in self._program.state_dict else self._program.constants
        if name not in tensors:
            raise NotPlainError(f"the tensor {name} is not in the program")
        tensor = tensors[name]
        if not tensor.is_contiguous() and not tensor.is_contiguous(memory_format=torch.channels_last):
            tensor = tensor.contiguous()
        if tensor.nbytes != tensor.untyped_storage().nbytes():  # The tensor is a part of a larger one.
            tensor = tensor.clone()
        stored = describe(tensor)
        if stored.sizes != described.sizes or stored.scalar_type != described.scalar_type:
            raise NotPlainError(f"the tensor {name} does not have the size and the type that the graph states")
        return replace(
            stored,
            data_buffer_idx=self._constants.add(tensor),
            extra_tensor_info=m.ExtraTensorInfo(fully_qualified_name=name),
            requires_grad=described.requires_grad,
        )

    def _output(self, item: Any) -> int:
        found = self._known.get(item)
        if not isinstance(found, int):
            raise NotPlainError(f"the output {item!r} is not a tensor")
        return found

    def _call(self, node: Node) -> int | list[int]:
        if node.target is operator.getitem:
            whole: Any = self._known[node.all_input_nodes[0]]
            index: Any = node.args[1]
            found: int = whole[index]
            return found
        module = lowered_module(self._graph_module, node)
        made = self._values.call(node, self._known) if module is None else self._delegate(node, module)
        self._origins.append(Origin(self._graph_module, node, whole=True))
        return made

    def _delegate(self, node: Node, module: Any) -> int | list[int]:
        if any(spec.kind.name != "USER_OUTPUT" for spec in module.original_module.graph_signature.output_specs):
            raise NotPlainError("a delegate has state, whose new values are not results of the call")
        values = node.meta["val"]
        several = isinstance(values, tuple | list)
        made = [self._values.add_planned(value) for value in (values if several else [values])]
        self._delegates.append(self._data.add(module))
        args = [self._delegate_input(item) for item in node.args[1:]]
        self._values.instructions.append(m.DelegateCall(len(self._delegates) - 1, (*args, *made)))
        return made if several else made[0]

    def _delegate_input(self, item: Any) -> int:
        found = self._known.get(item)
        if not isinstance(found, int):
            raise NotPlainError(f"an input of a delegate is {item!r}")
        return found


def _results(output: Node) -> tuple[Any, ...]:
    found = output.args[0]
    if not isinstance(found, tuple | list) or not found:
        raise NotPlainError("the method returns nothing")
    return tuple(found)


def _nesting(spec: Any) -> str:
    """Return ExecuTorch's description of how inputs or outputs nest."""
    from executorch.extension import pytree
    from torch.utils._pytree import tree_unflatten

    if spec is None:
        return ""
    _, tree = pytree.tree_flatten(tree_unflatten([0] * spec.num_leaves, spec))
    try:
        text: str = tree.to_str()
    except NotImplementedError as error:
        raise NotPlainError("ExecuTorch cannot describe the type of an input or an output") from error
    return text
