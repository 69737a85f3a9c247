"""The commands ``etdev cache stats``, ``etdev cache gc`` and ``etdev cache why``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from etdev.cli.common import (
    ConfigOption,
    DeviceMapOption,
    OutputOption,
    ProfileOption,
    RequireOption,
    SetOption,
    TargetOption,
    TargetsArgument,
    VerboseOption,
)
from etdev.cli.rendering.output import TEXT, parse_outputs
from etdev.cli.rendering.text import count, printable
from etdev.errors import UsageError
from etdev.units import format_size

if TYPE_CHECKING:
    from etdev.pipeline.cache.why import Explanation

_LEVELS = {"object": "object program", "linked": "finished target", "reference": "outputs of the quantized model"}

SizeOption = Annotated[
    str | None,
    typer.Option(
        "--size",
        metavar="SIZE",
        help="Maximum size to keep, such as 2GiB. Default: $ETDEV_CACHE_SIZE, or 10GiB.",
        show_default=False,
    ),
]


def stats(output: OutputOption = None, verbose: VerboseOption = False) -> int:
    """Show the folder, the contents and the size of the cache.

    $ETDEV_CACHE_DIR sets another folder. Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    outputs.refuse()
    import dataclasses
    import json

    from etdev.pipeline.cache import open_store

    found = open_store().stats()

    def text() -> str:
        return (
            f"{found.folder}\n"
            f"{count(found.objects, 'object program')}, {count(found.linked, 'finished target')}, "
            f"outputs of {count(found.references, 'quantized model')}; "
            f"{count(found.files, 'file')} of {format_size(found.size)} together, of at most {format_size(found.limit)}"
        )

    outputs.write({TEXT: text, "json": lambda: json.dumps(dataclasses.asdict(found), default=str, indent=2)})
    return 0


def gc(size: SizeOption = None, output: OutputOption = None, verbose: VerboseOption = False) -> int:
    """Remove the least recently used builds, and files that no build needs.

    Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    outputs.refuse()
    import dataclasses
    import json

    from etdev.config.types import parse_byte_size
    from etdev.pipeline.cache import open_store

    try:
        limit = None if size is None else int(str(parse_byte_size(size)))
    except ValueError as error:
        raise UsageError(
            f"{size!r} is not a size: {error}", where="--size", hint="use a size such as `2GiB`"
        ) from error
    freed = open_store().collect(limit)

    def text() -> str:
        return f"removed {count(freed.entries, 'build')} and {count(freed.files, 'file')}, {format_size(freed.size)}"

    outputs.write({TEXT: text, "json": lambda: json.dumps(dataclasses.asdict(freed), indent=2)})
    return 0


def why(
    targets: TargetsArgument = None,
    named: TargetOption = None,
    config: ConfigOption = None,
    profile: ProfileOption = None,
    overrides: SetOption = None,
    require: RequireOption = None,
    device_map: DeviceMapOption = None,
    output: OutputOption = None,
    verbose: VerboseOption = False,
) -> int:
    """Explain which steps of a build the cache can replace, and why the build must repeat the other steps.

    Formats of --output: text, json.
    """
    outputs = parse_outputs(output, allowed=(TEXT, "json"))
    import json

    from etdev.cli.reports import refuse_config
    from etdev.pipeline.api import open_project
    from etdev.pipeline.cache import Cache, open_store
    from etdev.pipeline.cache.why import explain
    from etdev.pipeline.project.options import BuildOptions, check_device_map, choose_targets, parse_checks

    refuse_config(outputs, config)
    project = open_project(config, profile=profile, overrides=overrides or ())
    options = BuildOptions(
        targets=(*(targets or ()), *(named or ())),
        require=parse_checks(require or ()),
        device_map=check_device_map(device_map),
    )
    with Cache(open_store()) as cache:
        found = [
            explanation
            for name in choose_targets(project, options.targets)
            for explanation in explain(project, name, options, cache)
        ]
    outputs.write(
        {
            TEXT: lambda: "\n".join(line for item in found for line in _lines(item)),
            "json": lambda: json.dumps([item.model_dump() for item in found], indent=2),
        }
    )
    return 0


def _lines(found: Explanation) -> list[str]:
    head = f"{found.target}: {_LEVELS[found.level]}: "
    if found.state == "found":
        return [f"{head}in the cache"]
    if found.state == "unknown":
        return [f"{head}made again, because the cache has no build of this target"]
    return [f"{head}made again", *(f"  {printable(difference)}" for difference in found.differences)]
