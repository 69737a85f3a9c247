"""Writes to buffers and inputs: each write gets a value that no other write uses.

A method may end with ``state.copy_(initial)``. Its functional graph has no op that computes the new content: the
content is the placeholder of another buffer. Parts of torch 2.13 and ExecuTorch (1.4.1 and 1.5.1) handle this
incorrectly. Emission drops such a write, and decomposition rejects two writes of one value. So this module clones such
values. All clones come before the first write, so that a swap of two buffers reads the old values. The linker removes
the clones that are not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    Clone = Callable[[Node], Node]
    """A function that inserts a clone of a value at the graph's insertion point."""


def aten_clone(value: Node) -> Node:
    """Return a clone of a value, in the ops of an exported graph."""
    import torch

    return value.graph.call_function(torch.ops.aten.clone.default, (value,))


def separate_copies(program: ExportedProgram) -> None:
    """Clone the source of a ``copy_`` to a buffer or an input, if it may share memory or was copied to one before.

    Buffers, inputs and views may share memory. Copies to computed tensors stay as they are: decomposition and emission
    handle these correctly, and a clone that XNNPACK removes can give its delegate one output twice, which it rejects.
    """
    import torch

    copies = program.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    _keep_returned(program, [copy for copy in copies if _is_assignment(copy)])
    taken: set[Node] = set()
    for copy in copies:
        if _base(copy.args[0]).op != "placeholder":
            continue
        source = copy.args[1]
        if source in taken or _may_alias(source):
            with program.graph.inserting_before(copy):
                copy.replace_input_with(source, _cloned(source, copy.meta, aten_clone))
        taken.add(source)
    program.graph_module.recompile()


def untie_buffers(program: ExportedProgram) -> tuple[str, str, Node] | None:
    """Give each unused buffer its own memory if it shares memory with a written buffer.

    If two buffers are the same tensor, ``torch.export`` merges them, and the graph uses only one of them. If two
    buffers overlap in part, the graph uses both buffers, but a write to one buffer does not change the other. This
    function cannot fix such a pair. For the first such pair, it returns the name of the written buffer, the name of the
    other buffer, and the node that writes. It returns None if there is no such pair.
    """
    signature, writes = program.graph_signature, _write_nodes(program)
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    buffers = [(spec.target, nodes[spec.arg.name]) for spec in signature.input_specs if spec.kind.name == "BUFFER"]
    for written, node in buffers:
        for name, other in buffers if node in writes else ():
            if name == written or not _share_memory(_content(program, name)[name], _content(program, written)[written]):
                continue
            if other.users:
                return written, name, writes[node]
            contents = _content(program, name)
            contents[name] = contents[name].clone()
    return None


