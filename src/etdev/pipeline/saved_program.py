"""What a program saved by ``torch.export.save`` says about its inputs, against what the config declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from etdev.config.models import Dim, DType, Input, Method
from etdev.errors import ExportError
from etdev.pipeline.inputs import Signature
from etdev.pipeline.project import Project

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def signature_of_program(project: Project, program: ExportedProgram, declared: Method | None) -> Signature:
    """The program's own inputs; the config's names for them if it declares any.

    Raises :class:`~etdev.errors.ExportError` if the two disagree, if an input is no tensor, or if a dynamic dimension
    has no upper bound.
    """
    found = _read_signature(project, program)
    if declared is None or declared.inputs is None:
        return found
    stated = Signature.of("forward", declared)
    where = project.where("methods", "forward", "inputs")
    if len(stated.inputs) != len(found.inputs):
        raise ExportError(
            f"the saved program takes {len(found.inputs)} inputs, the config declares {len(stated.inputs)}",
            where=where,
            hint=f"the program takes {found.describe()}",
        )
    for mine, its in zip(_bounds(stated), _bounds(found), strict=True):
        if mine != its:
            raise ExportError(
                "the declared inputs are not those of the saved program",
                where=where,
                hint=f"the program takes {found.describe()}; or leave `inputs` out",
            )
    return stated


def _bounds(signature: Signature) -> list[tuple[str, list[int]]]:
    return [
        (item.dtype, [signature.dims[size].max if isinstance(size, str) else size for size in item.shape])
        for item in signature.inputs
    ]


def _read_signature(project: Project, program: ExportedProgram) -> Signature:
    import torch

    where = project.where("model", "pt2")
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: list[Input] = []
    dims: dict[str, Dim] = {}
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if isinstance(name, str) else name
        if not isinstance(value, torch.Tensor):
            raise ExportError(
                f"input {name!r} of the saved program is no tensor",
                where=where,
                hint="export it with tensor inputs only",
            )
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in get_args(DType):
            raise ExportError(f"input {name!r} of the saved program is {dtype}, which ExecuTorch lacks", where=where)
        shape = tuple(_size(program, size, dims, str(name), where) for size in value.shape)
        inputs.append(Input.model_validate({"name": name, "dtype": dtype, "shape": shape}))
    return Signature("forward", tuple(inputs), dims)


def _size(program: ExportedProgram, size: int | torch.SymInt, dims: dict[str, Dim], name: str, where: str) -> int | str:
    if isinstance(size, int):
        return size
    symbol = size.node.expr
    bounds = program.range_constraints.get(symbol)
    try:
        lower, upper = int(bounds.lower), int(bounds.upper)
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise ExportError(
            f"input {name!r} of the saved program has a dynamic dimension ({symbol}) without an upper bound",
            where=where,
            hint="export it with torch.export.Dim(name, max=...)",
        ) from None
    dims[str(symbol)] = Dim(min=max(lower, 1), max=upper)
    return str(symbol)
