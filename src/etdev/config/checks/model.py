"""Checks of the source of the model, and of the keys that go with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etdev.config.checks.raw import table_at
from etdev.config.describe.notation import example, kind, literal, short
from etdev.config.issues import CONFLICT, MISSING_KEY, WRONG_TYPE, WRONG_VALUE, Issue
from etdev.config.keys import KeyPath, format_key, nearest

SOURCES = ("entry", "hf", "pt2")
"""Keys for the source of the model; a config has exactly one of them."""

CONVERSION_HINT = (
    "other formats can hold pickles, which are never loaded: convert the file once, as docs/models.md says "
    "(torch.load with weights_only=True, then safetensors.torch.save_file)"
)


def check_model_source(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that exactly one of ``entry``, ``hf`` and ``pt2`` is set, with the keys that go with it and no others."""
    if "model" not in data or not isinstance(data["model"], Mapping):
        return
    model = data["model"]
    present = [key for key in model if key in SOURCES]
    if meant_source(data) is None:
        yield Issue(
            ("model", "entry"),
            "`model` does not say where the model comes from; expected one of `entry`, `hf` and `pt2`",
            MISSING_KEY,
            'for a function that makes the module: set `model.entry` to "module:callable"',
        )
    for key in present[1:]:
        yield _conflict(key, f"`model.{present[0]}` already says where the model comes from", "keep one of the two")
    if len(present) == 1:
        yield from _check_companions(model, present[0])


def _check_companions(model: Mapping[str, Any], source: str) -> Iterator[Issue]:
    if source == "pt2" and (model.get("trust") is False or nearest("trust", model) is None):
        key: KeyPath = ("model", "trust" if "trust" in model else "pt2")
        message = "`model.pt2` needs `trust` to be true: loading such a file may run code that it contains"
        yield Issue(
            key, message, CONFLICT, example("if you trust where the file comes from, add `{}`", {"trust": True})
        )
    if source != "pt2" and model.get("trust") is True:
        yield _conflict("trust", "only a `pt2` model needs it", "remove it")
    if source != "entry" and "weights" in model:
        yield _conflict("weights", f"a `{source}` model brings its own", "remove it")
    if source == "entry":
        yield from _check_weights(model.get("weights"))
    if source == "pt2" and "kwargs" in model:
        yield _conflict("kwargs", "a `pt2` model is already made", "remove it")
    yield from _check_revision(model)


def _check_weights(weights: object) -> Iterator[Issue]:
    """Check the name of the weights file. Files of other formats may contain pickles, so none is opened."""
    if isinstance(weights, str) and weights and not weights.endswith(".safetensors"):
        message = f"`model.weights` is {short(weights)}; expected the path of a .safetensors file"
        yield Issue(("model", "weights"), message, WRONG_VALUE, CONVERSION_HINT)


def _check_revision(model: Mapping[str, Any]) -> Iterator[Issue]:
    name = model.get("hf")
    is_hub_name = isinstance(name, str) and name != "" and not is_local(name)
    if is_hub_name and "revision" not in model and nearest("revision", model) is None:
        yield Issue(
            ("model", "hf"),
            f"`model.hf` is {short(name)}, a name on the hub, which needs `revision`",
            CONFLICT,
            f"add the commit hash as `revision`; a local directory is written {literal(f'./{name}')}",
        )
    if "revision" in model and not is_hub_name and ("hf" not in model or isinstance(name, str)):
        yield _conflict("revision", "only a model from the hub (`hf`) has one", "remove it")


def check_kwargs(data: Mapping[str, Any]) -> Iterator[Issue]:
    """Check that ``model.kwargs`` contains only values that both TOML and YAML can write."""
    yield from _check_free(table_at(data, "model").get("kwargs"), ("model", "kwargs"))


def _check_free(value: object, path: KeyPath) -> Iterator[Issue]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _check_free(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check_free(item, (*path, index))
    elif len(path) > len(("model", "kwargs")) and kind(value) in ("nothing", "date", "bytes"):
        hint = "leave the key out" if value is None else "write it as text, in quotes"
        message = f"`{format_key(path)}` is {short(value)}; expected true or false, a number, text, a list, or a table"
        yield Issue(path, message, WRONG_TYPE, hint)


def _conflict(key: str, reason: str, hint: str) -> Issue:
    return Issue(("model", key), f"`model.{key}` does not belong here: {reason}", CONFLICT, hint)


def is_local(hf: str) -> bool:
    """Return whether ``model.hf`` is a directory, not a name on the hub."""
    return hf in (".", "..") or hf.startswith(("./", "../", "/"))


def meant_source(data: Mapping[str, Any]) -> str | None:
    """Return the key that states the source of the model, even if misspelled; None if that cannot be determined."""
    model = table_at(data, "model")
    stated = next((key for key in SOURCES if key in model), None)
    return stated or next((meant for key in model if (meant := nearest(key, SOURCES))), None)
