"""Owners of the memory of inputs and outputs: converts names in the config to positions for the linker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from etdev.config.issues import REFERENCE
from etdev.config.keys import KeyPath, format_key, suggest
from etdev.config.tables.io import Owner
from etdev.errors import ConfigError
from etdev.linker import CallerOwned
from etdev.linker.io import CallerOwnedError
from etdev.pipeline.project import Project
from etdev.pipeline.stages.artifacts import Emitted
from etdev.pipeline.stages.inputs import Signature

_END = re.compile(r"\b(?P<kind>input|output) (?P<position>\d+)(?= of method )")
"""Pattern for an input or output in the linker's messages: ``input 0 of method``."""


def caller_owned(
    project: Project, target: str, method: str, objects: Emitted, signatures: Mapping[str, Signature]
) -> CallerOwned:
    """Return the owners that ``[targets.X.io.METHOD]`` sets, by the positions of inputs and outputs.

    Raises :class:`~etdev.errors.ConfigError` for an unknown name.
    """
    key = ("targets", target, "io", method)
    if method not in signatures:
        raise _error(project, key, f"the program has no method {method!r}", _valid(method, "methods", (*signatures,)))
    settings = project.config.targets[target].io[method]
    names = [item.name for item in signatures[method].inputs]
    outputs = [str(position) for position in range(len(objects.program.method(method).outputs))]
    inputs = _owners(project, (*key, "inputs"), settings.inputs, names)
    results = _owners(project, (*key, "outputs"), settings.outputs, outputs)
    return CallerOwned(
        inputs=_positions_of("caller", inputs),
        outputs=_positions_of("caller", results),
        device_inputs=_positions_of("device", inputs),
        device_outputs=_positions_of("device", results),
    )


def refused_end(project: Project, target: str, error: CallerOwnedError, signature: Signature) -> ConfigError:
    """Return the linker's error about an owner, with the config key and the name of the input or output added."""
    key: KeyPath = ("targets", target, "io", error.method)
    found = _END.search(error.message)
    if found is None:
        return _error(project, key, error.message, error.hint)
    names = [item.name for item in signature.inputs]
    kind, position = found["kind"], int(found["position"])
    is_named = kind == "input" and position < len(names)
    called = f"input {names[position]!r}" if is_named else found[0]
    owners = getattr(project.config.targets[target].io[error.method], f"{kind}s")
    key = (
        *key,
        f"{kind}s",
        *((names[position] if is_named else str(position),) if isinstance(owners, Mapping) else ()),
    )
    return _error(project, key, error.message.replace(found[0], called, 1), error.hint)


def _positions_of(owner: Owner, owners: Mapping[int, Owner]) -> frozenset[int]:
    return frozenset(position for position, found in owners.items() if found == owner)


def _owners(
    project: Project, key: KeyPath, owners: Owner | Mapping[str, Owner], names: Sequence[str]
) -> dict[int, Owner]:
    """Return the owners that the config sets, by position of the input or output.

    ``names`` are the names of all inputs or of all outputs, in order.
    """
    given = dict.fromkeys(names, owners) if isinstance(owners, str) else owners
    kinds = str(key[-1])
    for name in given:
        if name not in names:
            message = f"method {key[-2]!r} has no {kinds.removesuffix('s')} {name!r}"
            raise _error(project, (*key, name), message, _valid(name, kinds, names))
    return {names.index(name): owner for name, owner in given.items()}


def _valid(name: str, kinds: str, names: Sequence[str]) -> str | None:
    return suggest(name, names, f"its {kinds}: {', '.join(names) or 'none'}", repr)


def _error(project: Project, key: KeyPath, message: str, hint: str | None) -> ConfigError:
    return project.error(f"`{format_key(key)}`: {message}", *key, hint=hint, rule=REFERENCE)
