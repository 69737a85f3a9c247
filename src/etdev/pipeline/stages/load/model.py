"""Stage *load*: makes an ``nn.Module`` in eval mode from the config's ``[model]``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from etdev.errors import LoadError, MismatchError, describe_exception
from etdev.pipeline.project import Project
from etdev.pipeline.project.imports import register_imports
from etdev.pipeline.project.usercode import UserCode, translated
from etdev.pipeline.stages.artifacts import LoadedModel
from etdev.pipeline.stages.load.constant_methods import constants_of
from etdev.pipeline.stages.load.weights import load_weights
from etdev.pipeline.stages.memory_orders import make_constants_contiguous
from etdev.pipeline.stages.writes import aten_clone, separate_copies, separate_writes

if TYPE_CHECKING:
    import torch


def load_model(project: Project, user: UserCode) -> LoadedModel:
    """Import the modules in the config's ``project.imports``, then load the model.

    Raises :class:`~etdev.errors.LoadError` if loading fails, with the location of the config key that causes this.
    """
    _require_inputs(project)
    register_imports(project, user)
    loaded = _load(project, user)
    return replace(loaded, constants=constants_of(project, user, loaded.module))


def _load(project: Project, user: UserCode) -> LoadedModel:
    config = project.config
    if config.model.entry is not None:
        return _load_entry(project, user, config.model.entry)
    if config.model.pt2 is not None:
        return _load_saved_program(project)
    from etdev.pipeline.stages.load.hugging_face import load_transformers

    return load_transformers(project)


def _require_inputs(project: Project) -> None:
    for index in range(len(project.config.model.inputs)):
        path = project.loaded.resolve("model", "inputs", index)
        if not path.exists():
            raise MismatchError(
                f"there is no file {path}",
                where=project.where("model", "inputs", index),
                hint="set it to a file or a folder that the model's code reads, relative to the config",
            )


def _load_entry(project: Project, user: UserCode, entry: str) -> LoadedModel:
    import torch

    model = project.config.model
    where = project.where("model", "entry")
    make = user.get(entry, project.base("model", "entry"), where)
    _check_kwargs(project, make, entry, model.kwargs)
    with translated(user, LoadError, f"{entry!r} failed", where=where), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # Values that the weights do not set are then equal in every build.
        module = make(**model.kwargs)
    if not isinstance(module, torch.nn.Module):
        raise LoadError(
            f"{entry!r} returned {_described(module)} instead of a torch.nn.Module",
            where=where,
            hint="return the model itself",
        )
    _check_device(module, entry, where)
    notes: tuple[str, ...] = ()
    if model.weights is not None:
        notes = load_weights(module, project.loaded.resolve("model", "weights"), project.where("model", "weights"))
    try:
        module.eval()
    except NotImplementedError:  # A module of torch.export or PT2E has the mode in which it was exported.
        raise LoadError(
            f"{entry!r} returned an exported module, whose mode cannot be set to evaluation",
            where=where,
            hint="return the model before its export, or save the exported program and use `model.pt2`",
        ) from None
    return LoadedModel(module, notes=notes)


def _check_kwargs(project: Project, make: Callable[..., Any], entry: str, kwargs: Mapping[str, Any]) -> None:
    """Raise an error if the callable ``make`` does not accept the arguments ``kwargs``.

    The error has the location of ``model.kwargs`` in the config, which Python's own TypeError would lack.
    """
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return
    takes_any = any(part.kind is inspect.Parameter.VAR_KEYWORD for part in signature.parameters.values())
    for name in () if takes_any else kwargs.keys() - signature.parameters.keys():
        near = difflib.get_close_matches(name, signature.parameters, n=1)
        raise MismatchError(
            f"{entry!r} does not accept the argument {name!r}",
            where=project.where("model", "kwargs", name),
            hint=f"did you mean {near[0]!r}?" if near else f"set arguments that match the parameters {signature}",
        )
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise MismatchError(
            f"{entry!r} cannot be called with `model.kwargs`: {error}",
            where=project.where("model", "kwargs"),
            hint=f"set arguments that match the parameters {signature}",
        ) from None


def _described(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _check_device(module: torch.nn.Module, entry: str, where: str) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.device.type != "cpu":
            raise LoadError(
                f"{entry!r} returned a model with {name!r} on the device {str(tensor.device)!r}",
                where=where,
                hint="return a model on the CPU, because it is exported there",
            )


def _load_saved_program(project: Project) -> LoadedModel:
    import torch

    path = project.loaded.resolve("model", "pt2")
    where = project.where("model", "pt2")
    if not path.is_file():
        hint = "correct the path, or export the program with torch.export.save before the build"
        raise MismatchError(f"there is no file {path}", where=where, hint=hint)
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise MismatchError(
            f"{path} is not a program that this torch ({torch.__version__}) can load: {describe_exception(error)}",
            where=where,
            hint="use this version of torch to save the program again with torch.export.save",
        ) from error
    make_constants_contiguous(program)
    separate_copies(program)
    separate_writes(program, aten_clone)
    return LoadedModel(program.module(), program)
