"""Stage *export*: converts every method of the module to a graph of ATen ops with ``torch.export``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from etdev.errors import ExportError, MismatchError
from etdev.pipeline.project import Project
from etdev.pipeline.project.quiet import held_back
from etdev.pipeline.project.source_lines import model_frames
from etdev.pipeline.project.torch_tensors import Tensors
from etdev.pipeline.project.usercode import UserCode
from etdev.pipeline.stages.artifacts import ExportedMethod, ExportedModel, LoadedModel
from etdev.pipeline.stages.export_errors import explain_export_error
from etdev.pipeline.stages.inputs import Signature, make_inputs
from etdev.pipeline.stages.lower_errors import line_of_node
from etdev.pipeline.stages.memory_orders import make_constants_contiguous
from etdev.pipeline.stages.multiples import check_multiples, exported_dim
from etdev.pipeline.stages.writes import find_clash, find_written_constant, separate_copies, untie_buffers

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

DynamicShapes = tuple[dict[int, Any] | None, ...]


def signatures(project: Project, loaded: LoadedModel) -> dict[str, Signature]:
    """Return the signature of every method, from the config or from a saved program's placeholders."""
    from etdev.pipeline.stages.load.saved_program import signature_of_program

    if loaded.program is not None:
        declared = project.config.methods.get("forward")
        return {"forward": signature_of_program(project, loaded.program, declared)}
    return {name: Signature.of(name, method) for name, method in project.config.methods.items()}


def export_model(project: Project, loaded: LoadedModel, user: UserCode) -> ExportedModel:
    """Export every method in the config.

    Raises :class:`~etdev.errors.ExportError`. The message identifies the dimension, the input or the line of the model
    that causes the error.
    """
    methods: dict[str, ExportedMethod] = {}
    eager: dict[str, Callable[..., Any]] = {}
    declared = signatures(project, loaded)
    for name, signature in declared.items():
        example = make_inputs(signature, signature.largest())
        eager[name] = method_of(project, loaded.module, name)
        if loaded.program is not None:
            methods[name] = ExportedMethod(loaded.program, example)
            continue
        check_call(project, eager[name], signature)
        with as_forward(loaded.module, name):
            program = export_module(project, user, loaded.module, signature, example)
        methods[name] = ExportedMethod(program, example)
    return ExportedModel(methods, eager, declared, _output_counts(methods), constants=loaded.constants)


def unexported_model(project: Project, loaded: LoadedModel, outputs: Mapping[str, int]) -> ExportedModel:
    """Return the model for verification, with eager functions but without exported graphs.

    ``outputs`` is the number of outputs of each method, from an earlier export.
    """
    declared = signatures(project, loaded)
    eager = {name: method_of(project, loaded.module, name) for name in declared}
    return ExportedModel({}, eager, declared, outputs, constants=loaded.constants)


def _output_counts(methods: Mapping[str, ExportedMethod]) -> dict[str, int]:
    specs = {name: method.program.call_spec.out_spec for name, method in methods.items()}
    return {name: spec.num_leaves if spec is not None else 0 for name, spec in specs.items()}


def export_module(
    project: Project, user: UserCode, module: torch.nn.Module, signature: Signature, example: Tensors
) -> ExportedProgram:
    """Export ``module.forward`` with the declared dynamic dimensions.

    Every dynamic dimension of ``example`` must have its maximum size. Later passes evaluate guards with the sizes of
    the example, and may lower a dimension's maximum to its size in the example. Memory is planned for the maximum.
    """
    import torch

    # Torch keeps the loops and conditions that it compiled for other exports, and guards of the dimensions of these.
    torch.compiler.reset()
    try:
        with torch.no_grad(), held_back(), model_frames(export_module):
            shapes = _packed_shapes(module.forward, dynamic_shapes(signature))
            program = torch.export.export(module, example, dynamic_shapes=shapes, strict=False)
    except Exception as error:
        raise explain_export_error(error, project, user, signature, module) from error
    parameters = inspect.signature(module.forward)
    check_multiples(project, signature, program, parameters, partial(_export_at, module, signature))
    _refuse_unclear_writes(project, program)
    make_constants_contiguous(program)
    separate_copies(program)
    return program


