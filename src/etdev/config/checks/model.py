"""Checks of the source of the model, and of the other keys in the table `model`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from etdev.config.describe.notation import example, kind, literal, short
from etdev.config.issues import CONFLICT, MISSING_KEY, WRONG_TYPE, WRONG_VALUE, Issue
from etdev.config.keys import nearest
from etdev.config.raw import Raw

SOURCES = ("entry", "hf", "pt2")
"""Keys that select the source of the model. A config must have exactly one of them."""

CONVERSION_HINT = (
    "convert the file once, as docs/models.md describes (torch.load with weights_only=True, then "
    "safetensors.torch.save_file): other formats can contain pickles, which etdev never loads"
)


def check_model_source(config: Raw) -> Iterator[Issue]:
    """Check that exactly one of ``entry``, ``hf`` and ``pt2`` is set.

    Also check that the table ``model`` has the keys that this source requires, and no key that this source excludes.
    """
    model = config["model"]
    if not isinstance(model.value, Mapping):
        return
    present = [key for key in model.table if key in SOURCES]
    if meant_source(config) is None:
        text = "does not state where the model comes from; expected one of `entry`, `hf` and `pt2`"
        hint = 'set `model.entry` to "module:callable" for a function that makes the module'
        yield model.issue(text, MISSING_KEY, hint, at="entry")
    for key in present[1:]:
        yield _conflict(
            model[key], f"`model.{present[0]}` already states where the model comes from", "keep one of them"
        )
    if len(present) == 1:
        yield from _check_companions(model, present[0])


def _check_companions(model: Raw, source: str) -> Iterator[Issue]:
    if source == "pt2" and (model["trust"].value is False or model.lacks("trust")):
        message = "`model.pt2` needs `trust` to be true: loading such a file may run code that it contains"
        hint = example("add `{}` if you trust the source of the file", {"trust": True})
        yield Issue(model["trust" if "trust" in model else "pt2"].path, message, CONFLICT, hint)
    if source != "pt2" and model["trust"].value is True:
        yield _conflict(model["trust"], "only a `pt2` model needs this key")
    if source != "entry" and "weights" in model:
        yield _conflict(model["weights"], f"a `{source}` model has its own weights")
    if source == "entry":
        yield from _check_weights(model["weights"])
    if source == "pt2" and "kwargs" in model:
        yield _conflict(model["kwargs"], "a `pt2` model is already complete")
    yield from _check_revision(model)


def _check_weights(weights: Raw) -> Iterator[Issue]:
    """Check that the name of the weights file ends with ``.safetensors``.

    Files of other formats may contain pickles, so etdev does not open them.
    """
    if isinstance(weights.value, str) and weights.value and not weights.value.endswith(".safetensors"):
        text = f"is {short(weights.value)}; expected the path of a .safetensors file"
        yield weights.issue(text, WRONG_VALUE, CONVERSION_HINT)


def _check_revision(model: Raw) -> Iterator[Issue]:
    name = model["hf"].value
    is_hub_name = isinstance(name, str) and name != "" and not is_local(name)
    if is_hub_name and model.lacks("revision"):
        hint = f"add the commit hash as `revision`; for a local directory, write {literal(f'./{name}')}"
        yield model["hf"].issue(f"is {short(name)}, a name on the hub, which needs `revision`", CONFLICT, hint)
    if "revision" in model and not is_hub_name and ("hf" not in model or isinstance(name, str)):
        yield _conflict(model["revision"], "only a model from the hub (`hf`) has a revision")


def check_kwargs(config: Raw) -> Iterator[Issue]:
    """Check that ``model.kwargs`` contains only values that both TOML and YAML can represent."""
    for item in config["model"]["kwargs"].children:
        yield from _check_free(item)


def _check_free(item: Raw) -> Iterator[Issue]:
    for inner in item.children:
        yield from _check_free(inner)
    if kind(item.value) in ("nothing", "date", "bytes"):
        hint = "remove the key" if item.value is None else "write it as text, in quotes"
        text = f"is {short(item.value)}; expected true or false, a number, text, a list, or a table"
        yield item.issue(text, WRONG_TYPE, hint)


def _conflict(key: Raw, reason: str, hint: str = "remove it") -> Issue:
    return key.issue(f"does not belong here: {reason}", CONFLICT, hint)


def is_local(hf: str) -> bool:
    """Return True if ``model.hf`` is a directory, False if it is a name on the hub."""
    return hf in (".", "..") or hf.startswith(("./", "../", "/"))


def meant_source(config: Raw) -> str | None:
    """Return the key that selects the source of the model: ``entry``, ``hf`` or ``pt2``.

    Also recognize a misspelled key. Return None if the table has no such key.
    """
    model = config["model"].table
    stated = next((key for key in SOURCES if key in model), None)
    return stated or next((meant for key in model if (meant := nearest(key, SOURCES))), None)


def method_names(config: Raw) -> list[str]:
    """Return the names of the methods that the config declares.

    If the config declares none and the model is a saved program, return ``forward``.
    """
    return list(config["methods"].table) or (["forward"] if meant_source(config) == "pt2" else [])
