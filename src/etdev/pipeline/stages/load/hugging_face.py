"""Loading a ``transformers`` model: a local directory, or a hub name with a pinned revision."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

from etdev.errors import LoadError, MismatchError, MissingRequirementError, describe_exception
from etdev.extras import install_command
from etdev.pipeline.project import Project
from etdev.pipeline.stages.artifacts import LoadedModel
from etdev.pipeline.stages.load.weights import misfit

if TYPE_CHECKING:
    import torch

EXTRA = install_command("hf")

_DEFAULTS = {"use_cache": False, "attn_implementation": "eager"}
"""Default attributes of the transformers configuration; ``model.kwargs`` may override them.

The default attention of transformers is sdpa. With executorch 1.4.1 and transformers 5.23, lowering of GPT-2 with sdpa
fails (``Cannot view a tensor with shape …``). With executorch 1.5.1, a small GPT-2 with sdpa lowers and computes
correctly.
"""

_HUB_HINT = "connect to the network, or put the hub model's files into the local cache"
_DIRECTORY_HINT = "save the model with model.save_pretrained: the directory needs config.json and model.safetensors"


def load_transformers(project: Project) -> LoadedModel:
    """Load the class that ``architectures[0]`` of the configuration names, with its weights from safetensors.

    Inputs of the config's methods are passed by name, so the config must use the model's own names (``input_ids``).
    Outputs are flattened to tensors in the model's order. The key-value cache is off unless ``model.kwargs`` turns it
    on. Code and pickles from the directory or the hub are not loaded.
    """
    name = project.config.model.hf
    assert name is not None
    where = project.where("model", "hf")
    transformers = _import(where)
    source, extra = _source(project, name, where)
    try:
        with _no_progress_bars(transformers):
            config = _configuration(project, transformers, source, extra)
            model, notes = _load(_model_class(transformers, config, source, where), source, config, extra, where)
    except LoadError:
        raise
    except Exception as error:
        kind, hint = (LoadError, _HUB_HINT) if "revision" in extra else (MismatchError, _DIRECTORY_HINT)
        message = f"transformers cannot load {name!r}: {describe_exception(error)}"
        raise kind(message, where=where, hint=hint) from error
    _by_name(project, model)
    return LoadedModel(model.eval(), notes=notes)


def _is_cached(name: str, revision: str) -> bool:
    """Return True if the local cache has all required files of a model with a pinned revision.

    In that case, transformers need not query the network for optional files.
    """
    from huggingface_hub import try_to_load_from_cache

    def has(file: str) -> bool:
        return isinstance(try_to_load_from_cache(name, file, revision=revision), str)

    return has("config.json") and has("model.safetensors")


def _configuration(project: Project, transformers: Any, source: str, extra: dict[str, Any]) -> Any:
    """Return the model's configuration, changed by ``model.kwargs``.

    Raises :class:`~etdev.errors.MismatchError` for an unknown attribute, because transformers would ignore it.
    """
    kwargs = project.config.model.kwargs
    config, unused = transformers.AutoConfig.from_pretrained(
        source, trust_remote_code=False, return_unused_kwargs=True, **extra, **{**_DEFAULTS, **kwargs}
    )
    for key in kwargs.keys() & unused.keys():
        near = difflib.get_close_matches(key, vars(config), n=1)
        raise MismatchError(
            f"the configuration of {source} has no attribute {key!r}",
            where=project.where("model", "kwargs", key),
            hint=f"did you mean {near[0]!r}?" if near else f"set an attribute of {type(config).__name__}",
        )
    return config


def _load(
    model_class: Any, source: str, config: Any, extra: dict[str, Any], where: str
) -> tuple[torch.nn.Module, tuple[str, ...]]:
    """Return the model with its weights, and notes; raise an error if the files lack weights.

    transformers would initialize missing weights randomly.
    """
    model, found = model_class.from_pretrained(
        source,
        config=config,
        use_safetensors=True,
        trust_remote_code=False,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **extra,
    )
    misshapen = [f"{name} (file {list(old)}, model {list(new)})" for name, old, new in sorted(found["mismatched_keys"])]
    problem = misfit(missing=sorted(found["missing_keys"]), misshapen=misshapen)
    if problem is not None:
        raise MismatchError(
            f"the weights in {source} do not match {model_class.__name__}: {problem}",
            where=where,
            hint="compare `architectures` in the model's config.json and `model.kwargs` with the weights",
        )
    unused = misfit(unexpected=sorted(found["unexpected_keys"]))
    return model, (f"weights that {model_class.__name__} does not use: {unused}",) if unused is not None else ()


@contextmanager
def _no_progress_bars(transformers: Any) -> Iterator[None]:
    bars = transformers.utils.logging
    enabled = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            bars.enable_progress_bar()


def _import(where: str) -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        missing = "which is not installed" if error.name == "transformers" else f"which lacks {error.name!r}"
        raise MissingRequirementError(
            f"`model.hf` needs the package 'transformers', {missing}", where=where, hint=EXTRA
        ) from error
    return transformers


def _source(project: Project, name: str, where: str) -> tuple[str, dict[str, Any]]:
    """Return the directory or hub name to pass to transformers, and further arguments such as the revision."""
    revision = project.config.model.revision
    if revision is not None:
        return name, {"revision": revision, "local_files_only": _is_cached(name, revision)}
    path = project.loaded.resolve("model", "hf")
    if not (path / "config.json").is_file():
        raise MismatchError(
            f"there is no file {path / 'config.json'}", where=where, hint="save it with model.save_pretrained"
        )
    for file in sorted(path.iterdir()):
        if not (file.is_file() or file.is_dir()):  # transformers may wait forever for a pipe.
            raise MismatchError(f"{file} is not a file", where=where, hint="save the model again")
    return str(path), {"local_files_only": True}


def _model_class(transformers: Any, config: Any, source: str, where: str) -> Any:
    names = getattr(config, "architectures", None)
    if not names:
        raise MismatchError(
            f"the configuration of {source} has no class in `architectures`",
            where=where,
            hint='add the class to config.json, for example "architectures": ["BertModel"]',
        )
    found = getattr(transformers, names[0], None)
    if found is None:
        raise MismatchError(
            f"transformers {transformers.__version__} has no class {names[0]!r}",
            where=where,
            hint="use the transformers version that the model was saved with",
        )
    return found


def _by_name(project: Project, model: torch.nn.Module) -> None:
    """Replace each method of the config by a method that accepts inputs by position and returns only tensors."""
    for name, method in project.config.methods.items():
        original = getattr(type(model), name, None)
        if callable(original):
            names = [item.name for item in method.inputs or ()]
            _check_names(project, name, names, original)
            setattr(model, name, MethodType(_flat(original, names), model))


def _check_names(project: Project, method: str, names: list[str], original: Callable[..., Any]) -> None:
    """Raise an error for an input that is not a named parameter of the model's method.

    The method's ``**kwargs`` would accept such an input and ignore it.
    """
    known = list(inspect.signature(original).parameters.values())[1:]
    own = [parameter.name for parameter in known if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    for index, name in enumerate(names):
        if name in own:
            continue
        near = difflib.get_close_matches(name, own, n=1) or [other for other in own if name in other.split("_")]
        raise MismatchError(
            f"method {method!r} of the transformers model has no argument {name!r}",
            where=project.where("methods", method, "inputs", index, "name"),
            hint=f"did you mean {near[0]!r}?" if near else f"use the model's names for the inputs: {', '.join(own)}",
        )


def _flat(original: Callable[..., Any], names: list[str]) -> Callable[..., tuple[Any, ...]]:
    """Return a method that calls ``original`` with named inputs and returns a flat tuple of tensors.

    The returned method refers to the model only as ``self``, so that it also works on a copy of the model.
    """
    from etdev.pipeline.project.torch_tensors import iter_tensors

    def forward(self: torch.nn.Module, *inputs: Any) -> tuple[Any, ...]:
        return tuple(iter_tensors(original(self, **dict(zip(names, inputs, strict=True)))))

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return forward
