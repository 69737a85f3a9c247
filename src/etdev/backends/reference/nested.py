"""Blob of a reference delegate: a ``.pte`` with one method, ``forward``.

The inputs and outputs of ``forward`` are those of the delegate call. They have no planned memory, so ``forward`` uses
the memory of the calling method for its inputs and outputs.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, final

import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes import MemoryPlanningPass
from torch.export import ExportedProgram
from torch.fx import GraphModule

from etdev.program import Blob, parse, serialize
from etdev.program.model import Int, Null

METHOD = "forward"


@final
class EtdevReferenceBackend(BackendDetails):  # type: ignore[misc]
    """Backend class for ExecuTorch, which finds the class by its name. The delegate in the file has the same name."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Return the nested program for a delegate's ops. Equal ops produce equal bytes."""
        program = copy.deepcopy(edge_program)
        manager = EdgeProgramManager({METHOD: program}, compile_config=EdgeCompileConfig(_check_ir_validity=False))
        emitted = manager.to_executorch(
            # View ops are emitted as copies. The link removes those copies for which it can prove that this is correct.
            ExecutorchBackendConfig(remove_view_copy=False, memory_planning_pass=_Planning(program))
        )
        return PreprocessResult(processed_bytes=_with_numbers(bytes(emitted.buffer)))


class _Planning(MemoryPlanningPass):  # type: ignore[misc]
    """ExecuTorch's memory planning, extended to store initial values of state, unless all bytes are zero."""

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__(alloc_graph_input=False, alloc_graph_output=False)
        signature = program.graph_signature
        changed = set(signature.buffers_to_mutate.values())
        values = {**program.constants, **program.state_dict}
        self._initialized = {
            name
            for name, buffer in signature.inputs_to_buffers.items()
            if buffer in changed and bool(values[buffer].detach().contiguous().reshape(-1).view(torch.uint8).any())
        }

    def run(self, graph_module: GraphModule, graph_signature: Any = None) -> Any:
        result = super().run(graph_module, graph_signature)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder" and node.target in self._initialized:
                node.meta["et_init_buffer"] = True
        return result


def _with_numbers(content: bytes) -> bytes:
    """Return the program with the integer 0 in place of each input that is None.

    If an input is a size, ExecuTorch emits None for it, but the caller passes an integer.
    """
    program = parse(Blob(content))
    plan = program.method(METHOD)
    values = list(plan.values)
    for index in plan.inputs:
        if isinstance(values[index], Null):
            values[index] = Int(0)
    return serialize(replace(program, execution_plan=(replace(plan, values=tuple(values)),)))
