"""Inputs of a program that ``torch.export.save`` wrote, and their comparison with the config's declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from etdev.config.models import Dim, DType, Input, Method
from etdev.errors import ExportError, MismatchError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.inputs import Signature

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def signature_of_program(project: Project, program: ExportedProgram, declared: Method | None) -> Signature:
    """Return the program's inputs, with the names from the config if the config declares inputs.

    Raises :class:`~etdev.errors.MismatchError` if the config and the program disagree. Raises
    :class:`~etdev.errors.ExportError` if an input is not a tensor or a dynamic dimension has no upper bound.
    """
    found = _read_signature(project, program)
    if declared is None or declared.inputs is None:
        return found
    stated = Signature.of("forward", declared)
    where = project.where("methods", "forward", "inputs")
    if len(stated.inputs) != len(found.inputs):
        count = f"{len(found.inputs)} input{'s' * (len(found.inputs) != 1)}"
        raise MismatchError(
            f"the saved program takes {count}, but the config declares {len(stated.inputs)}",
            where=where,
            hint=f"declare the program's inputs: {found.describe()}",
        )
    problem = _disagreement(stated, found)
    if problem is not None:
        raise MismatchError(
            f"the declared inputs do not match those of the saved program: {problem}",
            where=where,
            hint=f"declare the program's inputs: {found.describe()}{_ranges(found)}; or remove `inputs`",
        )
    return stated


def _disagreement(stated: Signature, found: Signature) -> str | None:
    """Return the first difference between the declared inputs and the program's inputs; None if there is none.

    The minimum of a declared range may be larger than the program's minimum.
    """
    names: dict[str, str] = {}
    for mine, its in zip(stated.inputs, found.inputs, strict=True):
        if mine.dtype != its.dtype:
            return f"{mine.name!r} is {its.dtype}, but is declared as {mine.dtype}"
        if len(mine.shape) != len(its.shape):
            return f"{mine.name!r} has {len(its.shape)} dimensions, but is declared with {len(mine.shape)}"
        for axis, (size, expected) in enumerate(zip(mine.shape, its.shape, strict=True)):
            if not _agree(size, expected, stated, found, names):
                return (
                    f"axis {axis} of {mine.name!r} is {_text(expected, found)}, but is declared as "
                    f"{_text(size, stated)}"
                )
    return None


def _agree(size: int | str, expected: int | str, stated: Signature, found: Signature, names: dict[str, str]) -> bool:
    if isinstance(size, int) or isinstance(expected, int):
        return size == expected
    mine, its = stated.dims[size], found.dims[expected]
    fits = its.min <= mine.min and mine.max == its.max and mine.multiple_of % its.multiple_of == 0
    return names.setdefault(expected, size) == size and fits


def _text(size: int | str, signature: Signature) -> str:
    if isinstance(size, int):
        return str(size)
    return f"{size!r} ({signature.dims[size].describe()})"


def _ranges(signature: Signature) -> str:
    return "".join(f", {name} = {dim.describe()}" for name, dim in signature.dims.items())


def _read_signature(project: Project, program: ExportedProgram) -> Signature:
    import torch

    where = project.where("model", "pt2")
    _require_positional(program, where)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs: list[Input] = []
    dims: dict[str, Dim] = {}
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if isinstance(name, str) else name
        if not isinstance(value, torch.Tensor):
            raise ExportError(
                f"input {name!r} of the saved program is not a tensor",
                where=where,
                hint="export the program with tensor inputs only",
            )
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in get_args(DType):
            raise ExportError(
                f"input {name!r} of the saved program is {dtype}, which ExecuTorch does not support", where=where
            )
        shape = tuple(_size(program, size, dims, str(name), where) for size in value.shape)
        inputs.append(Input.model_validate({"name": name, "dtype": dtype, "shape": shape}))
    return Signature("forward", tuple(inputs), dims)


def _require_positional(program: ExportedProgram, where: str) -> None:
    """Raise an error unless every input is a tensor passed by position: no keywords, no containers."""
    arguments, keywords = program.call_spec.in_spec.children()
    if keywords.num_leaves or any(not argument.is_leaf() for argument in arguments.children()):
        raise ExportError(
            "the saved program takes inputs by keyword or in containers",
            where=where,
            hint="export the program with positional inputs, each of them a tensor",
        )


def _size(program: ExportedProgram, size: int | torch.SymInt, dims: dict[str, Dim], name: str, where: str) -> int | str:
    if isinstance(size, int):
        return size
    symbol = size.node.expr
    if not symbol.is_Symbol:
        raise ExportError(
            f"input {name!r} of the saved program has a dimension that is computed from another dimension ({symbol})",
            where=where,
            hint="export the program with plain torch.export.Dim dimensions, or build from the module (`multiple_of`)",
        )
    bounds = program.range_constraints.get(symbol)
    try:
        lower, upper = int(bounds.lower), int(bounds.upper)
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise ExportError(
            f"input {name!r} of the saved program has a dynamic dimension ({symbol}) without an upper bound",
            where=where,
            hint="export the program with torch.export.Dim(name, max=...)",
        ) from None
    dims[str(symbol)] = Dim(min=max(lower, 1), max=upper)
    return str(symbol)
