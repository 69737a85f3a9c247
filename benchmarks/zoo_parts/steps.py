"""etdev's builds of a model: each step turns on one more part of what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from architectures import BY_NAME, Input

from zoo_parts import PROJECT


@dataclass(frozen=True, slots=True)
class Step:
    """A build with this part and those before it."""

    name: str
    switches: tuple[tuple[str, str], ...] = ()
    """Keys of a target that turn the part on, with what turns it off, in TOML."""


STEPS = (
    Step("plan"),
    Step(
        "+elide",
        (
            ("elide.views", "false"),
            ("elide.slices", "false"),
            ("elide.cat", "false"),
            ("elide.write_back", "false"),
            ("elide.constants", "false"),
        ),
    ),
    Step("+in-place", (("inplace.ops", '"none"'),)),
    Step("+kernel-aware", (("lowering", '"stock"'),)),
)
"""In the order in which they are measured. The last one is etdev as it is without any setting."""


@dataclass(frozen=True, slots=True)
class Built:
    """A file of etdev's."""

    path: Path
    object: Path
    """The program before the link, with an address of its own for each tensor."""
    lower_bound: int
    """Bytes of planned memory below which no plan of the file's tensors gets."""


def measured_steps() -> Iterator[tuple[str, list[str]]]:
    """Name and overrides of each step of which this etdev has a switch; ``TARGET`` stands for the target."""
    known = [step for step in STEPS if not step.switches or _known(step)]
    for index, step in enumerate(known):
        later = [switch for other in known[index + 1 :] for switch in _known(other)]
        yield step.name, [f"targets.TARGET.{key}={off}" for key, off in later]


def _known(step: Step) -> list[tuple[str, str]]:
    from etdev.config.models import Target

    found = []
    for key, off in step.switches:
        table, _, name = key.rpartition(".")
        fields = Target.model_fields
        if table:
            fields = getattr(fields[table].annotation, "model_fields", {}) if table in fields else {}
        if name in fields:
            found.append((key, off))
    return found


def build_step(name: str, backend: str, settings: Sequence[str], folder: Path) -> Built:
    """Build a model of the zoo with those overrides; what was made before in the folder is linked again if it can be.

    Raises an :class:`~etdev.errors.EtdevError`.
    """
    import etdev

    overrides = [*declarations(name, folder), *(text.replace("TARGET", backend) for text in settings)]
    result = etdev.build(PROJECT / "etdev.toml", targets=[backend], verify=False, overrides=overrides, environ={})
    path = result.path(backend)
    bound = sum(buffer.lower_bound or 0 for method in result[backend].methods for buffer in method.buffers)
    return Built(path, path.with_suffix(".object.pte"), bound)


def declarations(name: str, folder: Path) -> list[str]:
    """Overrides that choose a model, and where its files go."""
    return [
        f"project.out={json.dumps(str(folder))}",
        f"model.kwargs={{ name = {json.dumps(name)} }}",
        f"methods.forward.inputs=[{', '.join(map(_declaration, BY_NAME[name].inputs))}]",
    ]


def _declaration(item: Input) -> str:
    return f'{{ name = "{item.name}", dtype = "{item.dtype}", shape = {list(item.shape)} }}'