def find_clash(program: ExportedProgram) -> tuple[str, Node] | None:
    """Find an input that the method writes and that has the name of a buffer.

    ExecuTorch 1.4.1 and 1.5.1 would write to the buffer instead. Return the name of the input, and the node that
    writes it. Return None if there is no such input.
    """
    signature, writes = program.graph_signature, _write_nodes(program)
    buffers = {spec.target for spec in signature.input_specs if spec.kind.name == "BUFFER"}
    inputs = {spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"}
    found = [(node.name, by) for node, by in writes.items() if node.name in buffers & inputs]
    return found[0] if found else None


def find_written_constant(program: ExportedProgram) -> tuple[str, Node] | None:
    """Return the name of a constant that the method writes, and the node that writes it; None if there is none.

    The constant is a plain attribute of a module. To be writable, the tensor must be a buffer.
    """
    constants = program.graph_signature.inputs_to_lifted_tensor_constants
    found = [(constants[node.name], by) for node, by in _write_nodes(program).items() if node.name in constants]
    return found[0] if found else None


def written_inputs(program: ExportedProgram) -> list[str]:
    """Return the names of the inputs that the method writes.

    The program returns the new values of these inputs before the method's own outputs.
    """
    written = {node.name for node in _write_nodes(program)}
    return [name for name in program.graph_signature.user_inputs if name in written]


def _write_nodes(program: ExportedProgram) -> dict[Node, Node]:
    """Map each written placeholder to the first node that writes the placeholder's memory.

    If a functional graph returns the new content as an output, map the placeholder to the node of that output.
    """
    found: dict[Node, Node] = {}
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        for argument, value in zip(schema.arguments if schema is not None else (), node.args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                found.setdefault(_base(value), node)
    for target, value in zip(write_targets(program), program.graph.output_node().args[0], strict=True):
        if target is not None:
            found.setdefault(target, value)
    return found


def _content(program: ExportedProgram, buffer: str) -> dict[str, Any]:
    """Return the table that contains a buffer's tensor: the state dict or the constants."""
    contents: dict[str, Any] = program.state_dict
    return contents if buffer in contents else program.constants


def _share_memory(one: Any, other: Any) -> bool:
    if not one.numel() or not other.numel() or one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    starts = [item.storage_offset() * item.itemsize for item in (one, other)]
    reach = [sum((n - 1) * step for n, step in zip(item.shape, item.stride(), strict=True)) for item in (one, other)]
    ends = [at + (last + 1) * item.itemsize for at, last, item in zip(starts, reach, (one, other), strict=True)]
    return bool(starts[0] < ends[1] and starts[1] < ends[0])


def separate_writes(program: ExportedProgram, clone: Clone) -> None:
    """Clone each value that a method writes to a buffer or an input, if it is a placeholder or is written twice.

    If the method also returns the old content of a written buffer or input, clone the returned value, too. The graph
    must be functional.
    """
    output = program.graph.output_node()
    values: list[Any] = list(output.args[0])
    specs = program.graph_signature.output_specs
    targets = write_targets(program)
    taken: set[Any] = set()
    with program.graph.inserting_before(output):
        for position, (value, spec, target) in enumerate(zip(values, specs, targets, strict=True)):
            if target is None:
                shared = value is not None and value in targets
            else:
                shared = value in taken or value.op == "placeholder"
                taken.add(value)
            if shared:
                values[position] = _cloned(value, value.meta, clone)
                spec.arg.name = values[position].name
    if values != list(output.args[0]):
        output.args = (type(output.args[0])(values),)
        program.graph_module.recompile()


def rename_inputs(program: ExportedProgram) -> None:
    """Rename each input that has the same name as a buffer, parameter or constant.

    ExecuTorch 1.4.1 and 1.5.1 look up the target of a write only by name. If an input and a buffer have the same name,
    a write to the buffer would go to the input.
    """
    signature = program.graph_signature
    targets = {spec.target for spec in signature.input_specs if spec.target is not None}
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    renamed: dict[str, str] = {}
    for spec in signature.input_specs:
        name = str(getattr(spec.arg, "name", None))
        if spec.target is None and name in targets:
            nodes[name]._rename(f"input_{name}")
            nodes[name].target = renamed[name] = spec.arg.name = nodes[name].name
    for spec in signature.output_specs:
        spec.arg.name = renamed.get(spec.arg.name, spec.arg.name)
        if spec.kind.name == "USER_INPUT_MUTATION":
            spec.target = renamed.get(spec.target, spec.target)
    if renamed:
        program.graph_module.recompile()


def write_targets(program: ExportedProgram) -> list[Node | None]:
    """Return, for each output of a functional graph, the placeholder to which the output is written.

    The entry is None for a returned value.
    """
    signature = program.graph_signature
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    names = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target is not None}
    return [
        None if not _is_write(spec) else nodes[names[spec.target] if _is_buffer(spec) else str(spec.target)]
        for spec in signature.output_specs
    ]


def _is_write(spec: Any) -> bool:
    return spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION")


def _is_buffer(spec: Any) -> bool:
    return bool(spec.kind.name == "BUFFER_MUTATION")


def _is_assignment(copy: Node) -> bool:
    """Return True if a copy comes from an assignment ``self.buffer = value``.

    ``torch.export`` appends such copies with the metadata of ``value``.
    """
    return copy.meta is copy.args[1].meta  # type: ignore[union-attr]


def _keep_returned(program: ExportedProgram, assignments: list[Node]) -> None:
    """Clone each returned value that shares memory with a buffer, if the method assigns another tensor to the buffer.

    The model returns the buffer's old tensor. In the exported graph, a copy to the buffer would overwrite that tensor.
    """
    output, replaced = program.graph.output_node(), {_base(copy.args[0]) for copy in assignments}
    for value in {value for value in output.all_input_nodes if _base(value) in replaced}:
        with program.graph.inserting_before(assignments[0]):
            output.replace_input_with(value, clone := _cloned(value, value.meta, aten_clone))
        for spec in program.graph_signature.output_specs:
            spec.arg.name = clone.name if spec.arg.name == value.name else spec.arg.name


def _base(node: Any) -> Any:
    """Return the node that owns a value's memory, after following views and in-place ops."""
    while node.op == "call_function" and _may_alias(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _may_alias(node: Node) -> bool:
    """Return True if a node's value may share memory with another node's value, according to the schema of the op."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return True
    return any(result.alias_info is not None for result in schema.returns)


def _cloned(value: Node, meta: dict[str, Any], clone: Clone) -> Node:
    node = clone(value)
    node.meta = {**meta, "val": value.meta["val"].clone()}
    return node
