"""Loading a ``transformers`` model: a local directory, or a hub name with a pinned revision."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from etdev.errors import LoadError, MissingRequirementError
from etdev.pipeline.artifacts import LoadedModel
from etdev.pipeline.project import Project

if TYPE_CHECKING:
    import torch

EXTRA = 'pip install "etdev[hf]"'


def load_transformers(project: Project) -> LoadedModel:
    """The class that ``architectures[0]`` of the configuration names, with its weights from safetensors.

    Inputs of the config's methods are passed by name, so they are called as the model calls them (``input_ids``);
    outputs are flattened to tensors in the model's order. The key-value cache is off unless ``model.kwargs`` turns it
    on. No code and no pickles from the directory or the hub are loaded.
    """
    name = project.config.model.hf
    assert name is not None
    where = project.where("model", "hf")
    transformers = _import(where)
    source, extra = _source(project, name, where)
    try:
        config = transformers.AutoConfig.from_pretrained(
            source, trust_remote_code=False, **extra, **{"use_cache": False, **project.config.model.kwargs}
        )
        model_class = _model_class(transformers, config, source, where)
        model = model_class.from_pretrained(
            source, config=config, use_safetensors=True, trust_remote_code=False, **extra
        )
    except LoadError:
        raise
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "no message")
        raise LoadError(
            f"transformers cannot load {name!r}: {type(error).__name__}: {first}",
            where=where,
            hint="it needs config.json and model.safetensors; a hub model also the network or the local cache",
        ) from error
    _by_name(project, model)
    return LoadedModel(model.eval())


def _import(where: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingRequirementError(
            f"`model.hf` needs the package 'transformers': {error}", where=where, hint=EXTRA
        ) from error
    return transformers


def _source(project: Project, name: str, where: str) -> tuple[str, dict[str, Any]]:
    """What to hand to transformers: a directory, or a hub name and its revision."""
    revision = project.config.model.revision
    if revision is not None:
        return name, {"revision": revision}
    path = project.loaded.resolve("model", "hf")
    if not (path / "config.json").is_file():
        raise LoadError(
            f"there is no file {path / 'config.json'}", where=where, hint="save it with model.save_pretrained"
        )
    return str(path), {"local_files_only": True}


def _model_class(transformers: Any, config: Any, source: str, where: str) -> Any:
    names = getattr(config, "architectures", None)
    if not names:
        raise LoadError(f"the configuration of {source} names no class under `architectures`", where=where)
    found = getattr(transformers, names[0], None)
    if found is None:
        raise LoadError(
            f"transformers {transformers.__version__} has no class {names[0]!r}",
            where=where,
            hint="use the transformers version that the model was saved with",
        )
    return found


def _by_name(project: Project, model: torch.nn.Module) -> None:
    """Let every method of the config take its inputs by position and return plain tensors."""
    for name, method in project.config.methods.items():
        original = getattr(model, name, None)
        if callable(original):
            names = [item.name for item in method.inputs or ()]
            _check_names(project, name, names, original)
            setattr(model, name, _flat(original, names))


def _check_names(project: Project, method: str, names: list[str], original: Callable[..., Any]) -> None:
    known = inspect.signature(original).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values()):
        return  # extra names are taken, and the model judges them
    unknown = [name for name in names if name not in known]
    if unknown:
        raise LoadError(
            f"method {method!r} of the transformers model has no argument {', '.join(unknown)}",
            where=project.where("methods", method, "inputs"),
            hint=f"name the inputs as the model does: {', '.join(known)}",
        )


def _flat(original: Callable[..., Any], names: list[str]) -> Callable[..., tuple[Any, ...]]:
    from etdev.pipeline.load import iter_tensors

    def forward(*inputs: Any) -> tuple[Any, ...]:
        return tuple(iter_tensors(original(**dict(zip(names, inputs, strict=True)))))

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return forward
