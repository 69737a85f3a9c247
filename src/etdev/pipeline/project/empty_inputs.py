"""Detection of inputs without elements, which may be meant as dynamic. This module does not import torch."""

from __future__ import annotations

from collections.abc import Iterator

from etdev.config.issues import EMPTY_INPUT
from etdev.config.keys import format_key
from etdev.config.loader import LoadedConfig
from etdev.errors import Problem


def empty_inputs(loaded: LoadedConfig) -> Iterator[Problem]:
    """Yield a problem for each size of 0 in the shape of an input: the program takes no other size."""
    for method, settings in loaded.config.methods.items():
        for number, tensor in enumerate(settings.inputs or ()):
            if 0 not in tensor.shape:
                continue
            key = ("methods", method, "inputs", number, "shape", tensor.shape.index(0))
            yield loaded.problem(
                f"`{format_key(key)}` is 0, so the input {tensor.name!r} never has elements",
                *key,
                hint="for a size that varies, write a name, and declare it in `dims`",
                rule=EMPTY_INPUT,
            )
