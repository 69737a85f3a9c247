"""The command ``etdev schema``, which prints the JSON Schema of the config file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etdev.cli.common import VerboseOption
from etdev.cli.rendering.output import Output, Outputs

PathOption = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="File to write. Default: standard output.", show_default=False),
]


def schema(output: PathOption = None, verbose: VerboseOption = False) -> int:
    """Print the JSON Schema of the config file. Editors use it to complete and check TOML and YAML.

    In a TOML file, write `#:schema ./etdev.schema.json` on the first line (Even Better TOML, taplo). In a YAML file,
    write `# yaml-language-server: $schema=./etdev.schema.json`.
    """
    from etdev.config.describe.schema import schema_text

    Outputs((Output("json", None if output is None or str(output) == "-" else output),)).write({"json": schema_text})
    return 0