def _export_at(module: torch.nn.Module, signature: Signature, choice: Mapping[str, int]) -> ExportedProgram:
    """Export ``module.forward`` with fixed sizes."""
    import torch

    inputs = make_inputs(signature, {**signature.largest(), **choice})
    with torch.no_grad(), held_back():
        return torch.export.export(module, inputs, strict=False)


def _refuse_unclear_writes(project: Project, program: ExportedProgram) -> None:
    """Raise an error if a write in the program would not have the same effect as in the model.

    This concerns writes to constants, to inputs with the name of a buffer, and to buffers that share memory.
    """
    if (constant := find_written_constant(program)) is not None:
        name, node = constant
        raise ExportError(
            f"the method writes to the tensor {name!r}{line_of_node(project, node)}, which is not a buffer of the "
            "model",
            where=project.where("model"),
            hint=f"register the tensor as state: `self.register_buffer({name.rpartition('.')[2]!r}, …)` in its module",
        )
    if (clash := find_clash(program)) is not None:
        name, node = clash
        raise ExportError(
            f"the method writes to its input {name!r}{line_of_node(project, node)}, which has the same name as a "
            "buffer",
            where=project.where("model"),
            hint="rename the buffer or the input: ExecuTorch would write to the buffer",
        )
    if (tied := untie_buffers(program)) is not None:
        written, other, node = tied
        raise ExportError(
            f"the buffers {written!r} and {other!r} share memory, and the method writes to {written!r}"
            f"{line_of_node(project, node)}",
            where=project.where("model"),
            hint=f"register one buffer for the shared memory, and compute {other!r} from that buffer in the method",
        )


def dynamic_shapes(signature: Signature) -> DynamicShapes:
    """Return the ``dynamic_shapes`` argument of ``torch.export``: the dynamic axes of each input."""
    dims = {name: exported_dim(name, dim) for name, dim in signature.dims.items() if dim.min < dim.max}
    return tuple(
        {axis: dims[size] for axis, size in enumerate(item.shape) if isinstance(size, str) and size in dims} or None
        for item in signature.inputs
    )


def _packed_shapes(function: Callable[..., Any], shapes: DynamicShapes) -> tuple[Any, ...]:
    """Wrap the shapes in a tuple, as ``torch.export`` expects, if the function has a parameter ``*args``."""
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and index < len(shapes):
            return (*shapes[:index], shapes[index:])
    return shapes


def method_of(project: Project, module: torch.nn.Module, name: str) -> Callable[..., Any]:
    """Return the module's method with this name as a function for eager calls."""
    function = module if name == "forward" else getattr(module, name, None)
    if not callable(function) or (name == "forward" and _has_no_forward(module)):
        own = [key for key, value in vars(type(module)).items() if callable(value) and not key.startswith("_")]
        hint = f"use a method that the model's class defines: {', '.join(own) or 'none'}"
        if project.config.model.hf is not None:
            hint += "; for another method, write a module around the model (`etdev init DIR --template llm` has one)"
        raise MismatchError(
            f"the model {type(module).__name__} has no method {name!r}", where=project.where("methods", name), hint=hint
        )
    return function if name == "forward" else partial(getattr(module, name))


def _has_no_forward(module: torch.nn.Module) -> bool:
    import torch

    return getattr(module.forward, "__func__", None) is torch.nn.Module.forward


def check_call(project: Project, function: Callable[..., Any], signature: Signature) -> None:
    """Raise an error if the method does not accept the number of inputs that the config declares."""
    target = getattr(function, "forward", function)
    parameters = inspect.signature(target)
    try:
        parameters.bind(*signature.inputs)
    except TypeError as error:
        raise MismatchError(
            f"method {signature.method!r} cannot be called with the {_count(signature)}: {error}",
            where=project.where("methods", signature.method, "inputs"),
            hint=f"declare inputs that match the parameters {parameters}",
        ) from None


def _count(signature: Signature) -> str:
    number = len(signature.inputs)
    return "one declared input" if number == 1 else f"{number} declared inputs"


@contextmanager
def as_forward(module: torch.nn.Module, name: str) -> Iterator[None]:
    """Return a context manager: inside its ``with`` block, ``module.forward`` calls the method ``name``.

    Names of parameters and buffers do not change.
    """
    if name == "forward":
        yield
        return
    before: Mapping[str, Any] = dict(vars(module))
    module.forward = getattr(module, name)
    try:
        yield
    finally:
        if "forward" in before:
            module.forward = before["forward"]
        else:
            del module.forward
