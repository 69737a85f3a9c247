"""The ETRecord of an object program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.errors import EmitError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.emit.graphs import lowered_module
from etdev.pipeline.stages.emit.instructions import match_instructions
from etdev.pipeline.stages.etrecord import DelegateMap, InstructionMaps, delegate_outputs
from etdev.program import Program
from etdev.program.model import DelegateCall, ExecutionPlan
from etdev.program.sidecar import MethodNotes
from etdev.program.sidecar.notes import noted_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from executorch.exir import ExecutorchProgramManager
    from torch.fx import GraphModule


def save_record(
    project: Project,
    target: str,
    manager: ExecutorchProgramManager,
    program: Program,
    notes: Mapping[str, MethodNotes],
    path: Path,
) -> None:
    """Write the ETRecord of an object program; lowering must have kept the graphs for the record.

    ``notes`` are the sidecar's notes on the methods that have a graph. The notes contain the debug handles.
    ExecuTorch's own map of handles lacks branches and loop bodies. Raises OSError; raises
    :class:`~etdev.errors.EmitError` if ExecuTorch cannot serialize a graph.
    """
    maps = InstructionMaps(
        {name: note.debug_handles for name, note in notes.items()},
        {name: _delegates(manager.exported_program(name).graph_module, program.method(name)) for name in notes},
        delegate_outputs(program, noted_inputs(notes)),
    )
    record = manager.get_etrecord()
    for name, content in maps.members().items():
        setattr(record, f"_{name}", content)
    try:
        record.save(path)
    except OSError:
        raise
    except Exception as error:
        raise EmitError(
            f"executorch cannot serialize the model's graphs for an ETRecord: {_cause(error)}",
            where=project.where("targets", target, "etrecord"),
            hint="set `etrecord` to false to build without an ETRecord",
        ) from error


def _delegates(graph_module: GraphModule, plan: ExecutionPlan) -> dict[int, DelegateMap]:
    """Map the position of each delegate call to the delegate's description.

    The description contains a map from the backend's own op numbers to debug handles. Calls in branches and loop
    bodies are included.
    """
    origins = match_instructions(graph_module, plan)
    found: dict[int, DelegateMap] = {}
    for position, call in enumerate(plan.chains[0].instructions):
        if isinstance(call, DelegateCall):
            module: Any = lowered_module(origins[position].module, origins[position].node)
            numbers = (module.meta or {}).get("debug_handle_map", {})
            found[position] = {"name": module.backend_id, "delegate_map": numbers}
    return found


def _cause(error: BaseException) -> str:
    """Return the message of an error's root cause.

    executorch wraps the root cause in other errors, whose messages contain whole graphs.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
